"""The settings with which topics are made."""

import pytest

from agents.topics import _specs
from surveys.settings import Settings

from .samples import make_survey


@pytest.mark.parametrize(("replication", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)])
def test_a_report_is_acknowledged_once_a_majority_of_the_replicas_has_it(replication: int, needed: int) -> None:
    """So any two sets that acknowledge have a replica in common, and a leader elected from a majority has all."""
    _, configs = _specs(Settings(replication=replication), make_survey())["reports"]
    assert configs["min.insync.replicas"] == str(needed)
    assert 2 * needed > replication >= needed
