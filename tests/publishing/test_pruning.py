"""Tests of an estimator that loses its count store, hangs before pruning, or is replaced by another estimator."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from ldpstream.engines.checkpoint import Checkpoint
from tests.faults.memory_store import MemoryCountStore, MemoryResults

from .schedule_rig import MARGIN_MS, SURVEY, Schedule, ScheduleLog, keys, pane


@pytest.fixture
def store() -> MemoryCountStore:
    return MemoryCountStore(SURVEY)


class Unfenced(MemoryCountStore):
    """A store for the control: prunes without checking the checkpoints."""

    def prune(self, before_step: int, seen: Mapping[int, Checkpoint]) -> None:
        super().prune(before_step, self.snapshot())


class Unmarked(MemoryCountStore):
    """A store for the control: does not report which steps it pruned."""

    def checkpoints(self, steps: range) -> dict[int, Checkpoint]:
        return {p: replace(checkpoint, pruned_below=0) for p, checkpoint in super().checkpoints(steps).items()}


def full(store: MemoryCountStore, steps: int, writer: str) -> ScheduleLog:
    """Counts five reports in each of `steps` steps; returns the log of these reports."""
    panes = {key: table for step in range(steps) for key, table in pane(step).items()}
    change = Checkpoint(steps, SURVEY.opens_ms(steps - 1), panes, writer=writer)
    assert store.commit(0, None, change)
    return ScheduleLog([SURVEY.opens_ms(step) for step in range(steps)])


@pytest.mark.parametrize(("kind", "right"), [(MemoryCountStore, True), (Unfenced, False)])
def test_late_pruning_keeps_tables_that_were_counted_again(kind: type[MemoryCountStore], right: bool) -> None:
    """An estimator hangs between saving and pruning. Meanwhile the store loses its data, and agents count the records again."""
    steps, results = SURVEY.window_steps + 4, MemoryResults()
    store = kind(SURVEY)
    log = full(store, steps, "before")
    now = SURVEY.closes_ms(steps - 1) + MARGIN_MS

    class Hanging(kind):  # type: ignore[misc, valid-type]  # the base class is a parameter
        def prune(self, before_step: int, seen: Mapping[int, Checkpoint]) -> None:
            store._checkpoints.clear()
            full(store, steps, "after")
            store.prune(before_step, seen)

        def heads(self) -> dict[int, Checkpoint]:
            return store.heads()

        def checkpoints(self, steps: range) -> dict[int, Checkpoint]:
            return store.checkpoints(steps)

    log.store = store
    Schedule(SURVEY, store, log, results, []).run(now - SURVEY.step_ms)
    assert keys(Schedule(SURVEY, Hanging(SURVEY), log, results, []).run(now)) == [(steps - 1, True)]
    again = Schedule(SURVEY, store, log, MemoryResults(), []).run(now)
    assert (keys(again) == [(step, True) for step in range(steps)]) is right
    assert all(p.reports == 5 for p in again if p.attribute == "screen" and p.span == "step") is right


@pytest.mark.parametrize(("kind", "right"), [(MemoryCountStore, True), (Unmarked, False)])
def test_a_step_whose_tables_were_pruned_is_never_complete(kind: type[MemoryCountStore], right: bool) -> None:
    """Example: somebody deletes the key of the progress."""
    steps = SURVEY.window_steps + 4
    store = kind(SURVEY)
    log, now = full(store, steps, "a"), SURVEY.closes_ms(steps - 1) + MARGIN_MS
    first = Schedule(SURVEY, store, log, MemoryResults(), []).run(now)
    second = Schedule(SURVEY, store, log, MemoryResults(), []).run(now)
    true = {p.key: p.reports for p in first}
    assert all(p.complete for p in first)
    assert all(p.reports == true[p.key] for p in second if p.complete) is right
    assert any(not p.complete for p in second) is right
    assert second[-1].complete  # the store has the latest tables
