"""The requests of `agents.counting` to Kafka, through Faust's consumer and producer and a second client."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import faust
import structlog
from aiokafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError, UnknownTopicOrPartitionError
from aiokafka.structs import TopicPartition
from faust.exceptions import ProducerSendError
from kafka.admin import OffsetSpec

from ldpstream.agents import metrics
from ldpstream.agents.consumer.chunks import ANSWER_S, ChunkConsumer
from ldpstream.agents.log import DeadLetter, Found
from ldpstream.engines.kafka.log_position import LogClient
from ldpstream.runtime.errors import LogUnavailable
from ldpstream.surveys import Survey
from ldpstream.surveys.envelope import decode_envelope

log = structlog.get_logger("ldpstream.agent")


class BrokerRequests:
    """The agent's requests to the broker about one survey's topics (`agents.log.CountedLog`).

    Args:
        known: returns the fingerprints of our surveys and of the surveys that they replaced. An envelope of such a survey
            becomes no dead letter.
    """

    def __init__(
        self, app: faust.App, second_client: LogClient, survey: Survey, known: Callable[[], Collection[bytes]]
    ) -> None:
        self._app, self._second_client, self._known = app, second_client, known
        self._topic, self._rejected_topic = survey.reports_topic, survey.rejected_topic

    @property
    def _consumer(self) -> ChunkConsumer:
        return cast(ChunkConsumer, self._app.consumer)

    async def identity(self) -> str:
        return (await self._described())[0]

    async def partitions(self) -> set[int]:
        return set((await self._described())[1])

    async def _described(self) -> tuple[str, list[int]]:
        return await asyncio.to_thread(self._second_client.described, self._topic)

    async def ask_second_client(self, partitions: Sequence[int]) -> None:
        ends = dict.fromkeys(partitions or [0], OffsetSpec.LATEST)
        await asyncio.to_thread(self._second_client.offsets, self._topic, ends)

    def shut_out(self) -> str:
        return self._consumer.shut_out

    async def bounds(self, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        consumer, wanted = self._consumer, [self._at(partition) for partition in partitions]
        begins = await consumer.in_thread(consumer.library.beginning_offsets(wanted))
        ends = await consumer.in_thread(consumer.library.end_offsets(wanted))
        return {where.partition: (begins[where], ends[where]) for where in wanted}

    async def later(self, times_ms: Mapping[int, int]) -> dict[int, Found | None]:
        try:
            return await self._later(times_ms)
        except LogUnavailable:
            if len(times_ms) == 1:
                raise
        found: dict[int, Found | None] = {}
        for partition, time_ms in times_ms.items():
            with suppress(LogUnavailable):
                found |= await self._later({partition: time_ms})
        return found

    async def _later(self, times_ms: Mapping[int, int]) -> dict[int, Found | None]:
        found = await asyncio.to_thread(self._second_client.offsets, self._topic, times_ms)
        return {at: Found(it.offset, it.timestamp) if it.offset >= 0 else None for at, it in found.items()}

    async def place(self, partition: int, offset: int) -> int:
        return await self._consumer.in_thread(self._consumer.place(self._at(partition), offset))

    async def position_if_nothing_read(self, partition: int) -> int | None:
        return await self._consumer.in_thread(self._consumer.position_if_nothing_read(self._at(partition)))

    async def commit_group(self, offsets: dict[int, int]) -> None:
        wanted = {self._at(partition): offset for partition, offset in offsets.items()}
        await self._consumer.in_thread(self._consumer.commit_group(wanted))

    def _at(self, partition: int) -> TopicPartition:
        return TopicPartition(self._topic, partition)

    async def send_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        """Sends dead letters. Counts a dead letter as lost after a permanent error, for example "too large" or "no topic"."""
        known = self._known()
        letters = [letter for letter in letters if not _belongs_to(letter, known)]
        try:
            async with asyncio.timeout(2 * ANSWER_S):
                failed = [error for error in await self._send_all(letters) if error is not None]
        except TimeoutError:
            raise LogUnavailable(f"{self._rejected_topic} did not acknowledge dead letters in time") from None
        for cause in failed:
            retriable = isinstance(cause, KafkaError) and (cause.retriable or isinstance(cause, KafkaTimeoutError))
            if retriable and not isinstance(cause, UnknownTopicOrPartitionError):
                raise LogUnavailable(f"{self._rejected_topic} does not accept dead letters: {type(cause).__name__}")
        if failed:
            metrics.dead_letters_lost.inc(len(failed))
            log.error("dead letters refused", topic=self._rejected_topic, letters=len(failed))

    async def _send_all(self, letters: Sequence[DeadLetter]) -> list[BaseException | None]:
        queued: list[Any] = []
        refused: list[BaseException | None] = []
        for letter in letters:
            try:
                queued += [await self._send(letter)]
            except ProducerSendError as error:
                refused.append(error.__cause__)
                if not isinstance(error.__cause__, MessageSizeTooLargeError):  # it holds for the others too
                    refused += [error.__cause__] * (len(letters) - len(queued) - len(refused))
                    break
        answers = await asyncio.gather(*queued, return_exceptions=True)
        return [answer if isinstance(answer, BaseException) else None for answer in answers] + refused

    async def _send(self, letter: DeadLetter) -> Any:
        where = {"partition": letter.partition, "offset": letter.record.offset, "records": letter.records}
        headers = [("reason", letter.reason.encode()), *((key, str(number).encode()) for key, number in where.items())]
        appended_s = letter.record.appended_ms / 1000  # a dead letter then expires no later than its record
        return await self._app.producer.send(self._rejected_topic, None, letter.record.value, None, appended_s, headers)


def _belongs_to(letter: DeadLetter, surveys: Collection[bytes]) -> bool:
    return letter.reason == "wrong survey" and decode_envelope(letter.record.value).fingerprint in surveys
