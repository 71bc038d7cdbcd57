"""The topic of dead letters on a real broker: no copy of a report outlives the reports."""

from contextlib import closing

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from ldpstream.engines.kafka.topics import ensure_topics
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey
from tests.agents.samples import make_survey

DAY_MS = 86_400_000


@pytest.fixture
def survey(topic: str) -> Survey:
    return make_survey(name=f"letters-{topic[-12:]}")


def retention_ms(kafka: str, topic: str) -> int:
    with closing(KafkaAdminClient(bootstrap_servers=kafka)) as admin:
        asked = [ConfigResource(ConfigResourceType.TOPIC, topic)]
        return int(admin.describe_configs(asked, config_filter="all")["topic"][topic]["retention.ms"]["value"])


def create(kafka: str, topic: str, retention_ms: int | None) -> None:
    configs = {"message.timestamp.type": "LogAppendTime"} | (
        {} if retention_ms is None else {"retention.ms": str(retention_ms)}
    )
    with closing(KafkaAdminClient(bootstrap_servers=kafka)) as admin:
        options = {"num_partitions": 1, "replication_factor": 1, "configs": configs}
        admin.create_topics({topic: options}, wait_for_metadata=True)


@pytest.mark.parametrize(
    ("reports_ms", "rejected_ms", "limited_ms"),
    [(2 * DAY_MS, -1, 2 * DAY_MS), (2 * DAY_MS, 3 * DAY_MS, 2 * DAY_MS), (2 * DAY_MS, DAY_MS, DAY_MS), (-1, -1, -1)],
)
def test_existing_dead_letters_do_not_outlive_reports(
    kafka: str, survey: Survey, reports_ms: int, rejected_ms: int, limited_ms: int
) -> None:
    create(kafka, survey.reports_topic, reports_ms)
    create(kafka, survey.rejected_topic, rejected_ms)
    for _ in range(2):
        ensure_topics(Settings(kafka=kafka), survey, "agent")
        assert retention_ms(kafka, survey.rejected_topic) == limited_ms
