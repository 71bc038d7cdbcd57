"""Faust's consumer, with one event for each fetched chunk of a partition.

The count store's offsets decide which records are read and counted. Faust's own work on offsets is switched off.

A partition is read only after `place` has done a seek in that partition. A seek by `place` is called a *placement* and has a
number. Every chunk carries the number of its placement, and a sequence number from 0.

A survey with waiting chunks gets no further chunk while its waiting chunks, or those of all surveys, have reached a limit.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import structlog
from aiokafka.errors import IllegalStateError, KafkaError, OffsetOutOfRangeError
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from faust.transport.drivers import aiokafka as driver
from faust.types import ConsumerMessage

from ldpstream.agents.consumer.batches import CHUNK_BYTES, joined, read_pieces
from ldpstream.agents.consumer.membership import Membership
from ldpstream.agents.dispatcher import Dispatcher
from ldpstream.agents.log import Chunk
from ldpstream.runtime.errors import LogUnavailable

T = TypeVar("T")

log = structlog.get_logger("ldpstream.agent")

ANSWER_S = 5.0  # timeout of a request to the broker
AFTER_ERROR_S = 1.0
FETCH_S = 0.25  # longest wait of one fetch; after a seek, a partition waits for the next fetch
FULL_S = 0.01  # wait for room, if records are fetched but only for surveys whose chunks have reached a limit
SURVEY_CHUNKS = 8  # limit of the chunks of one survey that wait to be counted
ALL_CHUNKS = 16  # limit of the waiting chunks of all surveys together; a survey without waiting chunks may always read one
TURN_PARTITIONS = 8  # limit of the partitions in one read
FETCHED_BYTES = 2**26  # approximate limit of the fetched bytes of all partitions
LEAST_FETCH_BYTES = 2**17  # smallest fetch limit of a partition, however many partitions there are


@dataclass(slots=True)
class _Placement:
    number: int
    chunks: int = 0  # number of chunks read; set by the consumer's thread
    done: int = 0  # number of chunks counted or dropped; set by Faust's thread
    turn: int = 0  # number of the partition's last read, counted over all partitions


class ChunkConsumer(driver.Consumer):
    _thread: "ChunkThread"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.placements: dict[tuple[str, int], _Placement] = {}
        self._numbers = itertools.count(1)

    # ---- for counting

    @property
    def shut_out(self) -> str:
        """The reason why this consumer is shut out of its group; "" if it is not shut out."""
        membership = self._thread.membership
        return membership.shut_out if membership is not None else ""

    @property
    def library(self) -> Any:
        """aiokafka's consumer; its coroutines must run in the consumer's thread."""
        return self._thread._ensure_consumer()

    async def in_thread(self, question: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine of aiokafka in the consumer's thread, and returns the result.

        Raises:
            LogUnavailable: if the broker does not answer in time or refuses, or if a partition is not assigned to us.
        """
        answer = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(question, self._thread.thread_loop))
        try:
            return await asyncio.wait_for(answer, ANSWER_S)
        except (KafkaError, IllegalStateError, TimeoutError, ValueError, AssertionError) as error:
            # AssertionError: a new subscription has no assignment yet
            raise LogUnavailable(f"{type(error).__name__}: {error}") from None

    # ---- in the consumer's thread

    async def place(self, partition: TopicPartition, offset: int) -> int:
        """Seeks to an offset of a partition and returns the number of this seek."""
        self.library.seek(partition, offset)
        placement = self.placements[partition] = _Placement(next(self._numbers))
        return placement.number

    async def position_if_nothing_read(self, partition: TopicPartition) -> int | None:
        """Returns the consumer's position in a partition; None if a chunk was read since the last seek, or no seek is valid."""
        position: int = await self.library.position(partition)
        placement = self.placements.get(partition)
        return position if placement is not None and placement.chunks == 0 else None

    async def commit_group(self, offsets: dict[TopicPartition, int]) -> None:
        """Commits offsets of the consumer group, for tools that watch the group's lag.

        Skips partitions that we no longer own.
        """
        owned = self.library.assignment()
        ours = {partition: OffsetAndMetadata(offset, "") for partition, offset in offsets.items() if partition in owned}
        if ours:
            await self.library.commit(ours)

    # ---- for Faust

    async def perform_seek(self) -> None:
        self.placements.clear()
        assigned = self.assignment()
        if (fetcher := self.library._fetcher) is not None:
            share = FETCHED_BYTES // max(1, len(assigned))
            fetcher._max_partition_fetch_bytes = min(CHUNK_BYTES, max(LEAST_FETCH_BYTES, share))
        self.dispatcher.assign(assigned)

    def stop_reading(self, topic: str) -> None:
        for partition in tuple(self.placements):
            if partition[0] == topic:
                self.placements.pop(partition, None)

    def done(self, topic: str, chunk: Chunk) -> None:
        placement = self.placements.get(TopicPartition(topic, chunk.partition))
        if placement is not None and placement.number == chunk.placement:
            placement.done = chunk.sequence + 1

    @property
    def dispatcher(self) -> Dispatcher:
        dispatcher: Dispatcher = cast(Any, self.app).dispatcher
        return dispatcher

    def _new_consumer_thread(self) -> "ChunkThread":
        return ChunkThread(self, loop=self.loop, beacon=self.beacon)

    def _to_message(self, tp: Any, chunk: Chunk) -> ConsumerMessage:
        last, value = chunk.records[-1], cast(Any, chunk)
        offset = 0  # the same for all chunks, because Faust drops a message with a lower offset than an earlier one
        return ConsumerMessage(
            tp.topic, tp.partition, offset, last.appended_ms / 1000, 1, None, None, value, None, 0, 0, tp,
            generation_id=self.app.consumer_generation_id,
        )  # fmt: skip

    def highwater(self, tp: Any) -> int:
        """Returns 0: Faust's method raises an error for a revoked partition, and only Faust's monitor uses the number."""
        return 0

    def verify_event_path(self, now: float, tp: Any) -> None:
        """Does nothing: `agents.stall_detector` replaces Faust's detector."""


class ChunkThread(driver.AIOKafkaConsumerThread):
    """The thread that runs aiokafka."""

    consumer: ChunkConsumer
    _ahead: asyncio.Task[dict[Any, list[Chunk]]] | None = None
    membership: Membership | None = None
    _keeping: asyncio.Task[None] | None = None
    _turns = 0

    async def on_start(self) -> None:
        """Starts the thread, and the checks of the membership."""
        await super().on_start()
        self.membership = Membership(self._ensure_consumer())
        self._keeping = asyncio.create_task(self.membership.keep())

    def _create_consumer(self, loop: asyncio.AbstractEventLoop) -> Any:
        consumer = super()._create_consumer(loop)
        consumer._fetch_max_wait_ms = int(FETCH_S * 1000)
        return consumer

    async def on_thread_stop(self) -> None:
        """Stops the thread and its tasks."""
        for task in (self._keeping, self._ahead):
            if task is not None:
                task.cancel()
        with suppress(asyncio.CancelledError):  # the library may raise this error after a failed fetch
            await super().on_thread_stop()

    async def _fetch_records(
        self, consumer: Any, active_partitions: Iterable[Any] | None, *_limits: Any, **_more_limits: Any
    ) -> dict[Any, list[Chunk]]:
        ahead, self._ahead = self._ahead, None
        chunks = await (ahead or self._read(consumer, active_partitions))
        if chunks:
            self._ahead = asyncio.create_task(self._read(consumer, active_partitions))
        return chunks

    async def _read(self, consumer: Any, active_partitions: Iterable[Any] | None) -> dict[Any, list[Chunk]]:
        placements = self.consumer.placements
        # copies the set at once, because Faust's thread may change the set
        placed = {partition for partition in tuple(active_partitions or ()) if partition in placements}
        if not placed:  # looks again soon
            await asyncio.sleep(0.02)
            return {}
        turn = self._turn(placed, consumer._fetcher._records)
        if not turn:
            full = not placed.isdisjoint(consumer._fetcher._records)
            try:
                await _fetched(consumer._fetcher, FULL_S if full else FETCH_S)
            except KafkaError as error:
                self._lose(placed, error)
                return {}
            turn = self._turn(placed, consumer._fetcher._records)
        chunks: dict[Any, list[Chunk]] = {}
        for partition in turn:
            read_pieces(consumer._fetcher._records.get(partition))
            try:
                fetched = await super()._fetch_records(consumer, {partition}, 0)
            except KafkaError as error:
                self._lose({partition}, error)
                continue
            pieces, placement = fetched.get(partition), placements.get(partition)
            if placement is None or not pieces:
                continue
            chunks[partition] = [
                Chunk(partition.partition, placement.number, placement.chunks + i, *run) for i, run in enumerate(joined(pieces))
            ]
            placement.chunks += len(chunks[partition])
        return chunks

    def _turn(self, placed: set[Any], fetched: Iterable[Any]) -> list[Any]:
        placements = dict(self.consumer.placements)  # a copy, because Faust's thread may change it
        waiting: Counter[str] = Counter()
        for (topic, _), placement in placements.items():
            waiting[topic] += placement.chunks - placement.done
        total = waiting.total()
        readable = placed & placements.keys()
        ready = [(placements[partition].turn, partition) for partition in fetched if partition in readable]
        turn: list[Any] = []
        for _, partition in sorted(ready):
            mine = waiting[partition.topic]
            if mine == 0 or (mine < SURVEY_CHUNKS and total < ALL_CHUNKS):
                turn.append(partition)
                self._turns += 1
                placements[partition].turn = self._turns
                waiting[partition.topic] += 1
                total += 1
                if len(turn) == TURN_PARTITIONS:
                    break
        return turn

    def _lose(self, partitions: set[Any], error: Exception) -> None:
        for partition in partitions:
            self.consumer.placements.pop(partition, None)
        tell = partial(self.parent_loop.call_soon_threadsafe, self.consumer.dispatcher.displace, partitions)
        if isinstance(error, OffsetOutOfRangeError):
            tell()
        else:
            topics = ", ".join(sorted({partition.topic for partition in partitions}))
            log.warning("fetch failed", topics=topics, error=f"{type(error).__name__}: {error}")
            asyncio.get_running_loop().call_later(AFTER_ERROR_S, tell)


async def _fetched(fetcher: Any, timeout_s: float) -> None:
    waiter = fetcher._create_fetch_waiter()
    done, _ = await asyncio.wait([waiter], timeout=timeout_s)
    if done:
        waiter.result()
    else:
        waiter.cancel()


class ChunkTransport(driver.Transport):
    """Faust's transport with our consumer."""

    Consumer = ChunkConsumer
