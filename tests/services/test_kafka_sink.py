"""The Kafka sink with a real broker delivers every envelope exactly once, even if the broker is killed."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing

import pytest

from ldpstream.producers import kafka_sink
from ldpstream.producers.kafka_sink import KafkaSink
from ldpstream.producers.sinks import SinkError
from ldpstream.runtime.settings import Settings

from .conftest import MakeTopic
from .rig import PATIENCE_S, KafkaNode, read_records


def read(bootstrap: str, topic: str) -> list[list[tuple[bytes | None, bytes, int]]]:
    """Returns each partition's records: key, value, append time."""
    found = defaultdict[int, list[tuple[bytes | None, bytes, int]]](list)
    for record in read_records(bootstrap, topic):
        found[record.partition].append((record.key, record.value, record.timestamp))
    return list(found.values())


def test_envelopes_arrive_once_spread_over_the_partitions_and_without_a_key(kafka: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    envelopes = [b"%06d" % number + bytes(number % 3000) for number in range(5000)]
    with closing(KafkaSink(Settings(kafka=kafka), topic)) as sink:
        for envelope in envelopes[:4000]:
            sink.send(envelope)
        sink.flush()
        assert sum(map(len, read(kafka, topic))) == 4000
        for envelope in envelopes[4000:]:
            sink.send(envelope)
        sink.flush()
        sink.flush()
    partitions = read(kafka, topic)
    assert sorted(value for records in partitions for _, value, _ in records) == envelopes
    assert {key for records in partitions for key, _, _ in records} == {None}
    assert min(map(len, partitions)) > 1400  # of 5000 on three partitions: false-alarm rate below 1e-14


def test_a_missing_topic_is_an_error_and_is_not_created(kafka: str, topic: str) -> None:
    for _ in range(2):
        with pytest.raises(SinkError, match=f"Kafka at {kafka} has no topic {topic}"):
            KafkaSink(Settings(kafka=kafka), topic)


@pytest.fixture
def restarting(kafka_node: KafkaNode) -> Iterator[threading.Timer]:
    """A timer that restarts the broker. The test starts the timer, which fires after 2 s."""
    timer = threading.Timer(2, kafka_node.start)
    yield timer
    timer.cancel()
    if timer.ident is not None:
        timer.join()


def test_a_killed_and_restarted_broker_loses_nothing(
    kafka_node: KafkaNode,
    make_topic: MakeTopic,
    restarting: threading.Timer,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_sink, "DELIVERY_MS", round(PATIENCE_S * 1000))
    topic = make_topic(partitions=3)
    envelopes = [b"%06d" % number for number in range(20_000)]
    with closing(KafkaSink(Settings(kafka=kafka_node.bootstrap), topic)) as sink:
        for number, envelope in enumerate(envelopes):
            sink.send(envelope)
            if number == 10_000:
                kafka_node.kill()
                restarting.start()
        sink.flush()
    values = [value for records in read(kafka_node.bootstrap, topic) for _, value, _ in records]
    assert sorted(values) == envelopes
    assert capfd.readouterr() == ("", "")


def test_a_broker_that_stays_down_raises_one_clear_error(
    kafka_node: KafkaNode, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kafka_sink, "REQUEST_MS", 3000)
    monkeypatch.setattr(kafka_sink, "DELIVERY_MS", 6000)
    sink = KafkaSink(Settings(kafka=kafka_node.bootstrap), make_topic())
    sink.send(b"first")
    sink.flush()
    kafka_node.kill()
    sink.send(b"lost")
    begun = time.monotonic()
    with pytest.raises(SinkError, match=f"Kafka at {kafka_node.bootstrap} did not acknowledge all envelopes sent to"):
        sink.flush()
    assert time.monotonic() - begun < PATIENCE_S
    with pytest.raises(SinkError, match="did not acknowledge"):
        sink.send(b"more")
    with pytest.raises(SinkError, match="did not acknowledge"):
        sink.flush()
    sink.close()
    sink.close()
    while any("kafka-python-producer" in thread.name for thread in threading.enumerate()):
        assert time.monotonic() - begun < PATIENCE_S
        time.sleep(0.05)
    del sink
    assert capfd.readouterr() == ("", "")
