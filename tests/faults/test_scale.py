"""Tests that the invariant holds with more partitions and agents than the random lists have."""

import pytest

from . import mutants
from .invariant import Violation
from .scale import run
from .search import mutated


def test_many_partitions_and_agents_count_everything_once() -> None:
    world = run(40, 6, 1)
    assert [seen.name.partition(" ")[2] for seen in world.seen][:2] == ["agent", "more agents start, five a second"]
    assert len(world.seen) == 7
    assert sum(seen.rebalances for seen in world.seen) >= 5
    assert world.done["reports counted"] > 300


def test_a_fault_is_found_among_many_agents() -> None:
    with pytest.raises(Violation, match="lost"):
        run(40, 6, 1, mutated(mutants.LeavesOutOpenPanes)())
