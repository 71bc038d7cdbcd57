"""Tests that the schedule neither skips nor repeats a step; `test_completeness` tests which steps are complete."""

import contextlib
from collections.abc import Collection, Mapping
from itertools import count
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ldpstream.engines import PaneKey
from ldpstream.engines.checkpoint import Checkpoint
from ldpstream.publishing import schedule as module
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.publishing.process.survey_estimator import pause_ms
from ldpstream.publishing.schedule import RETRY_MS
from ldpstream.publishing.schedule import Schedule as UnmarkedSchedule
from ldpstream.runtime.errors import LogUnavailable
from tests.faults.memory_store import MemoryCountStore, MemoryResults

from .schedule_rig import MARGIN_MS, SURVEY, M, Schedule, ScheduleLog, Told, concluded_once, keys, pane


@pytest.fixture
def store() -> MemoryCountStore:
    return MemoryCountStore(SURVEY)


class Refusing(ScheduleLog):
    """A log that can be read but accepts no markers, as with too few in-sync replicas."""

    refuses = True

    def mark(self, partitions: Collection[int]) -> dict[int, int]:
        if self.refuses:
            raise LogUnavailable("not enough replicas")
        return super().mark(partitions)


def test_a_step_is_published_at_its_deadline_if_the_log_accepts_no_markers(store: MemoryCountStore) -> None:
    log = Refusing([SURVEY.start_ms])
    store.commit(0, None, Checkpoint(1, SURVEY.start_ms, pane(0)))
    schedule = UnmarkedSchedule(SURVEY, store, log, MemoryResults(), [])
    deadline = schedule.deadline_ms(0)
    with pytest.raises(LogUnavailable):
        schedule.run(deadline - 1)
    assert keys(schedule.run(deadline)) == [(0, False)]
    assert schedule.run(deadline + 1) == []
    log.refuses = False
    log.now_ms = deadline + RETRY_MS
    assert schedule.run(log.now_ms) == []
    assert log.markers == [[log.now_ms]]
    store.commit(0, (1, ""), Checkpoint(2, log.now_ms, pane(0)))
    assert keys(schedule.run(log.now_ms)) == [(0, True), (1, True)]


def test_an_empty_log_begins_at_the_brokers_time(store: MemoryCountStore) -> None:
    """The estimator's clock is ten steps ahead. The reports of the present step must not be passed over."""
    log, results = ScheduleLog([], []), MemoryResults()
    log.now_ms = SURVEY.opens_ms(100)
    schedule = UnmarkedSchedule(SURVEY, store, log, results, [])
    schedule.run(SURVEY.opens_ms(110))
    assert log.markers == [[log.now_ms]] * 2
    progress = results.progress()
    assert progress is not None
    assert progress.first_step == 100 - SURVEY.lateness_steps


class StandingBy(MemoryResults):
    leads = True

    def lead(self, for_ms: int | None = None) -> bool:
        return self.leads


@pytest.mark.parametrize(("pause_s", "renewals"), [(0.0, 0), (1.0, len(SURVEY.attributes))])
def test_a_lease_is_renewed_before_an_attribute_if_the_last_one_took_long(
    store: MemoryCountStore, monkeypatch: pytest.MonkeyPatch, pause_s: float, renewals: int
) -> None:
    clock, results = count(0.0, pause_s), Mock(wraps=MemoryResults())
    monkeypatch.setattr(module, "time", Mock(monotonic=lambda: next(clock)))
    store.commit(0, None, Checkpoint(1, SURVEY.start_ms, pane(0)))
    schedule = Schedule(SURVEY, store, ScheduleLog([SURVEY.start_ms]), results, [])
    assert schedule.turn(SURVEY.closes_ms(0) + MARGIN_MS)
    assert results.lead.call_count == 1 + renewals


def test_a_step_is_due_shortly_after_its_close(store: MemoryCountStore) -> None:
    results = StandingBy()
    schedule = Schedule(SURVEY, store, ScheduleLog([SURVEY.start_ms]), results, [])
    assert schedule.due_ms() is None  # the schedule does not know the next step
    store.commit(0, None, Checkpoint(1, SURVEY.start_ms, pane(0)))
    for step in (0, 1):
        due = schedule.due_ms() or SURVEY.closes_ms(0) + MARGIN_MS
        assert due == SURVEY.closes_ms(step) + MARGIN_MS
        assert schedule.run(due - 1) == []
        assert {p.step for p in schedule.run(due)} == {step}
    results.leads = False
    schedule.run(SURVEY.closes_ms(2))
    assert schedule.due_ms() is None  # another estimator leads now


@pytest.mark.parametrize(
    ("due_ms", "expected_ms"),
    [(None, 200), (9_000, 200), (1_150, 150), (1_001, 20), (1_000, 20), (950, 20), (800, 50), (-50_000, 200)],
)
def test_the_service_polls_often_only_near_a_due_step(due_ms: int | None, expected_ms: int) -> None:
    assert pause_ms(due_ms, 1_000, n_surveys=1) == expected_ms


def test_it_begins_with_the_logs_first_possible_step(store: MemoryCountStore) -> None:
    first = SURVEY.opens_ms(100)
    results = MemoryResults()
    Schedule(SURVEY, store, ScheduleLog([first]), results, []).run(first + 5 * SURVEY.step_ms)
    progress = results.progress()
    assert progress is not None
    assert progress.first_step == 100 - SURVEY.lateness_steps
    empty, later = MemoryResults(), SURVEY.opens_ms(300)
    schedule = Schedule(SURVEY, store, ScheduleLog([]), empty, [])
    assert schedule.run(later) == []
    assert empty.progress() is None  # without a publication, no progress is saved
    schedule = Schedule(SURVEY, store, ScheduleLog([later]), empty, [])
    store.commit(0, None, Checkpoint(1, later, pane(300)))
    assert keys(schedule.run(SURVEY.closes_ms(300) + MARGIN_MS)) == [(299, True), (300, True)]


@concluded_once()
@settings(max_examples=100)
@given(st.data())
def test_any_interleaving_finally_publishes_complete_steps(data: st.DataObject) -> None:
    """Agents lag, the clock jumps, and the schedule is killed between publishing and saving."""
    n, steps = data.draw(st.integers(1, 3)), 5
    times = [sorted(data.draw(st.lists(st.integers(0, steps * SURVEY.step_ms - 1), max_size=6))) for _ in range(n)]
    log = ScheduleLog(*([SURVEY.start_ms + t for t in partition] for partition in times))
    store, results, told = MemoryCountStore(SURVEY), MemoryResults(), Told()
    counted = [0] * n

    def advance(partition: int) -> None:
        t = log.times[partition][counted[partition]]
        step = SURVEY.step_at(t)
        before = store.snapshot().get(partition)
        known = before.panes.get(PaneKey(0, 0, step), M.empty_table()) if before else M.empty_table()
        change = Checkpoint(counted[partition] + 1, t, {PaneKey(0, 0, step): known + M.tabulate(np.zeros(1, np.uint8))})
        assert store.commit(partition, None if before is None else before.position, change)
        counted[partition] += 1

    class Killed(Exception):
        pass

    class Killing:
        def publish(self, publications: list[Publication]) -> None:
            if data.draw(st.booleans()):
                raise Killed

    now = SURVEY.start_ms
    for _ in range(data.draw(st.integers(0, 25))):
        partition = data.draw(st.integers(0, n - 1))
        if data.draw(st.booleans()) and counted[partition] < len(log.times[partition]):
            advance(partition)
        else:
            now += data.draw(st.integers(0, 2 * SURVEY.step_ms))
            with contextlib.suppress(Killed):
                Schedule(SURVEY, store, log, results, [told, Killing()]).run(now)
    for partition in range(n):
        while counted[partition] < len(log.times[partition]):
            advance(partition)
    Schedule(SURVEY, store, log, results, [told]).run(max(now, SURVEY.closes_ms(steps)) + MARGIN_MS)
    final = {(p.step, p.span): p for p in results.history() if p.attribute == "screen"}
    progress = results.progress()
    if progress is None:  # nobody ever reported, so nothing was published
        assert log.earliest_ms() is None
        return
    assert progress.incomplete == ()
    for step in range(progress.first_step, steps):
        expected = sum(SURVEY.step_at(t) == step for partition in log.times for t in partition)
        assert final[step, "step"].complete
        assert final[step, "step"].reports == expected
        window = range(max(progress.first_step, step - SURVEY.window_steps + 1), step + 1)
        total = sum(SURVEY.step_at(t) in window for partition in log.times for t in partition)
        assert final[step, "window"].reports == total
    for p in told.publications:  # no publication was complete without all reports
        if p.complete and p.span == "step" and p.attribute == "screen":
            assert p.reports == sum(SURVEY.step_at(t) == p.step for partition in log.times for t in partition)


def test_a_report_that_is_appended_just_before_the_first_markers_is_estimated() -> None:
    class Raced(ScheduleLog):
        def mark(self, partitions: Collection[int]) -> dict[int, int]:
            self.times[0] = [SURVEY.opens_ms(5) - 1]
            return super().mark(partitions)

    log, results = Raced([]), MemoryResults()
    log.now_ms = SURVEY.opens_ms(5)
    UnmarkedSchedule(SURVEY, MemoryCountStore(SURVEY), log, results, []).run(log.now_ms + 9 * SURVEY.step_ms)
    progress = results.progress()
    assert progress is not None
    assert progress.first_step == 4 - SURVEY.lateness_steps


def test_the_schedule_finishes_the_last_step_and_then_rests() -> None:
    ending = replace(SURVEY, ends=3)
    store, log, results = MemoryCountStore(ending), ScheduleLog([ending.opens_ms(s) for s in range(5)]), MemoryResults()
    panes = {k: t for s in range(3) for k, t in pane(s).items()}
    store.commit(0, None, Checkpoint(5, ending.opens_ms(4), panes))
    schedule = Schedule(ending, store, log, results, [])
    made = schedule.run(ending.closes_ms(9))
    assert keys(made) == [(0, True), (1, True), (2, True)]
    assert (schedule.run(ending.closes_ms(99)), schedule.due_ms()) == ([], None)
    assert (progress := results.progress()) is not None
    assert progress.first_open > 2
    assert len(keys(Schedule(SURVEY, store, log, MemoryResults(), []).run(SURVEY.closes_ms(9)))) == 9  # the control


def test_an_incomplete_last_step_is_published_again_after_the_end() -> None:
    ending = replace(SURVEY, ends=1)
    store, log, results = MemoryCountStore(ending), ScheduleLog([ending.start_ms]), MemoryResults()
    schedule = Schedule(ending, store, log, results, [])
    assert keys(schedule.run(ending.closes_ms(5))) == [(0, False)]
    store.commit(0, None, Checkpoint(1, ending.start_ms, pane(0)))
    assert keys(schedule.run(ending.closes_ms(6))) == [(0, True)]


@concluded_once()
@settings(max_examples=60)
@given(st.data())
def test_two_estimators_never_replace_a_result_by_a_poorer_one(data: st.DataObject) -> None:
    """Each estimator may interrupt the other at every call. All saved and published results are complete."""
    steps = SURVEY.window_steps + 4
    log = ScheduleLog([SURVEY.opens_ms(s) + 1 for s in range(steps)])
    store, results, told = MemoryCountStore(SURVEY), MemoryResults(), Told()
    panes = {k: t for s in range(steps) for k, t in pane(s, s + 1).items()}
    store.commit(0, None, Checkpoint(steps, log.times[0][-1], panes))
    log.store, now = store, SURVEY.closes_ms(steps) + MARGIN_MS
    rival = Schedule(SURVEY, store, log, results, [told])

    def perhaps() -> None:
        if data.draw(st.integers(0, 3)) == 0:
            until = data.draw(st.integers(0, steps))
            rival.run(SURVEY.closes_ms(until) + MARGIN_MS)

    class Interrupted(MemoryCountStore):
        def heads(self) -> dict[int, Checkpoint]:
            perhaps()
            return store.heads()

        def checkpoints(self, steps: range) -> dict[int, Checkpoint]:
            perhaps()
            found = store.checkpoints(steps)
            perhaps()
            return found

        def prune(self, before_step: int, seen: Mapping[int, Checkpoint]) -> None:
            perhaps()
            store.prune(before_step, seen)

    class Telling(Told):
        def publish(self, publications: list[Publication]) -> None:
            perhaps()
            told.publish(publications)

    for _ in range(3):
        Schedule(SURVEY, Interrupted(SURVEY), log, results, [Telling()]).run(now)
    rival.run(now)
    expected = {s: s + 1 for s in range(steps)} | {steps: 0}
    final = {p.step: p for p in results.history() if p.attribute == "screen" and p.span == "step"}
    assert {s: p.reports for s, p in final.items()} == expected
    for p in told.publications:
        if p.attribute == "screen" and p.span == "step":
            assert p.reports == expected[p.step]
