"""Tests the gateway's connection to Kafka and the log of one topic, with a fake producer and a fake consumer."""

import asyncio
from collections import Counter
from random import Random

import pytest
from aiokafka.errors import KafkaTimeoutError, OutOfOrderSequenceNumber

from ldpstream.engines.gateway_log import MAX_BATCH, MAX_BATCH_BYTES, Outcome
from ldpstream.engines.kafka import gateway_topic, kafka_connection
from ldpstream.engines.kafka.gateway_topic import RecordBatch
from ldpstream.engines.kafka.partitions import OLD_MS, SETTLED_MS
from ldpstream.engines.kafka.topics import OVERHEAD_BYTES
from ldpstream.surveys.envelope import MAX_ENVELOPE_BYTES
from ldpstream.surveys.report_key import batch_keys

from .gateway_rig import NOW
from .kafka_log_rig import OTHER, FakeProducer, Topic, begin, keyed, started, until

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
    assert await begin(log, [b"e"]) is Outcome.NOT_APPENDED


async def test_no_record_tells_when_its_request_arrived(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker's append time is one for a record batch. The producer's own timestamps stay in the log beside it."""
    log, kafka = await started()
    monkeypatch.setattr(gateway_topic, "LINGER_S", 600.0)
    first = begin(log, [b"a"], keyed())
    await asyncio.sleep(0.002)
    second = begin(log, [b"b", b"c"], keyed())
    log._flush()
    assert await second is await first is Outcome.APPENDED
    assert topic.values() == [[b"a", b"b", b"c"]]
    assert topic.stamps == {0}
    await kafka.close()


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
        assert batch.add(envelopes, batch_keys(b"h" * 16, len(envelopes)), lambda *_: None)
        assert batch.builder.record_count() == len(envelopes)
        assert batch.builder.size() <= MAX_ENVELOPE_BYTES + OVERHEAD_BYTES
        assert not batch.add([bytes(MAX_BATCH_BYTES)], None, lambda *_: None)


async def test_a_partition_gets_one_record_batch_at_a_time(topic: Topic) -> None:
    log, kafka = await started()
    FakeProducer.made[0].holds = True
    first = begin(log, [b"a"], keyed())
    await until(lambda: len(topic.batches) == 1)
    rest = [begin(log, [bytes([number])], keyed()) for number in range(9)]
    for future in FakeProducer.made[0].held:
        future.set_result(topic.acknowledgement())
    assert await first is Outcome.APPENDED
    await until(lambda: len(topic.batches) == 2)
    FakeProducer.made[0].holds = False
    FakeProducer.made[0].held[1].set_result(topic.acknowledgement())
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
    monkeypatch.setattr(gateway_topic, "ANSWER_S", 0.02)
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


# ---- failures


async def test_whatever_fails_each_append_has_one_true_outcome(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two surveys' topics and their producer fail in random ways. In the end, both topics take appends again."""
    for module, name, limit_s in (
        (gateway_topic, "QUEUE_S", 0.02), (gateway_topic, "OVERDUE_S", 0.1), (kafka_connection, "GIVE_UP_S", 0.15)
    ):  # fmt: skip
        monkeypatch.setattr(module, name, limit_s)
    rng, seen, made = Random(20261129), Counter[Outcome](), FakeProducer.made
    log, kafka = await started()
    topics = {log: topic, kafka.add(OTHER): FakeProducer.topics[OTHER.reports_topic]}

    def release(producer: FakeProducer) -> None:
        for future in producer.held:
            if not future.done():
                future.set_result(topic.acknowledgement())

    asked = list[tuple[Topic, list[bytes], asyncio.Future[Outcome]]]()
    for n in range(400):
        producer, (one, at) = made[-1], rng.choice(list(topics.items()))
        producer.full, producer.answers, at.exists = rng.random() < 0.1, rng.random() < 0.95, rng.random() < 0.95
        producer.queue_error = KafkaTimeoutError() if rng.random() < 0.05 else None
        at.ack_error = OutOfOrderSequenceNumber() if rng.random() < 0.05 else None
        at.holds = rng.random() < 0.2
        envelopes = [b"%d.%d" % (n, i) for i in range(rng.randint(1, 3))]
        asked.append((at, envelopes, begin(one, envelopes, keyed(n) if rng.random() < 0.5 else None)))
        await asyncio.sleep(rng.choice((0, 0.005, 0.02)))
        if rng.random() < 0.3:
            release(rng.choice(made))
    for at in topics.values():
        at.holds, at.exists, at.ack_error = False, True, None
    for producer in made:
        release(producer)
        producer.full, producer.answers, producer.queue_error = False, True, None
    for at, envelopes, answer in asked:
        outcome, found = await answer, [value for values in at.values() for value in values if value in envelopes]
        allowed: dict[Outcome, list[list[bytes]]] = {Outcome.APPENDED: [envelopes], Outcome.NOT_APPENDED: [[]]}
        assert found in allowed.get(outcome, [[], envelopes]), (envelopes, outcome)
        seen[outcome] += 1
    assert len(seen) == 3
    assert min(seen.values()) > 10, seen
    await until(lambda: all(one.ready for one in topics))
    assert {await begin(one, [b"end"], keyed()) for one in topics} == {Outcome.APPENDED}
    await until(lambda: all(producer.stopped for producer in made[:-1]))  # a replaced producer ends with its last answer
    await kafka.close()
    assert {await begin(one, [b"late"]) for one in topics} == {Outcome.NOT_APPENDED}
    await until(lambda: all(producer.stopped for producer in made))
