"""Tests the gateway's connection to Kafka and the logs of its topics, with a fake producer and a fake consumer."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import structlog
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError, OutOfOrderSequenceNumber
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.structs import OffsetAndTimestamp

from producers.gateway import kafka_clients, kafka_log, topic_log
from producers.gateway.kafka_log import KafkaLog
from producers.gateway.partitions import OLD_MS, SETTLED_MS, VIEW_MS
from producers.gateway.record_batches import MAX_BATCH, MAX_BATCH_BYTES, Outcome, RecordBatch
from producers.gateway.report_keys import batch_keys
from producers.gateway.topic_log import Keyed, NotAppended, TopicLog
from runtime.topics import OVERHEAD_BYTES
from surveys.envelope import MAX_ENVELOPE_BYTES
from tests.agents.samples import make_survey

from .gateway_rig import NOW, STEP, SURVEY

OTHER = make_survey("other")
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
        self.exists, self.hangs = True, False
        self.ack_error: Exception | None = None
        self.holds = False

    def values(self) -> list[list[bytes | None]]:
        return [[value for value, _ in records] for _, records in self.batches]


class FakeProducer:
    """A producer that acknowledges, never acknowledges or fails; the test chooses."""

    made: list["FakeProducer"]
    topics: dict[str, Topic]

    def __init__(self) -> None:
        self.made.append(self)
        self.start_error: Exception | None = None
        self.queue_error: Exception | None = None
        self.answers, self.full, self.holds, self.stopped = True, False, False, False
        self.held: list[asyncio.Future[None]] = []
        self.client = self.cluster = self._sender = self
        self.sender_task = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        if self.start_error is not None:
            raise self.start_error

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(self.topics[topic].first) if self.topics[topic].exists else None

    def set_topics(self, topics: set[str]) -> None:
        pass

    async def force_metadata_update(self) -> bool:
        return self.answers

    async def send(self, topic: str, value: bytes, partition: int) -> asyncio.Future[None]:
        assert value == b""
        self.topics[topic].markers.append(partition)
        if partition in self.topics[topic].away:
            return asyncio.get_running_loop().create_future()
        self.topics[topic].first[partition] = (0, self.topics[topic].now_ms)
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def send_batch(self, builder: Any, topic: str, *, partition: int) -> asyncio.Future[None]:
        if self.full:
            await asyncio.sleep(60)
        if self.queue_error is not None:
            raise self.queue_error
        future = asyncio.get_running_loop().create_future()
        if (error := self.topics[topic].ack_error) is not None:
            future.set_exception(error)
            return future
        records = DefaultRecordBatch(bytearray(builder._build()))
        self.topics[topic].batches.append((partition, [(record.value, list(record.headers)) for record in records]))
        if self.holds or self.topics[topic].holds:
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
    topics: dict[str, Topic]

    def __init__(self) -> None:
        self._client = self

    def set_topics(self, topics: set[str]) -> None:
        pass

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def offsets_for_times(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        assert set(times.values()) == {0}
        if any(self.topics[partition.topic].hangs for partition in times):
            await asyncio.get_running_loop().create_future()
        found = {partition: self.topics[partition.topic].first[partition.partition] for partition in times}
        return {partition: None if first is None else OffsetAndTimestamp(*first) for partition, first in found.items()}

    async def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.topics[partition.topic].starts.get(partition.partition, 0) for partition in partitions}


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    """Shortens the log's intervals, and lifts its time limits for a busy machine. Returns the topic of `SURVEY`."""
    for module, name in ((kafka_log, "PROBE_S"), (kafka_clients, "CLOSE_S"), (topic_log, "LINGER_S")):
        monkeypatch.setattr(module, name, 0.02)
    for name in ("ANSWER_S", "QUEUE_S", "OVERDUE_S"):
        monkeypatch.setattr(topic_log, name, 600.0)
    topic = Topic()
    topics = {SURVEY.reports_topic: topic, OTHER.reports_topic: Topic()}
    monkeypatch.setattr(FakeProducer, "made", [], raising=False)
    for fake in (FakeProducer, FakeConsumer):
        monkeypatch.setattr(fake, "topics", topics, raising=False)
    return topic


async def started(make: Callable[[], Any] = FakeProducer, ready: bool = True) -> tuple[TopicLog, KafkaLog]:
    kafka = KafkaLog(make, FakeConsumer, lambda: FakeConsumer.topics[SURVEY.reports_topic].now_ms)
    log = kafka.add(SURVEY)
    await kafka.start()
    assert log.ready == ready
    return log, kafka


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(48_000):  # minutes
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the condition did not become true")


def begin(log: TopicLog, envelopes: list[bytes], keyed: Keyed | None = None) -> asyncio.Future[Outcome]:
    outcome = asyncio.get_running_loop().create_future()
    log.append(envelopes, keyed, outcome.set_result)
    return outcome


def keyed(number: int = 0, step: int = STEP, now_ms: int = NOW) -> Keyed:
    return Keyed(number.to_bytes(12) + bytes(4), step, now_ms)


# ---- records


async def test_requests_of_a_moment_share_record_batches(topic: Topic) -> None:
    log, kafka = await started()
    outcomes = [begin(log, values) for values in ([b"a"], [b"b", b"c"], [b"d"])]
    outcomes += [begin(log, [b"e"], keyed(4)), begin(log, [b"f", b"g"], keyed(4))]
    assert set(await asyncio.gather(*outcomes)) == {Outcome.APPENDED}
    key = keyed(4).hashed
    one, other = batch_keys(key, 2)
    assert sorted(topic.batches) == [
        (0, [(value, []) for value in (b"a", b"b", b"c", b"d")]),
        (1, [(b"e", [("key", key)]), (b"f", [("key", one)]), (b"g", [("key", other)])]),
    ]
    await kafka.close()
    assert FakeProducer.made[0].stopped
    with pytest.raises(NotAppended):
        begin(log, [b"e"])


async def test_requests_without_a_key_go_to_all_partitions(topic: Topic) -> None:
    log, kafka = await started()
    for _ in range(6):
        assert await begin(log, [b"a"]) is Outcome.APPENDED
    assert sorted(partition for partition, _ in topic.batches) == [0, 0, 1, 1, 2, 2]
    await kafka.close()


async def test_a_full_record_batch_is_followed_by_another(topic: Topic) -> None:
    log, kafka = await started()
    large = bytes(MAX_ENVELOPE_BYTES)
    outcomes = [begin(log, values, keyed()) for values in ([b"a"], [large], [b"b", b"c"], [large, b"d"][:1])]
    assert set(await asyncio.gather(*outcomes)) == {Outcome.APPENDED}
    assert topic.values() == [[b"a"], [large], [b"b", b"c"], [large]]
    await kafka.close()


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
    log, kafka = await started()
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
    await kafka.close()


# ---- partitions


async def test_partitions_without_a_record_get_a_marker(topic: Topic) -> None:
    topic.first = {0: None, 1: None, 2: None}
    log, kafka = await started(ready=False)
    assert topic.markers == [1, 2, 0]
    topic.now_ms += SETTLED_MS
    await until(lambda: log.ready)
    topic.first |= {3: None, 4: (0, topic.now_ms)}  # added partitions
    await until(lambda: topic.markers == [1, 2, 0, 3])
    assert await begin(log, [b"a"], keyed(5, now_ms=topic.now_ms)) is Outcome.APPENDED
    assert topic.batches[0][0] < 3  # the step opened before the markers
    await kafka.close()


async def test_an_added_partition_without_its_brokers_stops_no_request(topic: Topic) -> None:
    log, kafka = await started()
    topic.first[3], topic.away = None, {3}
    await until(lambda: topic.markers == [3])
    looks = log._view.began_ms
    topic.now_ms += 1
    await until(lambda: log._view.began_ms > looks)
    assert log.ready
    assert await begin(log, [b"a"], keyed()) is Outcome.APPENDED
    assert topic.markers == [3]  # one marker waits; no second one
    await kafka.close()


async def test_a_new_topic_without_its_brokers_holds_up_no_start_and_no_end(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka's `stop` waits without limit for records that nobody acknowledges."""
    monkeypatch.setattr(topic_log, "ANSWER_S", 0.02)
    topic.first, topic.away = {0: None}, {0}

    def make() -> FakeProducer:
        producer = FakeProducer()
        producer.holds = True
        return producer

    log, kafka = await started(make, ready=False)
    await until(lambda: len(FakeProducer.made) > 2)
    assert FakeProducer.made[0].stopped
    assert not log._pending
    await kafka.close()


async def test_deleted_records_make_a_partition_old(topic: Topic) -> None:
    topic.first, topic.starts = {0: (7, NOW), 1: None, 2: (0, NOW)}, {1: 7}
    log, kafka = await started()
    assert log._view.first_ms == (OLD_MS, OLD_MS, NOW)
    assert topic.markers == []
    await kafka.close()


async def test_an_old_look_is_not_used(topic: Topic) -> None:
    log, kafka = await started()
    with pytest.raises(NotAppended):
        begin(log, [b"a"], keyed(now_ms=NOW + VIEW_MS + 1))
    await kafka.close()


# ---- failures


async def test_an_envelope_that_was_not_queued_is_not_appended(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    log, kafka = await started()
    FakeProducer.made[0].queue_error = KafkaTimeoutError()
    assert await begin(log, [b"a"]) is Outcome.NOT_APPENDED
    FakeProducer.made[0].queue_error, FakeProducer.made[0].full = None, True
    with monkeypatch.context() as limited:
        limited.setattr(topic_log, "QUEUE_S", 0.02)
        assert await begin(log, [b"a"]) is Outcome.NOT_APPENDED
    FakeProducer.made[0].full = False
    assert await begin(log, [b"b"]) is Outcome.APPENDED
    assert topic.values() == [[b"b"]]
    await kafka.close()


async def test_a_request_behind_a_slow_record_batch_is_not_appended(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    log, kafka = await started()
    FakeProducer.made[0].holds = True
    first = begin(log, [b"a"], keyed())
    await until(lambda: len(topic.batches) == 1)
    monkeypatch.setattr(topic_log, "QUEUE_S", 0.02)
    assert await begin(log, [b"b"], keyed()) is Outcome.NOT_APPENDED
    FakeProducer.made[0].held[0].set_result(None)
    assert await first is Outcome.APPENDED
    assert topic.values() == [[b"a"]]
    FakeProducer.made[0].holds = False
    await kafka.close()


async def test_a_failed_producer_is_replaced(topic: Topic) -> None:
    (log, kafka), made = await started(), FakeProducer.made
    topic.ack_error = OutOfOrderSequenceNumber()
    outcomes = [begin(log, [b"a"]), begin(log, [b"a", b"b"], keyed())]
    assert set(await asyncio.gather(*outcomes)) == {Outcome.UNKNOWN}
    topic.ack_error = None
    await until(lambda: len(made) == 2 and log.ready)
    assert await begin(log, [b"a"]) is Outcome.APPENDED
    await until(lambda: made[0].stopped)
    assert topic.values() == [[b"a"]]
    await kafka.close()


async def test_the_log_notices_an_unreachable_broker_and_its_recovery(topic: Topic) -> None:
    failing: list[bool] = []

    def make() -> FakeProducer:
        producer = FakeProducer()
        if failing:
            producer.start_error = KafkaConnectionError()
        return producer

    (log, kafka), made = await started(make), FakeProducer.made
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
    await kafka.close()
    failing.append(True)
    away_at_the_start, other = await started(make, ready=False)
    failing.clear()
    await until(lambda: away_at_the_start.ready)
    await other.close()


async def test_the_log_is_not_ready_while_an_acknowledgement_is_late(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    log, kafka = await started()
    monkeypatch.setattr(topic_log, "OVERDUE_S", 0.05)
    FakeProducer.made[0].holds = True
    waiting = begin(log, [b"a"])
    await until(lambda: bool(log._pending) and not log.ready)
    with pytest.raises(NotAppended):
        begin(log, [b"b"])
    FakeProducer.made[0].held[0].set_result(None)
    assert await waiting is Outcome.APPENDED
    assert log.ready
    FakeProducer.made[0].holds = False
    await kafka.close()


@pytest.mark.parametrize("ended", ["closed", "given up"])
async def test_a_pending_append_is_unknown_when_its_producer_ends(
    ended: str, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, kafka = await started()
    FakeProducer.made[0].holds = True
    waiting = begin(log, [b"a"], keyed())
    await until(lambda: bool(log._pending))
    behind = begin(log, [b"b"], keyed())
    if ended == "closed":
        await kafka.close()
    else:
        monkeypatch.setattr(kafka_log, "GIVE_UP_S", 0.05)
    assert await waiting is Outcome.UNKNOWN
    assert await behind is (Outcome.NOT_APPENDED if ended == "closed" else Outcome.APPENDED)  # by the next producer
    await until(lambda: FakeProducer.made[0].stopped)
    await kafka.close()


async def test_a_request_that_cannot_be_answered_does_not_keep_the_others_waiting(topic: Topic) -> None:
    log, kafka = await started()

    def fail(_: Outcome) -> None:
        raise ZeroDivisionError

    log.append([b"a"], keyed(), fail)
    assert await begin(log, [b"b"], keyed()) is Outcome.APPENDED
    await kafka.close()


# ---- several surveys


async def test_all_surveys_share_the_clients(topic: Topic) -> None:
    log, kafka = await started()
    other = kafka.add(OTHER)
    assert not other.ready
    await until(lambda: other.ready)
    assert [await begin(one, [value]) for one, value in ((log, b"a"), (other, b"b"))] == [Outcome.APPENDED] * 2
    assert (topic.values(), FakeProducer.topics[OTHER.reports_topic].values()) == ([[b"a"]], [[b"b"]])
    assert len(FakeProducer.made) == 1
    await kafka.close()


async def test_a_missing_topic_stops_only_its_survey(topic: Topic) -> None:
    log, kafka = await started()
    other = kafka.add(OTHER)
    FakeProducer.topics[OTHER.reports_topic].exists = False
    with structlog.testing.capture_logs() as lines:
        await until(lambda: len(lines) > 0)
        topic.now_ms += 1
        await until(lambda: log._view.began_ms == topic.now_ms)
        assert (log.ready, other.ready, kafka.answers) == (True, False, True)
        FakeProducer.topics[OTHER.reports_topic].exists = True
        await until(lambda: other.ready and len(lines) > 1)
    assert [(line["event"], line["topic"]) for line in lines] == [
        ("the topic does not answer", OTHER.reports_topic), ("the topic answers again", OTHER.reports_topic)
    ]  # fmt: skip
    assert len(FakeProducer.made) == 1
    await kafka.close()


async def test_a_broker_without_any_of_our_topics_is_reachable(topic: Topic) -> None:
    """Otherwise a deleted topic would keep the gateway from starting a new survey."""
    log, kafka = await started()
    topic.exists = False
    await until(lambda: not kafka.answers)
    assert (log.ready, kafka.reachable) == (False, True)
    other = kafka.add(OTHER)
    await until(lambda: other.ready)
    assert (log.ready, kafka.answers) == (False, True)
    FakeProducer.made[-1].answers = False
    await until(lambda: not kafka.reachable)
    await kafka.close()


async def test_a_topic_without_an_answer_delays_no_look_at_another_topic(topic: Topic) -> None:
    log, kafka = await started()
    FakeProducer.topics[OTHER.reports_topic].hangs = True
    other = kafka.add(OTHER)
    await until(lambda: other._looking is not None)
    for _ in range(3):
        topic.now_ms += 1
        await until(lambda: log._view.began_ms == topic.now_ms)
        assert (log.ready, other.ready) == (True, False)
    await kafka.close()


async def test_a_failed_append_disturbs_no_append_of_another_survey(topic: Topic) -> None:
    """The gateway replaces the producer; the old one ends after the other survey's acknowledgement."""
    log, kafka = await started()
    other, made = kafka.add(OTHER), FakeProducer.made
    await until(lambda: other.ready)
    FakeProducer.topics[OTHER.reports_topic].holds = True
    waiting = begin(other, [b"a"])
    await until(lambda: len(made[0].held) == 1)
    topic.ack_error = OutOfOrderSequenceNumber()
    assert await begin(log, [b"b"]) is Outcome.UNKNOWN
    assert other.ready
    topic.ack_error = None
    await until(lambda: len(made) == 2 and log.ready)
    assert await begin(log, [b"c"]) is Outcome.APPENDED
    assert other.ready
    assert not made[0].stopped
    made[0].held[0].set_result(None)
    assert await waiting is Outcome.APPENDED
    await until(lambda: made[0].stopped)
    FakeProducer.topics[OTHER.reports_topic].holds = False
    assert await begin(other, [b"d"]) is Outcome.APPENDED
    await kafka.close()


async def test_a_removed_survey_takes_no_append_and_finishes_the_others(topic: Topic) -> None:
    log, kafka = await started()
    FakeProducer.made[0].holds = True
    first, second = begin(log, [b"a"], keyed()), begin(log, [b"b"], keyed(1))
    log.close()
    with pytest.raises(NotAppended):
        begin(log, [b"c"])
    await until(lambda: len(FakeProducer.made[0].held) == 2)
    assert kafka._topics == [log]  # a producer without the topic could not deliver
    again = kafka.add(SURVEY)
    await until(lambda: again.ready)
    for future in FakeProducer.made[0].held:
        future.set_result(None)
    FakeProducer.made[0].holds = False
    assert set(await asyncio.gather(first, second, begin(again, [b"c"]))) == {Outcome.APPENDED}
    await until(lambda: kafka._topics == [again])
    await kafka.close()
