"""Tests the logs of several surveys' topics, which share the gateway's connection to Kafka."""

import asyncio

import structlog
from aiokafka.errors import OutOfOrderSequenceNumber

from ldpstream.engines.gateway_log import Outcome

from .gateway_rig import SURVEY
from .kafka_log_rig import OTHER, FakeProducer, Topic, begin, keyed, started, until


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
    await until(lambda: other.ready and kafka.answers)
    assert not log.ready
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
    made[0].held[0].set_result(topic.acknowledgement())
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
    assert await begin(log, [b"c"]) is Outcome.NOT_APPENDED
    await until(lambda: len(FakeProducer.made[0].held) == 2)
    assert kafka._topics == [log]  # a producer without the topic could not deliver
    again = kafka.add(SURVEY)
    await until(lambda: again.ready)
    for future in FakeProducer.made[0].held:
        future.set_result(topic.acknowledgement())
    FakeProducer.made[0].holds = False
    assert set(await asyncio.gather(first, second, begin(again, [b"c"]))) == {Outcome.APPENDED}
    await until(lambda: kafka._topics == [again])
    await kafka.close()
