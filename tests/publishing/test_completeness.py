"""Tests that the schedule marks no step as complete while reports could be missing: partitions, markers, lost records."""

import pytest

from ldpstream.engines import PaneKey
from ldpstream.engines.checkpoint import Checkpoint, Missing
from ldpstream.publishing.progress import Progress
from ldpstream.publishing.schedule import Schedule as UnmarkedSchedule
from tests.faults.memory_store import MemoryCountStore, MemoryResults

from .schedule_rig import MARGIN_MS, SURVEY, M, Schedule, ScheduleLog, Told, keys, pane


@pytest.fixture
def store() -> MemoryCountStore:
    return MemoryCountStore(SURVEY)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("question", ["heads", "described"])
def test_a_partition_added_between_two_questions_delays_the_step(store: MemoryCountStore, question: str, first: bool) -> None:
    """Around one question, a partition with an early report is added; then the other one passes the close, and is counted."""
    close, log = SURVEY.closes_ms(0), ScheduleLog([SURVEY.start_ms])
    store.commit(0, None, Checkpoint(1, SURVEY.start_ms, pane(0)))
    asked = store if question == "heads" else log
    answer = getattr(asked, question)

    def adding() -> object:
        before = answer()
        if len(log.times) == 1:
            log.times, log.markers, log.begins = [[SURVEY.start_ms, close], [SURVEY.start_ms]], [[], []], {0: 0, 1: 0}
            assert store.commit(0, (1, ""), Checkpoint(2, close))
        return answer() if first else before

    setattr(asked, question, adding)
    schedule = UnmarkedSchedule(SURVEY, store, log, MemoryResults(), [])
    assert schedule.run(close + MARGIN_MS) == []
    assert len(log.times) == 2
    store.commit(1, None, Checkpoint(1, close, pane(0)))
    assert keys(schedule.run(close + MARGIN_MS)) == [(0, True)]


def test_a_partition_that_is_not_counted_to_its_end_gets_no_marker(store: MemoryCountStore) -> None:
    """This also holds for a log that has lost its end: a marker would hide the loss."""
    log = ScheduleLog([SURVEY.start_ms, SURVEY.start_ms + 1], [SURVEY.start_ms])
    store.commit(0, None, Checkpoint(1, SURVEY.start_ms, pane(0)))
    store.commit(1, None, Checkpoint(2, SURVEY.start_ms, pane(0)))
    schedule = UnmarkedSchedule(SURVEY, store, log, MemoryResults(), [])
    log.now_ms = schedule.deadline_ms(0)
    assert keys(schedule.run(log.now_ms)) == [(0, False)]
    assert log.markers == [[], []]


def test_expired_and_unused_partitions_do_not_delay_steps(store: MemoryCountStore) -> None:
    log = ScheduleLog([SURVEY.start_ms], [], [], begins={0: 0, 1: 0, 2: 700})
    schedule = Schedule(SURVEY, store, log, MemoryResults(), [])
    store.commit(0, None, Checkpoint(1, SURVEY.start_ms, pane(0)))
    now = SURVEY.closes_ms(0) + MARGIN_MS
    assert schedule.run(now) == []  # partition 2 had records but has no checkpoint
    store.commit(2, None, Checkpoint(700, missing=Missing(0, SURVEY.start_ms - SURVEY.skew_ms, 700)))
    assert keys(schedule.run(now)) == [(0, True)]


@pytest.mark.parametrize("until_ms", [SURVEY.opens_ms(2) - SURVEY.skew_ms, SURVEY.opens_ms(2) - SURVEY.skew_ms + 1])
def test_steps_and_windows_with_lost_records_stay_incomplete(store: MemoryCountStore, until_ms: int) -> None:
    """The count store lost its data after part of the log had expired. A step that begins at the end of the gap is complete."""
    steps, lost = SURVEY.window_steps + 6, 2 if until_ms == SURVEY.opens_ms(2) - SURVEY.skew_ms else 3
    log, results, told = ScheduleLog([SURVEY.opens_ms(s) for s in range(steps)]), MemoryResults(), Told()
    panes = {k: t for s in range(steps) for k, t in pane(s, s + 1).items()}
    store.commit(0, None, Checkpoint(steps, log.times[0][-1], panes, missing=Missing(0, until_ms, 1)))
    schedule = Schedule(SURVEY, store, log, results, [told])
    made = schedule.run(SURVEY.closes_ms(steps - 1) + MARGIN_MS)
    assert keys(made) == [(s, s >= lost) for s in range(steps)]
    windows = [(p.step, p.complete) for p in made if p.attribute == "screen" and p.span == "window"]
    assert windows == [(s, s - SURVEY.window_steps + 1 >= lost) for s in range(steps)]
    progress = results.progress()
    assert progress is not None
    assert progress.incomplete == ()  # no further record can arrive
    assert schedule.run(schedule.deadline_ms(steps - 1)) == []


def test_lost_records_affect_only_steps_they_may_belong_to(store: MemoryCountStore) -> None:
    log, results = ScheduleLog([SURVEY.opens_ms(s) for s in range(30)]), MemoryResults()
    gap = Missing(SURVEY.opens_ms(10), SURVEY.opens_ms(12), 11)
    store.commit(0, None, Checkpoint(30, log.times[0][-1], missing=gap))
    made = Schedule(SURVEY, store, log, results, []).run(SURVEY.closes_ms(29) + MARGIN_MS)
    first, last = 10 - SURVEY.lateness_steps, 11 + -(-SURVEY.skew_ms // SURVEY.step_ms)
    assert {s for s, complete in keys(made) if not complete} == set(range(first, last + 1))


def test_no_step_passes_before_a_lost_partition_is_recorded(store: MemoryCountStore) -> None:
    """The topic was recreated without partition 1. Agents may not have counted all records of the old partition 1."""
    log, results = ScheduleLog([]), MemoryResults()
    log.id = "new"
    store.commit(0, None, Checkpoint(0, SURVEY.start_ms, log_id="new"))
    store.commit(1, None, Checkpoint(1, SURVEY.start_ms, pane(0), log_id="old"))
    results.save([], None, Progress(first_step=0, next_step=0))
    schedule, now = Schedule(SURVEY, store, log, results, []), SURVEY.closes_ms(0) + MARGIN_MS
    assert schedule.run(now) == []
    gap = Missing(SURVEY.start_ms, now, 0)
    assert store.commit(1, (1, "old"), Checkpoint(0, SURVEY.start_ms, {PaneKey(0, 0, 0): M.empty_table()}, {}, "new", gap))
    made = schedule.run(now)
    assert keys(made) == [(0, False)]
    assert all(p.reports == 0 for p in made)


def test_the_reports_of_a_step_enter_the_histograms_all_at_once(store: MemoryCountStore) -> None:
    """One report of six is counted after the deadline. The difference of two histograms would show this report."""
    close, log = SURVEY.closes_ms(0), ScheduleLog([SURVEY.start_ms], [SURVEY.start_ms])
    schedule = UnmarkedSchedule(SURVEY, store, log, MemoryResults(), [])
    store.commit(0, None, Checkpoint(2, close, pane(0)))
    for step in (0, 1):
        early = schedule.run(schedule.deadline_ms(step))
        assert keys(early) == [(step, False)]
        assert {p.reports for p in early} == {0}
        shares = [f for p in early for found in p.estimators.values() for f in found.frequencies]
        assert set(shares) == {None}
    store.commit(1, None, Checkpoint(2, close, pane(0, 1)))
    made = schedule.run(schedule.deadline_ms(1))
    assert keys(made) == [(0, True)]
    assert {p.reports for p in made if p.attribute == "screen"} == {6}


def test_a_poorer_estimate_never_replaces_a_better_one() -> None:
    """The counts and the progress are lost, and the publications are kept. Control: without them, the step is incomplete.

    In the last case only the tables are lost: an estimate without reports would be complete.
    """
    log, results = ScheduleLog([SURVEY.start_ms]), MemoryResults()
    store, emptied, close = MemoryCountStore(SURVEY), MemoryCountStore(SURVEY), SURVEY.closes_ms(0)
    store.commit(0, None, Checkpoint(1, close, pane(0)))
    emptied.commit(0, None, Checkpoint(1, close))
    assert keys(Schedule(SURVEY, store, log, results, []).run(close + MARGIN_MS)) == [(0, True)]
    lost, before = MemoryCountStore(SURVEY), results.history()
    for counts, kept, complete in ((lost, before, True), (lost, [], False), (emptied, before, True)):
        after = MemoryResults()
        after._publications = {p.key: p for p in kept}
        schedule = UnmarkedSchedule(SURVEY, counts, log, after, [])
        made = schedule.run(schedule.deadline_ms(0))
        assert keys(made) == [(0, complete)]
        assert sorted(p.reports for p in made) == sorted(p.reports for p in kept or made)
