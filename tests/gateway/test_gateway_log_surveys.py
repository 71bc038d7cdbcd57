"""Tests the logs of several surveys' topics, which share the gateway's connection to Kafka."""

import structlog

from .kafka_log_rig import OTHER, FakeProducer, Topic, started, until


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
