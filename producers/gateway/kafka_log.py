"""The gateway's producer. Each append has one of three outcomes: acknowledged (in the log once), not appended, or unknown.

The gateway uses aiokafka's producer; `producers.sinks` uses kafka-python's producer. An event loop suits the gateway, because
thousands of requests may wait for their acknowledgements at once. kafka-python's thread needs three times the processor time
per acknowledgement: 22 to 32 µs against 7 to 9 µs, for envelopes of one report and 64 to 256 requests at once. For envelopes of
16 KiB both producers need the same time.

aiokafka's idempotent producer never drops an envelope: while the broker is unreachable the producer retries in order, without
duplicates. An envelope that was not acknowledged in time may thus reach the log later. The answer is then "outcome unknown". If
the client then sends the envelope as a new request, the log may contain the envelope twice. `ready` therefore turns false as
soon as the broker is known to be unreachable, and the gateway refuses new envelopes before they are queued.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from runtime.settings import Settings
from surveys.envelope import MAX_ENVELOPE_BYTES

log = structlog.get_logger("ldpstream.gateway")

MAX_BATCH = 10_000  # largest number of envelopes in one append
MAX_BATCH_BYTES = 750_000  # largest size of one append, which fits one record batch with up to 21 bytes of overhead a record
REQUEST_MS = 10_000
QUEUE_S = 3.0  # longest wait for room in the producer's batches
OVERDUE_S = 2.0  # the gateway is not ready while an acknowledgement takes longer than this
PROBE_S = 1.0  # time between two health checks of the broker
ANSWER_S = 3.0  # time limit of a health check
GIVE_UP_S = 120.0  # longest wait for an acknowledgement before the producer is replaced
CLOSE_S = 1.5


class NotAppended(Exception):
    """The envelopes are not in the log and never will be."""


class Unacknowledged(Exception):
    """The envelopes may be in the log, or may reach the log later."""


class GatewayLog(Protocol):
    """The log that the gateway appends to."""

    @property
    def ready(self) -> bool:
        """True if the log answers."""

    async def append(self, envelopes: Sequence[bytes]) -> None:
        """Appends 1 to `MAX_BATCH` envelopes, all or none; returns when every in-sync replica has them.

        Raises:
            NotAppended: if no envelope is in the log.
            Unacknowledged: if the envelopes may be in the log or reach the log later.
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


class KafkaLog:
    """A Kafka topic as the gateway's log. Each envelope is a record without a key; partitions get records round-robin.

    The producer sends several envelopes as one record batch, which the broker appends as a whole or not at all. `KafkaLog`
    replaces a producer that failed to deliver: after a gap in the producer's sequence numbers, the broker accepts nothing more
    from this producer.

    Args:
        topic: an existing topic that accepts record batches of `MAX_ENVELOPE_BYTES` and their header.
        make_producer: makes an idempotent producer.
    """

    def __init__(self, topic: str, make_producer: Callable[[], AIOKafkaProducer]) -> None:
        self._topic, self._make_producer = topic, make_producer
        self._producer: AIOKafkaProducer | None = None
        self._partitions: list[int] = []
        self._turn = 0
        self._answers = False  # result of the last health check
        self._failed = False
        self._pending: dict[asyncio.Future[Any], float] = {}  # appends not yet acknowledged, oldest first -> time of sending
        self._watching: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        if self._producer is None or not self._answers:
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

        Appends still pending raise Unacknowledged.
        """
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching}, timeout=CLOSE_S)
        await self._dispose()

    async def append(self, envelopes: Sequence[bytes]) -> None:
        if self._producer is None or not self.ready:
            raise NotAppended("the log does not answer")
        self._turn += 1
        partition = self._partitions[self._turn % len(self._partitions)]
        try:
            async with asyncio.timeout(QUEUE_S):
                future = await self._queue(self._producer, partition, envelopes)
        except (KafkaError, TimeoutError) as error:
            raise NotAppended(type(error).__name__) from error
        self._pending[future] = time.monotonic()
        try:
            await future
        except KafkaError as error:
            self._failed = True
            log.error("not delivered", topic=self._topic, error=type(error).__name__)
            raise Unacknowledged(type(error).__name__) from error
        except asyncio.CancelledError:
            raise Unacknowledged("the producer was closed") from None
        finally:
            del self._pending[future]

    async def _queue(self, producer: AIOKafkaProducer, partition: int, envelopes: Sequence[bytes]) -> asyncio.Future[Any]:
        """Queues the envelopes and returns the acknowledgement's future. After an error, nothing was queued."""
        if len(envelopes) == 1:
            return cast(asyncio.Future[Any], await producer.send(self._topic, envelopes[0], partition=partition))
        batch = producer.create_batch()
        for envelope in envelopes:
            if batch.append(timestamp=None, key=None, value=envelope) is None:
                raise NotAppended(f"{len(envelopes)} envelopes do not fit one record batch")
        return cast(asyncio.Future[Any], await producer.send_batch(batch, self._topic, partition=partition))

    # ---- the producer's connection

    async def _connect(self) -> None:
        producer = self._make_producer()
        try:
            async with asyncio.timeout(REQUEST_MS / 1000):
                await producer.start()
                self._partitions = sorted(await producer.partitions_for(self._topic))
        except BaseException:
            await producer.stop()  # does not wait, because nothing is queued
            raise
        self._producer, self._failed, self._answers = producer, False, True

    async def _dispose(self) -> None:
        producer, self._producer = self._producer, None
        if producer is None:
            return
        stopping = asyncio.create_task(producer.stop())
        if not (await asyncio.wait({stopping}, timeout=CLOSE_S))[0]:  # `stop` waits without limit for an unreachable broker
            producer._sender.sender_task.cancel()
            await producer.client.close()
            await asyncio.wait({stopping}, timeout=CLOSE_S)
            stopping.cancel()
        for future in list(self._pending):
            future.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(PROBE_S)
            before = self._answers
            try:
                await self._look()
            except (KafkaError, TimeoutError, OSError):
                self._answers = False
            if self._answers != before:
                log.warning("the log answers again" if self._answers else "the log does not answer", topic=self._topic)

    async def _look(self) -> None:
        """Health check: checks that the broker answers, and replaces a producer that can no longer deliver."""
        oldest = next(iter(self._pending.values()), None)
        # connect to the bootstrap address again if idle: the brokers may have new addresses
        idle = not self._answers and oldest is None
        if self._failed or idle or (oldest is not None and time.monotonic() - oldest > GIVE_UP_S):
            self._answers = False
            await self._dispose()
        if self._producer is None:
            await self._connect()
        else:
            async with asyncio.timeout(ANSWER_S):
                self._answers = bool(await self._producer.client.force_metadata_update())
                self._partitions = sorted(await self._producer.partitions_for(self._topic))
