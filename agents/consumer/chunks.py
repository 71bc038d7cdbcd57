"""Faust's consumer, handing on whole chunks: one event per fetched chunk of a partition instead of one per record.

Faust spends some 200 µs on every event; a chunk holds thousands of records. Everything that Faust does about offsets is
switched off here, because the count store's offsets are the truth: its duplicate filter, its acknowledgements and commits
(the topic is made with ``acks=False``), and its seek to the group's offsets after a rebalance.

A partition is read only from the moment it has been *placed*: its position set to an offset that the counting side asked
for. Every chunk says by which placement it was read, and as which one since. Both are noted in the consumer's own thread,
in the same step as the read, so a chunk read before a seek can be told from one read after it, and a chunk that Faust has
dropped on its way is noticed by its missing offsets.
"""

import asyncio
import itertools
from collections.abc import Coroutine, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, cast

import structlog
from aiokafka.errors import IllegalStateError, KafkaConnectionError, KafkaError, OffsetOutOfRangeError
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from faust.transport.drivers import aiokafka as driver
from faust.types import ConsumerMessage

from agents.consumer.batches import Batch, FetchedBatches, Markers, Piece, RefusedBatch, joined
from agents.consumer.membership import Membership
from agents.counting import Counting
from agents.log import Chunk, LogUnavailable, Refusal
from agents.tally import Record

log = structlog.get_logger("ldpstream.agent")

ANSWER_S = 5.0  # how long to wait for the broker
LOG_APPEND_TIME = 1  # a record's timestamp type
AFTER_ERROR_S = 1.0
FETCH_S = 0.25  # how long one read may wait; a partition that is placed meanwhile is read after it


@dataclass(slots=True)
class _Placement:
    number: int
    chunks: int = 0


class ChunkConsumer(driver.Consumer):
    """A consumer whose messages are chunks; see the module's text."""

    _thread: "ChunkThread"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._read_offset: MutableMapping[Any, Any] = _Nothing()
        self.placements: dict[tuple[str, int], _Placement] = {}
        self._numbers = itertools.count(1)

    # ---- what the counting side asks for

    @property
    def shut_out(self) -> str:
        """What keeps this consumer out of its group; "" while nothing does."""
        membership = self._thread.membership
        return membership.shut_out if membership is not None else ""

    async def place(self, topic: str, partition: int, offset: int) -> int:
        """Set the position of a partition; gives the number of the placement.

        Raises:
            LogUnavailable: if the partition is not assigned to this consumer.
        """
        number: int = await self._in_thread(self._place(TopicPartition(topic, partition), offset))
        return number

    async def _place(self, partition: TopicPartition, offset: int) -> int:
        self._thread._ensure_consumer().seek(partition, offset)
        placement = self.placements[partition] = _Placement(next(self._numbers))
        return placement.number

    async def bounds(self, topic: str, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        """The first offset that the log still has, and the one that its next record will get, for each partition.

        Raises:
            LogUnavailable: if the broker does not answer.
        """
        consumer, wanted = self._thread._ensure_consumer(), [TopicPartition(topic, partition) for partition in partitions]
        begins = await self._in_thread(consumer.beginning_offsets(wanted))
        ends = await self._in_thread(consumer.end_offsets(wanted))
        return {where.partition: (begins[where], ends[where]) for where in wanted}

    async def read_in_vain(self, topic: str, partition: int) -> int | None:
        """The position of a partition that has been placed and gave no record since, if that is so.

        Raises:
            LogUnavailable: if the partition is not assigned to this consumer.
        """
        reached: int | None = await self._in_thread(self._read_in_vain(TopicPartition(topic, partition)))
        return reached

    async def _read_in_vain(self, partition: TopicPartition) -> int | None:
        position: int = await self._thread._ensure_consumer().position(partition)
        placement = self.placements.get(partition)
        return position if placement is not None and placement.chunks == 0 else None

    async def commit_group(self, topic: str, offsets: dict[int, int]) -> None:
        """Commit offsets of the consumer group, for those who watch its lag; we never read them.

        Those of partitions that are not assigned to us any more are left out: one of them would make all be refused.

        Raises:
            LogUnavailable: if the broker does not answer or refuses.
        """
        await self._in_thread(self._commit_group(topic, offsets))

    async def _commit_group(self, topic: str, offsets: dict[int, int]) -> None:
        consumer = self._thread._ensure_consumer()
        wanted = {TopicPartition(topic, partition): OffsetAndMetadata(offset, "") for partition, offset in offsets.items()}
        ours = {partition: offset for partition, offset in wanted.items() if partition in consumer.assignment()}
        if ours:
            await consumer.commit(ours)

    async def _in_thread(self, question: Coroutine[Any, Any, Any]) -> Any:
        answer = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(question, self._thread.thread_loop))
        try:
            return await asyncio.wait_for(answer, ANSWER_S)
        except (KafkaError, IllegalStateError, TimeoutError, ValueError) as error:
            raise LogUnavailable(f"{type(error).__name__}: {error}") from None

    # ---- what Faust asks for

    async def perform_seek(self) -> None:
        """Called after every rebalance: read nothing more until the partitions are placed again."""
        self.placements.clear()
        self._counting.assign({tp.partition for tp in self.assignment()})

    def displaced(self, partitions: set[int]) -> None:
        """The broker has no record at the position of these partitions."""
        self._counting.displace(partitions)

    @property
    def _counting(self) -> Counting:
        counting: Counting = cast(Any, self.app).counting
        return counting

    def _new_consumer_thread(self) -> "ChunkThread":
        return ChunkThread(self, loop=self.loop, beacon=self.beacon)

    def _to_message(self, tp: Any, chunk: Chunk) -> ConsumerMessage:
        last, value = chunk.records[-1], cast(Any, chunk)
        return ConsumerMessage(
            tp.topic, tp.partition, last.offset, last.appended_ms / 1000, 1, None, None, value, None, 0, 0, tp,
            generation_id=self.app.consumer_generation_id,
        )  # fmt: skip

    def highwater(self, tp: Any) -> int:
        """As Faust's, but 0 for a partition that has just been revoked, where Faust's would end the process."""
        try:
            return int(super().highwater(tp) or 0)
        except (AssertionError, IllegalStateError):
            return 0

    def verify_event_path(self, now: float, tp: Any) -> None:
        """Nothing: Faust's own stall detector expects commits; the counting side has one that knows the truth."""


class ChunkThread(driver.AIOKafkaConsumerThread):
    """The thread in which aiokafka runs."""

    consumer: ChunkConsumer
    _ahead: asyncio.Task[dict[Any, list[Chunk]]] | None = None
    membership: Membership | None = None
    _keeping: asyncio.Task[None] | None = None

    async def on_start(self) -> None:
        """As Faust's, and look after our membership from the first attempt on."""
        await super().on_start()
        self.membership = Membership(self._ensure_consumer())
        self._keeping = asyncio.create_task(self.membership.keep())

    def _create_consumer(self, loop: asyncio.AbstractEventLoop) -> Any:
        """As Faust's, which has no setting for how long the broker may keep a read that finds nothing: other questions wait."""
        consumer = super()._create_consumer(loop)
        consumer._fetch_max_wait_ms = int(FETCH_S * 1000)
        _keep_trying(consumer._client, self.app)
        return consumer

    async def on_thread_stop(self) -> None:
        """As Faust's, with nothing left running.

        aiokafka cancels its fetches and awaits them unguarded: one that failed a moment ago ends the stopping halfway.
        """
        for task in (self._keeping, self._ahead):
            if task is not None:
                task.cancel()
        try:
            await super().on_thread_stop()
        except asyncio.CancelledError:
            if cast(Any, asyncio.current_task()).cancelling():
                raise
            await self._ensure_consumer()._client.close()

    async def _fetch_records(
        self, consumer: Any, active_partitions: Iterable[Any] | None, *_limits: Any, **_more_limits: Any
    ) -> dict[Any, list[Chunk]]:
        """What has been read; while that is counted the next is read ahead, so that the two threads need not take turns."""
        ahead, self._ahead = self._ahead, None
        chunks = await (ahead or self._read(consumer, active_partitions))
        if chunks:
            self._ahead = asyncio.create_task(self._read(consumer, active_partitions))
        return chunks

    async def _read(self, consumer: Any, active_partitions: Iterable[Any] | None) -> dict[Any, list[Chunk]]:
        placements = self.consumer.placements
        # a copy first, in one step: the set is Faust's, and lives in the other thread
        placed = {partition for partition in tuple(active_partitions or ()) if partition in placements}
        if not placed:  # aiokafka would take an empty set for all partitions
            await asyncio.sleep(0.02)
            return {}
        if not isinstance(consumer._fetcher._records, FetchedBatches):
            consumer._fetcher._records = FetchedBatches(consumer._fetcher._records)
        try:
            fetched = await super()._fetch_records(consumer, placed, FETCH_S)
        except KafkaError as error:
            # what was read before the error is gone, so positions mean nothing any more
            lost = set(error.args[0]) if isinstance(error, OffsetOutOfRangeError) else placed
            for partition in lost:
                placements.pop(partition, None)
            if not isinstance(error, OffsetOutOfRangeError):
                log.warning("fetch failed", error=f"{type(error).__name__}: {error}")
                await asyncio.sleep(AFTER_ERROR_S)
            self.parent_loop.call_soon_threadsafe(self.consumer.displaced, {partition.partition for partition in lost})
            return {}
        chunks: dict[Any, list[Chunk]] = {}
        for partition, pieces in fetched.items():
            placement = placements.get(partition)
            if any(timestamp_type != LOG_APPEND_TIME for piece in pieces for timestamp_type in piece.timestamp_types):
                raise RuntimeError(f"topic {partition.topic} no longer has message.timestamp.type=LogAppendTime")
            if placement is not None and pieces:
                chunks[partition] = [
                    Chunk(partition.partition, placement.number, placement.chunks + i, *run)
                    for i, run in enumerate(_runs(pieces))
                ]
                placement.chunks += len(chunks[partition])
        return chunks


def _runs(pieces: Sequence[Piece]) -> Iterator[tuple[Sequence[Record], Refusal | None, int]]:
    """Joins pieces that can be read; a refused batch and a batch of markers stay by themselves. As in `Chunk`."""
    for kind, run in groupby(pieces, type):
        if kind is Batch:
            yield joined(cast(list[Batch], list(run))), None, 0
        else:
            yield from (([piece.record], piece.refusal, piece.markers) for piece in cast(Iterator[RefusedBatch | Markers], run))


class ChunkProducer(driver.Producer):
    """Faust's producer, which waits for the broker when it starts."""

    def _new_producer(self, transactional_id: str | None = None) -> Any:
        producer = super()._new_producer(transactional_id)
        _keep_trying(producer.client, self.app)
        return producer


def _keep_trying(client: Any, app: Any) -> None:
    """Have a client of aiokafka wait for a broker that went away after the agent's checks, as a running agent does."""
    connect = client.bootstrap

    async def keep_trying() -> None:
        while True:
            try:
                await connect()
            except KafkaConnectionError as error:
                log.warning("Kafka cannot be reached, trying again", error=str(error))
                app.watchdog.alive()
                await asyncio.sleep(AFTER_ERROR_S)
            else:
                return

    client.bootstrap = keep_trying


class ChunkTransport(driver.Transport):
    """Faust's transport with our consumer and producer."""

    Consumer = ChunkConsumer
    Producer = ChunkProducer


class _Nothing(dict[Any, None]):
    """A read offset for every partition, always None: Faust then takes no message for one that it has seen."""

    def __missing__(self, key: Any) -> None:
        return None

    def __setitem__(self, key: Any, value: Any) -> None:
        """Forgotten at once."""

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Forgotten at once."""
