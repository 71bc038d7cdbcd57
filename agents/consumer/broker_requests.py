"""The requests of `agents.counting` to Kafka, through Faust's consumer and a second client."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import cast

import faust
from aiokafka.structs import TopicPartition

from ldpstream.agents.consumer.chunks import ChunkConsumer
from ldpstream.agents.log import Found
from ldpstream.engines.kafka.log_position import LogClient
from ldpstream.runtime.errors import LogUnavailable
from ldpstream.surveys import Survey


class BrokerRequests:
    """The agent's requests to the broker about one survey's topic (`agents.log.CountedLog`)."""

    def __init__(self, app: faust.App, second_client: LogClient, survey: Survey) -> None:
        self._app, self._second_client, self._topic = app, second_client, survey.reports_topic

    @property
    def _consumer(self) -> ChunkConsumer:
        return cast(ChunkConsumer, self._app.consumer)

    async def described(self) -> tuple[str, list[int]]:
        return await asyncio.to_thread(self._second_client.described, self._topic)

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
