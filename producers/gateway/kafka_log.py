"""The gateway's log in Kafka. Each append has one of three outcomes: acknowledged (in the log once), not appended, or unknown.

The gateway uses aiokafka's producer; `producers.sinks` uses kafka-python's producer. An event loop suits the gateway, because
thousands of requests may wait for their acknowledgements at once. The gateway collects the envelopes of `LINGER_S` into one
record batch for each partition (`producers.gateway.record_batches`), and gives the producer at most one record batch of a
partition at a time.

aiokafka's idempotent producer never drops a record batch: while the broker is unreachable the producer retries in order,
without duplicates. An envelope that was not acknowledged in time may thus reach the log later. The answer is then "outcome
unknown". `ready` turns false as soon as the broker is known to be unreachable, and the gateway refuses new envelopes before
they are queued.
"""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from producers.gateway.partitions import OLD_MS, Unsettled, View
from producers.gateway.record_batches import Done, Outcome, RecordBatch
from producers.gateway.report_keys import batch_keys
from runtime.clock import now_ms
from runtime.settings import Settings
from surveys import Survey
from surveys.envelope import MAX_ENVELOPE_BYTES

log = structlog.get_logger("ldpstream.gateway")

LINGER_S = 0.01  # time in which requests are collected
REQUEST_MS = 10_000
QUEUE_S = 3.0  # longest wait of a record batch for the producer
OVERDUE_S = 2.0  # the gateway is not ready while an acknowledgement takes longer than this
PROBE_S = 1.0  # time between two looks at the log
ANSWER_S = 3.0  # time limit of a look
GIVE_UP_S = 120.0  # longest wait for an acknowledgement before the producer is replaced
CLOSE_S = 1.5


class NotAppended(Exception):
    """The envelopes are not in the log and never will be."""


class Keyed(NamedTuple):
    """A request with an idempotency key.

    Attributes:
        hashed: H, the hash of body and key (`producers.gateway.report_keys`).
        step: the earliest step in the body.
        now_ms: the gateway's time, at which no step in the body was too early.
    """

    hashed: bytes
    step: int
    now_ms: int


class GatewayLog(Protocol):
    """The log that the gateway appends to."""

    @property
    def ready(self) -> bool:
        """True if the log answers."""

    def append(self, envelopes: Sequence[bytes], keyed: Keyed | None, done: Done) -> None:
        """Starts to append 1 to `MAX_BATCH` envelopes of a request, all or none.

        Args:
            envelopes: the envelopes.
            keyed: what a request with an idempotency key needs; None for a request without one.
            done: called once with the outcome, later.

        Raises:
            NotAppended: if no envelope is in the log; `done` is then never called.
        """


def kafka_producer(settings: Settings) -> AIOKafkaProducer:
    """Returns an idempotent producer, not yet connected. Call it within a running event loop."""
    return AIOKafkaProducer(
        **settings.kafka_options(),
        enable_idempotence=True,
        acks="all",
        max_batch_size=MAX_ENVELOPE_BYTES,
        max_request_size=2 * MAX_ENVELOPE_BYTES,
        request_timeout_ms=REQUEST_MS,
    )


def kafka_consumer(settings: Settings) -> AIOKafkaConsumer:
    """Returns a client that reads offsets and no records, not yet connected. Call it within a running event loop."""
    return AIOKafkaConsumer(**settings.kafka_options(), enable_auto_commit=False)


class KafkaLog:
    """A Kafka topic as the gateway's log.

    Requests with a key go to the partition that every gateway chooses for them (`producers.gateway.partitions`). Requests
    without a key go to all partitions in turn. `KafkaLog` replaces a producer that failed to deliver: after a gap in the
    producer's sequence numbers, the broker accepts nothing more from this producer.

    Args:
        survey: the survey; its reports topic must exist and accept record batches of `MAX_ENVELOPE_BYTES` and their header.
        make_producer: makes an idempotent producer.
        make_consumer: makes a client that reads offsets.
        now_ms: the time, in milliseconds since 1970 UTC.
    """

    def __init__(
        self,
        survey: Survey,
        make_producer: Callable[[], AIOKafkaProducer],
        make_consumer: Callable[[], AIOKafkaConsumer],
        now_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._survey, self._topic, self._now_ms = survey, survey.reports_topic, now_ms
        self._make_producer, self._make_consumer = make_producer, make_consumer
        self._producer: AIOKafkaProducer | None = None
        self._consumer: AIOKafkaConsumer | None = None
        self._view = View(0, [])
        self._turn = 0
        self._answers = False  # result of the last look
        self._failed = False
        self._collected: defaultdict[int, deque[RecordBatch]] = defaultdict(deque)  # by partition, oldest first
        self._sending: dict[int, asyncio.Task[None]] = {}  # by partition
        self._timer: asyncio.TimerHandle | None = None
        self._pending: dict[asyncio.Future[Any], float] = {}  # appends not yet acknowledged, oldest first -> time of sending
        self._markers: dict[int, asyncio.Future[Any]] = {}  # the last marker of each partition that needed one
        self._watching: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        if self._producer is None or not self._answers or not self._view.settled:
            return False
        oldest = next(iter(self._pending.values()), None)
        return oldest is None or time.monotonic() - oldest < OVERDUE_S

    async def start(self) -> None:
        """Connects. While the broker does not answer, `ready` is false and the gateway retries in the background."""
        try:
            await self._connect()
        except (KafkaError, TimeoutError) as error:
            log.warning("the log does not answer", topic=self._topic, error=str(error) or type(error).__name__)
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Waits up to `CLOSE_S` seconds for acknowledgements, then closes the producer.

        The outcome of appends still pending is unknown.
        """
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching}, timeout=CLOSE_S)
        await self._dispose()

    # ---- appends

    def append(self, envelopes: Sequence[bytes], keyed: Keyed | None, done: Done) -> None:
        if not self.ready:
            raise NotAppended("the log does not answer")
        keys = None
        if keyed is None:
            partition = self._view.with_records[self._turn % len(self._view.with_records)]
        else:
            try:
                partition = self._view.partition(self._survey, keyed.step, keyed.hashed, keyed.now_ms)
            except Unsettled as error:
                raise NotAppended(str(error)) from None
            keys = [keyed.hashed] if len(envelopes) == 1 else batch_keys(keyed.hashed, len(envelopes))
        collected = self._collected[partition]
        if not collected or not collected[-1].add(envelopes, keys, done):
            collected.append(RecordBatch(time.monotonic()))
            collected[-1].add(envelopes, keys, done)
            self._flush_soon()

    def _flush_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER_S, self._flush)

    def _flush(self) -> None:
        """Gives the producer the oldest record batch of every partition whose last one was acknowledged."""
        self._timer = None
        self._turn += 1
        for partition, collected in self._collected.items():
            if collected and partition not in self._sending and self._producer is not None:
                self._sending[partition] = asyncio.create_task(self._send(self._producer, partition, collected.popleft()))

    async def _send(self, producer: AIOKafkaProducer, partition: int, batch: RecordBatch) -> None:
        outcome = Outcome.NOT_APPENDED
        try:
            async with asyncio.timeout(QUEUE_S):
                future = await producer.send_batch(batch.builder, self._topic, partition=partition)
            outcome = Outcome.UNKNOWN
            self._pending[future] = time.monotonic()
            try:
                await future
                outcome = Outcome.APPENDED
            finally:
                del self._pending[future]
        except (KafkaError, TimeoutError) as error:
            self._failed |= outcome is Outcome.UNKNOWN
            log.error("not delivered", topic=self._topic, error=type(error).__name__)
        except asyncio.CancelledError:
            pass  # the producer was closed
        finally:
            del self._sending[partition]
            if self._collected[partition]:
                self._flush_soon()
            batch.finish(outcome)

    def _drop_collected(self, older_than_s: float) -> None:
        """Gives up record batches that the producer did not take in time."""
        for collected in self._collected.values():
            while collected and collected[0].began_s < older_than_s:
                collected.popleft().finish(Outcome.NOT_APPENDED)

    # ---- the connection

    async def _connect(self) -> None:
        self._answers = self._failed = False
        self._producer, self._consumer = self._make_producer(), self._make_consumer()
        try:
            async with asyncio.timeout(REQUEST_MS / 1000):
                await self._producer.start()
                await self._consumer.start()
                await self._look()
        except BaseException:
            await self._dispose()
            raise

    async def _dispose(self) -> None:
        """Closes the clients within three times `CLOSE_S`, and ends all appends."""
        self._answers = False
        producer, self._producer = self._producer, None
        consumer, self._consumer = self._consumer, None
        if producer is not None:
            stopping = asyncio.create_task(producer.stop())
            if not (await asyncio.wait({stopping}, timeout=CLOSE_S))[0]:  # `stop` waits without limit for its last records
                producer._sender.sender_task.cancel()
                await producer.client.close()
                await asyncio.wait({stopping}, timeout=CLOSE_S)
                stopping.cancel()
        for future in list(self._pending):
            future.cancel()
        self._drop_collected(float("inf"))
        if consumer is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await consumer.stop()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(PROBE_S)
            self._drop_collected(time.monotonic() - QUEUE_S)
            before = self._answers
            try:
                await self._check()
            except (KafkaError, TimeoutError, OSError):
                self._answers = False
            except Exception:  # without this task the gateway would never be ready again
                log.exception("internal error")
                self._answers = False
            if self._answers != before:
                log.warning("the log answers again" if self._answers else "the log does not answer", topic=self._topic)

    async def _check(self) -> None:
        """Health check: looks at the log, and replaces a producer that can no longer deliver."""
        oldest = next(iter(self._pending.values()), None)
        # connect to the bootstrap address again if idle: the brokers may have new addresses
        idle = not self._answers and oldest is None
        if self._failed or idle or (oldest is not None and time.monotonic() - oldest > GIVE_UP_S):
            await self._dispose()
        if self._producer is None:
            await self._connect()
        else:
            await self._look()

    async def _look(self) -> None:
        """Finds the partitions and their first records, and appends missing markers."""
        assert self._producer is not None
        assert self._consumer is not None
        answers = False
        for _ in range(3):  # in a new topic, one look before the markers, one before partition 0's marker and one after it
            began_ms = self._now_ms()
            async with asyncio.timeout(ANSWER_S):
                answers = bool(await self._producer.client.force_metadata_update())
                n_partitions = max(await self._producer.partitions_for(self._topic)) + 1
                self._view = View(began_ms, await first_appends(self._consumer, self._topic, n_partitions))
                marking = [await self._mark(self._producer, partition) for partition in self._view.unmarked()]
                if self._view.settled or not marking:
                    break  # nobody waits for the marker of an added partition: its broker may be away
                await asyncio.gather(*marking)
        self._answers = answers
        if not self._view.settled:
            log.info("the topic is too new", topic=self._topic)

    async def _mark(self, producer: AIOKafkaProducer, partition: int) -> asyncio.Future[Any]:
        """Starts to append a marker, unless one is on its way."""
        marker = self._markers.get(partition)
        if marker is None or marker.done():
            marker = self._markers[partition] = await producer.send(self._topic, b"", partition=partition)
            marker.add_done_callback(lambda done: done.cancelled() or done.exception())  # marks an error as retrieved
        return marker


async def first_appends(consumer: AIOKafkaConsumer, topic: str, n_partitions: int) -> list[int | None]:
    """Returns the append time of the first record of every partition, in ms since 1970.

    The time is `OLD_MS` if the first record is deleted, and None if the partition never had a record.
    """
    partitions = [TopicPartition(topic, partition) for partition in range(n_partitions)]
    found = await consumer.offsets_for_times(dict.fromkeys(partitions, 0))
    starts = await consumer.beginning_offsets([partition for partition in partitions if found[partition] is None])
    firsts = list[int | None]()
    for partition in partitions:
        first = found[partition]
        start = starts[partition] if first is None else first.offset
        firsts.append(OLD_MS if start > 0 else None if first is None else first.timestamp)
    return firsts
