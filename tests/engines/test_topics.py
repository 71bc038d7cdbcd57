"""Settings of the topics that we create, and checks of existing topics."""

import pytest

from ldpstream.engines.kafka.topics import TopicError, _check_reports, _specs
from ldpstream.runtime.settings import Settings
from tests.agents.samples import make_survey


@pytest.mark.parametrize(("replication", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)])
def test_a_majority_of_replicas_acknowledges_a_report(replication: int, needed: int) -> None:
    """Any two majorities of replicas share a replica. A leader elected from a majority therefore has all acknowledged
    reports."""
    _, configs = _specs(Settings(replication=replication), make_survey())["reports"]
    assert configs["min.insync.replicas"] == str(needed)
    assert 2 * needed > replication >= needed


@pytest.mark.parametrize(
    ("setting", "countable", "others"),
    [
        ("message.timestamp.type", ["LogAppendTime"], ["CreateTime"]),
        ("cleanup.policy", ["delete", ""], ["compact", "compact,delete", "delete, compact"]),
    ],
)
def test_a_topic_that_cannot_be_counted_is_refused(setting: str, countable: list[str], others: list[str]) -> None:
    for value in countable:
        _check_reports("reports", {setting: value})
    for value in others:
        with pytest.raises(TopicError, match=rf"^topic reports must have {setting}=.*, got {value}: .*"):
            _check_reports("reports", {setting: value})


def test_settings_that_the_broker_hides_are_not_checked() -> None:
    """A producer may lack the right to read the settings; an agent has this right."""
    _check_reports("reports", {})
