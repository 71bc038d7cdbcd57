"""The estimator's view of a real broker's log."""

from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from msgspec.structs import replace

from ldpstream.engines.kafka.log_position import KafkaLogPosition, LogClient
from ldpstream.engines.kafka.topics import ensure_topics
from ldpstream.runtime.errors import LogUnavailable
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import load_survey
from tests.services.rig import wait_until

SURVEY = load_survey(Path(__file__).parents[2] / "surveys" / "samples" / "demo.toml")


def test_the_estimator_waits_for_an_added_partition_at_once(kafka: str, topic: str) -> None:
    """Without this wait, the estimator would publish steps as complete although the new partition's records are missing."""
    survey = replace(SURVEY, name=topic[-40:])
    settings = Settings(kafka=kafka, partitions=1)
    ensure_topics(settings, survey)
    with closing(LogClient(settings)) as client:
        position = KafkaLogPosition(survey, client)
        assert position.ends() == {0: 0}
        assert position.earliest_ms() is None
        with closing(KafkaAdminClient(bootstrap_servers=kafka)) as admin:
            admin.create_partitions({survey.reports_topic: 3})
        with closing(KafkaProducer(bootstrap_servers=kafka, acks="all")) as producer:
            taken = producer.send(survey.reports_topic, b"report", partition=2).get(10)
        assert position.described()[1] == [0, 1, 2]
        assert position.ends() == {0: 0, 1: 0, 2: 1}
        assert position.earliest_ms() == taken.timestamp
        appended = position.mark([0, 2])
        assert position.ends() == {0: 1, 1: 0, 2: 2}
        assert all(taken.timestamp <= time_ms <= taken.timestamp + 60_000 for time_ms in appended.values())


def test_markers_are_written_again_after_the_broker_refused_one(kafka: str, topic: str) -> None:
    """Markers have no key, so a compacted topic refuses them. Without new markers, no later step would be published."""
    survey = replace(SURVEY, name=topic[-40:])
    settings = Settings(kafka=kafka, partitions=1)
    with KafkaAdminClient(bootstrap_servers=kafka) as admin, closing(LogClient(settings)) as client:
        admin.create_topics([NewTopic(survey.reports_topic, 1, 1, topic_configs={"cleanup.policy": "compact"})])
        position = KafkaLogPosition(survey, client)

        def marked() -> bool:
            try:
                return bool(position.mark([0]))
            except LogUnavailable:
                return False

        with pytest.raises(LogUnavailable, match=f"topic {survey.reports_topic}: "):
            position.mark([0])
        topic_options = ConfigResource(ConfigResourceType.TOPIC, survey.reports_topic, {"cleanup.policy": "delete"})
        admin.alter_configs([topic_options], incremental=True)
        wait_until(marked, lambda: "the broker accepts records without a key, but not our markers")
