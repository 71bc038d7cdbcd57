"""The reports topic of a survey as the gateway's log.

Each append has one of three outcomes: acknowledged (in the log once), not appended, or unknown.
"""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import RecordMetadata

from ldpstream.engines.gateway_log import Done, Keyed, Outcome
from ldpstream.engines.kafka.gateway_clients import Clients
from ldpstream.engines.kafka.partitions import OLD_MS, Unsettled, View
from ldpstream.engines.kafka.topics import OVERHEAD_BYTES
from ldpstream.surveys import Survey
from ldpstream.surveys.envelope import MAX_ENVELOPE_BYTES
from ldpstream.surveys.report_key import HEADER, KeyRoom, batch_keys

log = structlog.get_logger("ldpstream.gateway")

LINGER_S = 0.01  # time in which requests are collected
QUEUE_S = 3.0  # longest wait of a record batch for the producer
OVERDUE_S = 2.0  # the topic is not ready while an acknowledgement takes longer than this
LOG_APPEND_TIME = 1  # Kafka's number of this type of timestamp
ANSWER_S = 3.0  # time limit of a look at the partitions
RECORD_BYTES = 36  # upper bound of a record's size without its value


class RecordBatch:
    """Records for one partition, in one append: the envelopes of many requests.

    All envelopes of a request are in one record batch: the log has all of them or none. The producer's timestamps are 0: true
    timestamps would tell when each request arrived.
    """

    def __init__(self, began_s: float) -> None:
        self.builder = BatchBuilder(MAX_ENVELOPE_BYTES + OVERHEAD_BYTES, 0)
        self.began_s = began_s
        self._size = 0
        self._waiting: list[Done] = []

    def add(self, envelopes: Sequence[bytes], keys: Sequence[bytes] | None, done: Done) -> bool:
        """Adds the envelopes of a request; returns False, and adds nothing, if they do not fit."""
        size = sum(map(len, envelopes)) + RECORD_BYTES * len(envelopes)
        if self._size and self._size + size > MAX_ENVELOPE_BYTES:
            return False
        self._size += size
        headers = [[]] * len(envelopes) if keys is None else [[(HEADER, key)] for key in keys]
        for envelope, header in zip(envelopes, headers, strict=True):
            if self.builder.append(timestamp=0, key=None, value=envelope, headers=header) is None:
                raise RuntimeError("aiokafka's record batch is smaller than the sizes of its records")
        self._waiting.append(done)
        return True

    def finish(self, outcome: Outcome, appended_ms: int | None = None) -> None:
        """Tells all requests their outcome and append time."""
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            try:
                done(outcome, appended_ms)
            except Exception:  # the other requests must get their answers
                log.exception("internal error")


class GatewayTopic:
    """The reports topic of a survey as the survey's log.

    Requests with a key go to the partition that every gateway chooses for them (`engines.kafka.partitions`). Requests
    without a key that wait together go to one partition; each such group takes the next partition that ever had a record.

    Attributes:
        answers: True if the last look at the partitions succeeded; None before the first look, and while there are no clients.
        failed: True if a batch that the producer took has failed since the last change of clients.
    """

    def __init__(self, survey: Survey) -> None:
        self.topic, self._survey = survey.reports_topic, survey
        self.answers: bool | None = None
        self.failed = self._closed = False
        self._clients: Clients | None = None
        self._view = View(0, [])
        self._turn = 0
        self._rooms: defaultdict[int, KeyRoom] = defaultdict(KeyRoom)  # by partition; this gateway's keys since its start
        self._collected: defaultdict[int, deque[RecordBatch]] = defaultdict(deque)  # by partition, oldest first
        self._sending: dict[int, asyncio.Task[None]] = {}  # by partition
        self._timer: asyncio.TimerHandle | None = None
        self._pending: dict[asyncio.Future[Any], float] = {}  # appends not yet acknowledged, oldest first -> time of sending
        self._markers: dict[int, asyncio.Future[Any]] = {}  # the last marker of each partition that needed one
        self._looking: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        if self._closed or self.failed or self._clients is None or not self.answers or not self._view.settled:
            return False
        return self.waits_s() < OVERDUE_S

    def waits_s(self) -> float:
        """Returns how long the oldest append has waited for its acknowledgement, in seconds; 0 if none. Any thread may ask."""
        oldest = min(self._pending.values(), default=None)
        return 0.0 if oldest is None else time.monotonic() - oldest

    # ---- appends

    def append(self, envelopes: Sequence[bytes], keyed: Keyed | None, done: Done) -> None:
        if not self.ready:
            done(Outcome.NOT_APPENDED, None)
            return
        keys = None
        if keyed is None:
            partition = self._view.with_records[self._turn % len(self._view.with_records)]
        else:
            try:
                partition = self._view.partition(self._survey, keyed.step, keyed.hashed, keyed.now_ms)
            except Unsettled:
                done(Outcome.NOT_APPENDED, None)
                return
            if not self._rooms[partition].take(self._survey.step_at(keyed.now_ms), len(envelopes)):
                done(Outcome.KEYS_FULL, None)
                return
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
        self._timer = None
        self._turn += 1
        if self._clients is None or self.failed:
            return
        for partition, collected in self._collected.items():
            if collected and partition not in self._sending:
                self._sending[partition] = asyncio.create_task(self._send(self._clients, partition, collected.popleft()))

    async def _send(self, clients: Clients, partition: int, batch: RecordBatch) -> None:
        outcome, appended_ms = Outcome.NOT_APPENDED, None
        try:
            async with asyncio.timeout(QUEUE_S):
                future = await clients.producer.send_batch(batch.builder, self.topic, partition=partition)
            outcome = Outcome.UNKNOWN
            self._pending[future] = time.monotonic()
            clients.pending.add(future)
            try:
                appended_ms = append_time(await future)
                outcome = Outcome.APPENDED
            finally:
                del self._pending[future]
                clients.pending.discard(future)
        except (KafkaError, TimeoutError) as error:
            self.failed |= outcome is Outcome.UNKNOWN and clients is self._clients
            log.error("not delivered", topic=self.topic, error=type(error).__name__)
        except asyncio.CancelledError:
            pass  # the producer was closed
        finally:
            del self._sending[partition]
            if self._collected[partition]:
                self._flush_soon()
            batch.finish(outcome, appended_ms)

    def drop_collected(self, older_than_s: float = float("inf")) -> None:
        """Gives up record batches that the producer did not take, and that began before this monotonic time."""
        for collected in self._collected.values():
            while collected and collected[0].began_s < older_than_s:
                collected.popleft().finish(Outcome.NOT_APPENDED)

    # ---- the connection

    def use(self, clients: Clients | None) -> None:
        """Appends through these clients from now on. With None, the record batches that wait are dropped."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        self._clients, self.failed = clients, False
        if clients is None:
            self.answers = None
            self.drop_collected()
        elif any(self._collected.values()):
            self._flush_soon()

    def close(self) -> None:
        """Takes no further append."""
        self._closed = True

    @property
    def idle(self) -> bool:
        return self._closed and not self._sending and not any(self._collected.values())

    def look(self, clients: Clients, began_ms: int) -> asyncio.Task[None]:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(clients, began_ms))
        return self._looking

    async def _look(self, clients: Clients, began_ms: int) -> None:
        first = not self._view.began_ms
        try:
            await self._find_partitions(clients, began_ms)
        except (KafkaError, TimeoutError, OSError):
            self._note(answers=False)
        except Exception:
            log.exception("internal error", topic=self.topic)
            self._note(answers=False)
        else:
            self._note(answers=True)
            if first and not self._view.settled:
                log.info("the topic is too new", topic=self.topic)

    def _note(self, answers: bool) -> None:
        if answers is not (self.answers is not False):
            log.error("the topic answers again" if answers else "the topic does not answer", topic=self.topic)
        self.answers = answers

    async def _find_partitions(self, clients: Clients, began_ms: int) -> None:
        found = clients.producer.client.cluster.partitions_for_topic(self.topic)
        if not found:
            raise UnknownTopicOrPartitionError(self.topic)
        for _ in range(3):  # in a new topic, one look before the markers, one before partition 0's marker and one after it
            async with asyncio.timeout(ANSWER_S):
                self._view = View(began_ms, await first_appends(clients.consumer, self.topic, max(found) + 1))
                marking = [await self._mark(clients.producer, partition) for partition in self._view.unmarked()]
                if self._view.settled or not marking:
                    break  # nobody waits for the marker of an added partition: its broker may be unreachable
                await asyncio.gather(*marking)

    async def _mark(self, producer: AIOKafkaProducer, partition: int) -> asyncio.Future[Any]:
        marker = self._markers.get(partition)
        if marker is None or marker.done():
            marker = self._markers[partition] = await producer.send(self.topic, b"", partition=partition)
            marker.add_done_callback(lambda done: done.cancelled() or done.exception())  # marks an error as retrieved
        return marker


def append_time(acknowledged: RecordMetadata) -> int | None:
    """Returns the append time of an acknowledged record batch, in ms since 1970.

    None if the broker did not tell it.
    """
    return acknowledged.timestamp if acknowledged.timestamp_type == LOG_APPEND_TIME else None


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
