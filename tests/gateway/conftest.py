"""Fixtures of the gateway's tests: gateways on sockets, a clock that only the test advances, and a topic without Kafka."""

from collections.abc import Iterator
from typing import Any

import pytest

from ldpstream.engines.kafka import gateway_clients as kafka_clients
from ldpstream.engines.kafka import gateway_topic, kafka_connection
from ldpstream.gateway import intake, waiting

from .gateway_rig import SURVEY, Clock, MakeServed, Served
from .kafka_log_rig import OTHER, FakeConsumer, FakeProducer, Topic


@pytest.fixture
def served() -> Iterator[MakeServed]:
    made: list[Served] = []

    def make(**options: Any) -> Served:
        made.append(Served(**options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replaces the monotonic clock of every intake. The wall clock `now_ms` is an argument of the intake."""
    clock = Clock()
    for module in (intake, waiting):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    """Shortens the log's intervals, and lifts its time limits for a busy machine. Returns the topic of `SURVEY`."""
    for module, name in ((kafka_connection, "PROBE_S"), (kafka_clients, "CLOSE_S"), (gateway_topic, "LINGER_S")):
        monkeypatch.setattr(module, name, 0.02)
    for name in ("ANSWER_S", "QUEUE_S", "OVERDUE_S"):
        monkeypatch.setattr(gateway_topic, name, 600.0)
    topic = Topic()
    topics = {SURVEY.reports_topic: topic, OTHER.reports_topic: Topic()}
    monkeypatch.setattr(FakeProducer, "made", [], raising=False)
    for fake in (FakeProducer, FakeConsumer):
        monkeypatch.setattr(fake, "topics", topics, raising=False)
    return topic
