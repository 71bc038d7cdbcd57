"""Tests the gateway's Kafka log, with a fake producer and a fake consumer."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError, OutOfOrderSequenceNumber
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.structs import OffsetAndTimestamp

from producers.gateway import kafka_log
from producers.gateway.kafka_log import KafkaLog, Keyed, NotAppended
from producers.gateway.partitions import OLD_MS, SETTLED_MS, VIEW_MS
from producers.gateway.record_batches import MAX_BATCH, MAX_BATCH_BYTES, Outcome, RecordBatch
from producers.gateway.report_keys import batch_keys
from runtime.topics import OVERHEAD_BYTES
from surveys.envelope import MAX_ENVELOPE_BYTES

from .gateway_rig import NOW, STEP, SURVEY

Record = tuple[bytes | None, list[tuple[str, bytes | None]]]


class Topic:
    """A reports topic: the number of partitions, the first offset and its append time, and the appended record batches."""

    def __init__(self, n_partitions: int = 3) -> None:
        self.first: dict[int, tuple[int, int] | None] = dict.fromkeys(range(n_partitions), (0, NOW - 60_000))
        self.starts: dict[int, int] = {}
        self.now_ms = NOW
        self.batches: list[tuple[int, list[Record]]] = []
        self.markers: list[int] = []
        self.away: set[int] = set()  # partitions that acknowledge no marker

    def values(self) -> list[list[bytes | None]]:
        return [[value for value, _ in records] for _, records in self.batches]


class FakeProducer:
    """A producer that acknowledges, never acknowledges or fails; the test chooses."""

    made: list["FakeProducer"]
    topic: Topic

    def __init__(self) -> None:
        self.made.append(self)
        self.start_error: Exception | None = None
        self.queue_error: Exception | None = None
        self.ack_error: Exception | None = None
        self.answers, self.full, self.holds, self.stopped = True, False, False, False
        self.held: list[asyncio.Future[None]] = []
        self.client, self._sender = self, self
        self.sender_task = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        if self.start_error is not None:
            raise self.start_error

    async def partitions_for(self, topic: str) -> set[int]:
        return set(self.topic.first)

    async def force_metadata_update(self) -> bool:
        return self.answers

    async def send(self, topic: str, value: bytes, partition: int) -> asyncio.Future[None]:
        assert value == b""
        self.topic.markers.append(partition)
        if partition in self.topic.away:
            return asyncio.get_running_loop().create_future()
        self.topic.first[partition] = (0, self.topic.now_ms)
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def send_batch(self, builder: Any, topic: str, *, partition: int) -> asyncio.Future[None]:
        if self.full:
            await asyncio.sleep(60)
        if self.queue_error is not None:
            raise self.queue_error
        future = asyncio.get_running_loop().create_future()
        if self.ack_error is not None:
            future.set_exception(self.ack_error)
            return future
        records = DefaultRecordBatch(bytearray(builder._build()))
        self.topic.batches.append((partition, [(record.value, list(record.headers)) for record in records]))
        if self.holds:
            self.held.append(future)
        else:
            future.set_result(None)
        return future

    async def stop(self) -> None:
        self.stopped = True
        if self.holds:
            await self.sender_task

    async def close(self) -> None:
        pass


class FakeConsumer:
    topic: Topic

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def offsets_for_times(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        assert set(times.values()) == {0}
        found = {partition: self.topic.first[partition.partition] for partition in times}
        return {partition: None if first is None else OffsetAndTimestamp(*first) for partition, first in found.items()}

    async def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.topic.starts.get(partition.partition, 0) for partition in partitions}


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    """Shortens the log's intervals, and lifts its time limits for a busy machine. Returns the topic of all clients."""
    for name in ("PROBE_S", "CLOSE_S", "LINGER_S"):
        monkeypatch.setattr(kafka_log, name, 0.02)
    for name in ("ANSWER_S", "QUEUE_S", "OVERDUE_S"):
        monkeypatch.setattr(kafka_log, name, 600.0)
    topic = Topic()
    monkeypatch.setattr(FakeProducer, "made", [], raising=False)
    for fake in (FakeProducer, FakeConsumer):
        monkeypatch.setattr(fake, "topic", topic, raising=False)
    return topic


async def started(make: Callable[[], Any] = FakeProducer, ready: bool = True) -> KafkaLog:
    log = KafkaLog(SURVEY, make, FakeConsumer, lambda: FakeConsumer.topic.now_ms)
    await log.start()
    assert log.ready == ready
    return log


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the condition did not become true")


def begin(log: KafkaLog, envelopes: list[bytes], keyed: Keyed | None = None) -> asyncio.Future[Outcome]:
    outcome = asyncio.get_running_loop().create_future()
    log.append(envelopes, keyed, outcome.set_result)
    return outcome


def keyed(number: int = 0, step: int = STEP, now_ms: int = NOW) -> Keyed:
    return Keyed(number.to_bytes(12) + bytes(4), step, now_ms)


# ---- records


async def test_requests_of_a_moment_share_record_batches(topic: Topic) -> None:
    log = await started()
    outcomes = [begin(log, values) for values in ([b"a"], [b"b", b"c"], [b"d"])]
    outcomes += [begin(log, [b"e"], keyed(4)), begin(log, [b"f", b"g"], keyed(4))]
    assert set(await asyncio.gather(*outcomes)) == {Outcome.APPENDED}
    key = keyed(4).hashed
    one, other = batch_keys(key, 2)
    assert sorted(topic.batches) == [
        (0, [(value, []) for value in (b"a", b"b", b"c", b"d")]),
        (1, [(b"e", [("key", key)]), (b"f", [("key", one)]), (b"g", [("key", other)])]),
    ]
    await log.close()
    assert FakeProducer.made[0].stopped
    with pytest.raises(NotAppended):
        begin(log, [b"e"])


async def test_requests_without_a_key_go_to_all_partitions(topic: Topic) -> None:
    log = await started()
    for _ in range(6):
        assert await begin(log, [b"a"]) is Outcome.APPENDED
    assert sorted(partition for partition, _ in topic.batches) == [0, 0, 1, 1, 2, 2]
    await log.close()


async def test_a_full_record_batch_is_followed_by_another(topic: Topic) -> None:
    log = await started()
    large = bytes(MAX_ENVELOPE_BYTES)
    outcomes = [begin(log, values, keyed()) for values in ([b"a"], [large], [b"b", b"c"], [large, b"d"][:1])]
    assert set(await asyncio.gather(*outcomes)) == {Outcome.APPENDED}
    assert topic.values() == [[b"a"], [large], [b"b", b"c"], [large]]
    await log.close()


def test_the_largest_request_fits_a_record_batch() -> None:
    """A record batch takes the largest batch of the smallest records and the largest envelope, with keys."""
    small = [bytes(MAX_BATCH_BYTES // MAX_BATCH - 2)] * MAX_BATCH
    for envelopes in (small, [bytes(MAX_ENVELOPE_BYTES)], [bytes(MAX_BATCH_BYTES // 2)] * 2):
        batch = RecordBatch(0.0)
        assert batch.add(envelopes, batch_keys(b"h" * 16, len(envelopes)), lambda _: None)
        assert batch.builder.record_count() == len(envelopes)
        assert batch.builder.size() <= MAX_ENVELOPE_BYTES + OVERHEAD_BYTES
        assert not batch.add([bytes(MAX_BATCH_BYTES)], None, lambda _: None)


async def test_a_partition_gets_one_record_batch_at_a_time(topic: Topic) -> None:
    log = await started()
    FakeProducer.made[0].holds = True
    first = begin(log, [b"a"], keyed())
    await until(lambda: len(topic.batches) == 1)
    rest = [begin(log, [bytes([number])], keyed()) for number in range(9)]
    for future in FakeProducer.made[0].held:
        future.set_result(None)
    assert await first is Outcome.APPENDED
    await until(lambda: len(topic.batches) == 2)
    FakeProducer.made[0].holds = False
    FakeProducer.made[0].held[1].set_result(None)
    assert set(await asyncio.gather(*rest)) == {Outcome.APPENDED}
    assert topic.values() == [[b"a"], [bytes([number]) for number in range(9)]]
    await log.close()


# ---- partitions


async def test_partitions_without_a_record_get_a_marker(topic: Topic) -> None:
    topic.first = {0: None, 1: None, 2: None}
    log = await started(ready=False)
    assert topic.markers == [1, 2, 0]
    topic.now_ms += SETTLED_MS
    await until(lambda: log.ready)
    topic.first |= {3: None, 4: (0, topic.now_ms)}  # added partitions
    await until(lambda: topic.markers == [1, 2, 0, 3])
    assert await begin(log, [b"a"], keyed(5, now_ms=topic.now_ms)) is Outcome.APPENDED
    assert topic.batches[0][0] < 3  # the step opened before the markers
    await log.close()


async def test_an_added_partition_without_its_brokers_stops_no_request(topic: Topic) -> None:
    log = await started()
    topic.first[3], topic.away = None, {3}
    await until(lambda: topic.markers == [3])
    looks = log._view.began_ms
    topic.now_ms += 1
    await until(lambda: log._view.began_ms > looks)
    assert log.ready
    assert await begin(log, [b"a"], keyed()) is Outcome.APPENDED
    assert topic.markers == [3]  # one marker waits; no second one
    await log.close()


async def test_a_new_topic_without_its_brokers_holds_up_no_start_and_no_end(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka's `stop` waits without limit for records that nobody acknowledges."""
    monkeypatch.setattr(kafka_log, "ANSWER_S", 0.02)
    topic.first, topic.away = {0: None}, {0}

    def make() -> FakeProducer:
        producer = FakeProducer()
        producer.holds = True
        return producer

    log = await started(make, ready=False)
    await until(lambda: len(FakeProducer.made) > 2)
    assert FakeProducer.made[0].stopped
    assert not log._pending
    await log.close()


async def test_deleted_records_make_a_partition_old(topic: Topic) -> None:
    topic.first, topic.starts = {0: (7, NOW), 1: None, 2: (0, NOW)}, {1: 7}
    log = await started()
    assert log._view.first_ms == (OLD_MS, OLD_MS, NOW)
    assert topic.markers == []
    await log.close()


async def test_an_old_look_is_not_used(topic: Topic) -> None:
    log = await started()
    with pytest.raises(NotAppended):
        begin(log, [b"a"], keyed(now_ms=NOW + VIEW_MS + 1))
    await log.close()


# ---- failures


async def test_an_envelope_that_was_not_queued_is_not_appended(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await started()
    FakeProducer.made[0].queue_error = KafkaTimeoutError()
    assert await begin(log, [b"a"]) is Outcome.NOT_APPENDED
    FakeProducer.made[0].queue_error, FakeProducer.made[0].full = None, True
    with monkeypatch.context() as limited:
        limited.setattr(kafka_log, "QUEUE_S", 0.02)
        assert await begin(log, [b"a"]) is Outcome.NOT_APPENDED
    FakeProducer.made[0].full = False
    assert await begin(log, [b"b"]) is Outcome.APPENDED
    assert topic.values() == [[b"b"]]
    await log.close()


async def test_a_request_behind_a_slow_record_batch_is_not_appended(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await started()
    FakeProducer.made[0].holds = True
    first = begin(log, [b"a"], keyed())
    await until(lambda: len(topic.batches) == 1)
    monkeypatch.setattr(kafka_log, "QUEUE_S", 0.02)
    assert await begin(log, [b"b"], keyed()) is Outcome.NOT_APPENDED
    FakeProducer.made[0].held[0].set_result(None)
    assert await first is Outcome.APPENDED
    assert topic.values() == [[b"a"]]
    FakeProducer.made[0].holds = False
    await log.close()


async def test_a_failed_producer_is_replaced(topic: Topic) -> None:
    log, made = await started(), FakeProducer.made
    made[0].ack_error = OutOfOrderSequenceNumber()
    outcomes = [begin(log, [b"a"]), begin(log, [b"a", b"b"], keyed())]
    assert set(await asyncio.gather(*outcomes)) == {Outcome.UNKNOWN}
    await until(lambda: len(made) == 2 and log.ready)
    assert await begin(log, [b"a"]) is Outcome.APPENDED
    assert made[0].stopped
    assert topic.values() == [[b"a"]]
    await log.close()


async def test_the_log_notices_an_unreachable_broker_and_its_recovery(topic: Topic) -> None:
    failing: list[bool] = []

    def make() -> FakeProducer:
        producer = FakeProducer()
        if failing:
            producer.start_error = KafkaConnectionError()
        return producer

    log, made = await started(make), FakeProducer.made
    failing.append(True)
    made[0].answers = False
    await until(lambda: not log.ready)
    with pytest.raises(NotAppended):
        begin(log, [b"a"])
    await until(lambda: len(made) > 3)
    assert not log.ready
    failing.clear()
    await until(lambda: log.ready)
    assert await begin(log, [b"a"]) is Outcome.APPENDED
    await log.close()
    failing.append(True)
    away_at_the_start = await started(make, ready=False)
    failing.clear()
    await until(lambda: away_at_the_start.ready)
    await away_at_the_start.close()


async def test_the_log_is_not_ready_while_an_acknowledgement_is_late(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await started()
    monkeypatch.setattr(kafka_log, "OVERDUE_S", 0.05)
    FakeProducer.made[0].holds = True
    waiting = begin(log, [b"a"])
    await until(lambda: bool(log._pending) and not log.ready)
    with pytest.raises(NotAppended):
        begin(log, [b"b"])
    FakeProducer.made[0].held[0].set_result(None)
    assert await waiting is Outcome.APPENDED
    assert log.ready
    FakeProducer.made[0].holds = False
    await log.close()


@pytest.mark.parametrize("ended", ["closed", "given up"])
async def test_a_pending_append_is_unknown_when_its_producer_ends(
    ended: str, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await started()
    FakeProducer.made[0].holds = True
    waiting = begin(log, [b"a"], keyed())
    await until(lambda: bool(log._pending))
    behind = begin(log, [b"b"], keyed())
    if ended == "closed":
        await log.close()
    else:
        monkeypatch.setattr(kafka_log, "GIVE_UP_S", 0.05)
    assert await waiting is Outcome.UNKNOWN
    assert await behind is Outcome.NOT_APPENDED
    assert FakeProducer.made[0].stopped
    await log.close()


async def test_a_request_that_cannot_be_answered_does_not_keep_the_others_waiting(topic: Topic) -> None:
    log = await started()

    def fail(_: Outcome) -> None:
        raise ZeroDivisionError

    log.append([b"a"], keyed(), fail)
    assert await begin(log, [b"b"], keyed()) is Outcome.APPENDED
    await log.close()
