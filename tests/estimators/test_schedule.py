"""Tests that the schedule skips and repeats no step, and publishes no step as complete while reports could be missing."""

import contextlib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from estimators import combined_mle, gibu
from estimators.publishing.publication import Publication, conclude, spent
from estimators.publishing.publishers import PrometheusPublisher
from estimators.publishing.results import MemoryResults
from estimators.publishing.schedule import Progress, Schedule
from estimators.publishing.service import _pause_s
from mechanisms import CountTable
from runtime.errors import LogUnavailable
from stores import PaneKey
from stores.checkpoint import Checkpoint, Missing
from stores.memory_store import MemoryCountStore
from surveys import load_survey, parse_survey
from tests.faults.memory_topic import MemoryTopic, TopicClient

MARGIN_MS = 500  # the default of `margin_ms`
SURVEY = load_survey(Path(__file__).parents[2] / "surveys" / "samples" / "demo.toml")
M = SURVEY.mechanisms[0][0]


class Log:
    """A log: append times by partition."""

    def __init__(self, *partitions: list[int], begins: dict[int, int] | None = None) -> None:
        self.times = list(partitions)
        self.begins = begins or dict.fromkeys(range(len(partitions)), 0)

    id = ""

    def log_id(self) -> str:
        return self.id

    def offsets_at(self, time_ms: int) -> dict[int, int]:
        return {
            p: self.begins[p] + next((i for i, t in enumerate(times) if t >= time_ms), len(times))
            for p, times in enumerate(self.times)
        }

    def earliest_ms(self) -> int | None:
        return min((t for times in self.times for t in times), default=None)


class Told:
    def __init__(self) -> None:
        self.publications: list[Publication] = []

    def publish(self, publications: list[Publication]) -> None:
        self.publications += publications


def pane(step: int, reports: int = 5) -> dict[PaneKey, object]:
    return {PaneKey(0, 0, step): M.tabulate(np.zeros(reports, np.uint8))}


def keys(publications: list[Publication]) -> list[tuple[int, bool]]:
    return [(p.step, p.complete) for p in publications if p.attribute == "screen" and p.span == "step"]


@pytest.fixture
def store() -> MemoryCountStore:
    return MemoryCountStore(SURVEY)


def test_a_step_waits_for_every_partition_to_pass_its_close(store: MemoryCountStore) -> None:
    close = SURVEY.closes_ms(0)
    log = Log([SURVEY.start_ms, close - 1, close], [SURVEY.start_ms])
    results = MemoryResults()
    schedule = Schedule(SURVEY, store, log, results, [])
    now = close + MARGIN_MS
    assert schedule.run(now) == []  # nothing is stored yet
    store.commit(0, None, Checkpoint(1, close, pane(0)))  # type: ignore[arg-type]
    assert schedule.run(now) == []  # offset 1 was appended before the close
    store.commit(0, (1, ""), Checkpoint(2, close))
    assert schedule.run(now) == []  # partition 1 has a record and no checkpoint
    store.commit(1, None, Checkpoint(1, close, pane(0)))  # type: ignore[arg-type]
    assert schedule.run(now - 1) == []  # one millisecond before the step is due
    made = schedule.run(now)
    assert keys(made) == [(0, True)]
    assert made[0].reports == 10
    assert schedule.run(now) == []  # no second publication


class StandingBy(MemoryResults):
    leads = True

    def lead(self, for_ms: int | None = None) -> bool:
        return self.leads


def test_privacy_losses_are_computed_before_the_close(store: MemoryCountStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a step has closed, no mechanism computes a loss. The published losses are the same as without preparation."""
    spent.cache_clear()
    results = StandingBy()
    schedule = Schedule(SURVEY, store, Log([SURVEY.start_ms]), results, [])
    assert (schedule.prepare(), schedule.due_ms()) == (False, None)  # the next step is unknown
    store.commit(0, None, Checkpoint(1, SURVEY.start_ms, pane(0)))  # type: ignore[arg-type]
    asked = list(zip(SURVEY.attributes, SURVEY.mechanisms, strict=True))
    expected = [
        {level.name: m.eps_sequence(t) for level, m in zip(a.levels, ms, strict=True)} for t in (1, 2) for a, ms in asked
    ]
    n_mechanisms = sum(map(len, SURVEY.mechanisms))
    for step in (0, 1):
        due = schedule.due_ms() or SURVEY.closes_ms(0) + MARGIN_MS
        assert due == SURVEY.closes_ms(step) + MARGIN_MS
        assert schedule.run(due - 1) == []
        assert [schedule.prepare() for _ in range(n_mechanisms + 1)] == [True] * n_mechanisms + [False]
        assert schedule.run(due - 1) == []
        assert not schedule.prepare()  # the loss is computed once a step
        with monkeypatch.context() as patch:
            for m in {m for mechanisms in SURVEY.mechanisms for m in mechanisms}:
                patch.setattr(m, "eps_sequence", None)
            made = [p for p in schedule.run(due) if p.span == "step"]
        assert len(made) == len(SURVEY.attributes)
        for p, losses in zip(made, expected[step * len(made) :], strict=False):
            assert {name: (q.t, q.eps_sequence) for name, q in p.privacy.items()} == {
                name: (step + 1, loss.value) for name, loss in losses.items()
            }
    results.leads = False
    schedule.run(SURVEY.closes_ms(2))
    assert (schedule.prepare(), schedule.due_ms()) == (False, None)  # another estimator leads now


@pytest.mark.parametrize(
    ("due_ms", "pause_s"),
    [(None, 0.2), (9_000, 0.2), (1_150, 0.15), (1_001, 0.02), (1_000, 0.02), (950, 0.05), (-50_000, 0.2)],
)
def test_the_service_polls_often_only_near_a_due_step(due_ms: int | None, pause_s: float) -> None:
    assert _pause_s(due_ms, 1_000) == pause_s


def test_a_late_step_is_published_at_its_deadline_and_again(store: MemoryCountStore) -> None:
    log, results = Log([SURVEY.start_ms, SURVEY.start_ms + 1]), MemoryResults()
    schedule = Schedule(SURVEY, store, log, results, [])
    store.commit(0, None, Checkpoint(1, SURVEY.start_ms, pane(0)))  # type: ignore[arg-type]
    deadline = schedule.deadline_ms(0)
    assert schedule.run(deadline - 1) == []
    assert keys(schedule.run(deadline)) == [(0, False)]
    assert keys(schedule.run(deadline)) == []
    store.commit(0, (1, ""), Checkpoint(2, SURVEY.start_ms, pane(0, 6)))  # type: ignore[arg-type]
    again = schedule.run(deadline)
    assert keys(again) == [(0, True)]
    assert again[0].reports == 6
    assert {(p.step, p.complete) for p in results.history()} == {(0, True)}  # the second publication replaces the first


def test_expired_and_unused_partitions_do_not_delay_steps(store: MemoryCountStore) -> None:
    log = Log([SURVEY.start_ms], [], [], begins={0: 0, 1: 0, 2: 700})
    schedule = Schedule(SURVEY, store, log, MemoryResults(), [])
    store.commit(0, None, Checkpoint(1, SURVEY.start_ms, pane(0)))  # type: ignore[arg-type]
    now = SURVEY.closes_ms(0) + MARGIN_MS
    assert schedule.run(now) == []  # partition 2 had records and has no checkpoint
    store.commit(2, None, Checkpoint(700, missing=Missing(0, SURVEY.start_ms - SURVEY.skew_ms, 700)))
    assert keys(schedule.run(now)) == [(0, True)]


@pytest.mark.parametrize("until_ms", [SURVEY.opens_ms(2) - SURVEY.skew_ms, SURVEY.opens_ms(2) - SURVEY.skew_ms + 1])
def test_steps_and_windows_with_lost_records_stay_incomplete(store: MemoryCountStore, until_ms: int) -> None:
    """The count store was lost after part of the log had expired. A step that begins at the end of the gap is complete."""
    steps, lost = SURVEY.window_steps + 6, 2 if until_ms == SURVEY.opens_ms(2) - SURVEY.skew_ms else 3
    log, results, told = Log([SURVEY.opens_ms(s) for s in range(steps)]), MemoryResults(), Told()
    panes = {k: t for s in range(steps) for k, t in pane(s, s + 1).items()}
    store.commit(0, None, Checkpoint(steps, log.times[0][-1], panes, missing=Missing(0, until_ms, 1)))  # type: ignore[arg-type]
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
    log, results = Log([SURVEY.opens_ms(s) for s in range(30)]), MemoryResults()
    gap = Missing(SURVEY.opens_ms(10), SURVEY.opens_ms(12), 11)
    store.commit(0, None, Checkpoint(30, log.times[0][-1], missing=gap))
    made = Schedule(SURVEY, store, log, results, []).run(SURVEY.closes_ms(29) + MARGIN_MS)
    first, last = 10 - SURVEY.lateness_steps, 11 + -(-SURVEY.skew_ms // SURVEY.step_ms)
    assert {s for s, complete in keys(made) if not complete} == set(range(first, last + 1))


def test_counts_of_a_deleted_topic_complete_no_step(store: MemoryCountStore) -> None:
    log = Log([SURVEY.start_ms])
    log.id = "new"
    schedule = Schedule(SURVEY, store, log, MemoryResults(), [])
    now = SURVEY.closes_ms(0) + MARGIN_MS
    store.commit(0, None, Checkpoint(1, SURVEY.start_ms, pane(0), log_id="old"))  # type: ignore[arg-type]
    assert schedule.run(now) == []
    assert store.commit(0, (1, "old"), Checkpoint(1, SURVEY.start_ms, pane(0), log_id="new"))  # type: ignore[arg-type]
    assert keys(schedule.run(now)) == [(0, True)]


def test_no_step_passes_before_a_lost_partition_is_recorded(store: MemoryCountStore) -> None:
    """The topic was created again without partition 1. Some records of partition 1 may not have been counted."""
    log, results = Log([]), MemoryResults()
    log.id = "new"
    store.commit(0, None, Checkpoint(0, SURVEY.start_ms, log_id="new"))
    store.commit(1, None, Checkpoint(1, SURVEY.start_ms, pane(0), log_id="old"))  # type: ignore[arg-type]
    results.save([], None, Progress(first_step=0, next_step=0))
    schedule, now = Schedule(SURVEY, store, log, results, []), SURVEY.closes_ms(0) + MARGIN_MS
    assert schedule.run(now) == []
    gap = Missing(SURVEY.start_ms, now, 0)
    assert store.commit(1, (1, "old"), Checkpoint(0, SURVEY.start_ms, {PaneKey(0, 0, 0): M.empty_table()}, {}, "new", gap))
    made = schedule.run(now)
    assert keys(made) == [(0, False)]
    assert all(p.reports == 0 for p in made)


def test_it_begins_with_the_logs_first_possible_step(store: MemoryCountStore) -> None:
    first = SURVEY.opens_ms(100)
    results = MemoryResults()
    Schedule(SURVEY, store, Log([first]), results, []).run(first + 5 * SURVEY.step_ms)
    progress = results.progress()
    assert progress is not None
    assert progress.first_step == 100 - SURVEY.lateness_steps
    empty, later = MemoryResults(), SURVEY.opens_ms(300)
    schedule = Schedule(SURVEY, store, Log([]), empty, [])
    assert schedule.run(later) == []
    assert empty.progress() is None  # no publication, so no saved progress
    schedule = Schedule(SURVEY, store, Log([later]), empty, [])
    store.commit(0, None, Checkpoint(1, later, pane(300)))  # type: ignore[arg-type]
    assert keys(schedule.run(SURVEY.closes_ms(300) + MARGIN_MS)) == [(299, True), (300, True)]


def test_windows_sum_the_panes_that_they_state(store: MemoryCountStore) -> None:
    steps = SURVEY.window_steps + 3
    times = [SURVEY.opens_ms(s) for s in range(steps)]
    log = Log(times)
    store.commit(0, None, Checkpoint(steps, times[-1], {k: t for s in range(steps) for k, t in pane(s, s + 1).items()}))  # type: ignore[misc]
    made = Schedule(SURVEY, store, log, MemoryResults(), []).run(SURVEY.closes_ms(steps) + MARGIN_MS)
    windows = {p.step: p for p in made if p.span == "window" and p.attribute == "screen"}
    for s in range(steps):
        held = range(max(0, s - SURVEY.window_steps + 1), s + 1)
        assert (windows[s].panes, windows[s].reports) == (len(held), sum(i + 1 for i in held))
    assert windows[steps].panes == SURVEY.window_steps - 1  # the step after the last report is empty


@settings(max_examples=100)
@given(st.data())
def test_any_interleaving_finally_publishes_complete_steps(data: st.DataObject) -> None:
    """Agents lag, the schedule is killed between publishing and saving, and the clock jumps."""
    n, steps = data.draw(st.integers(1, 3)), 5
    times = [sorted(data.draw(st.lists(st.integers(0, steps * SURVEY.step_ms - 1), max_size=6))) for _ in range(n)]
    log = Log(*([SURVEY.start_ms + t for t in partition] for partition in times))
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
    if progress is None:  # nobody ever reported, so there was nothing to publish
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


def test_lost_writes_between_two_reads_prevent_completeness(store: MemoryCountStore) -> None:
    """Example: Redis is killed and restarts without the last second of writes."""
    log = Log([SURVEY.start_ms, SURVEY.start_ms + 1])
    store.commit(0, None, Checkpoint(1, SURVEY.start_ms, pane(0)))  # type: ignore[arg-type]

    class Forgetful(MemoryCountStore):
        def heads(self) -> dict[int, Checkpoint]:
            return {0: Checkpoint(2)}  # the second write is lost after this read

        def checkpoints(self, steps: range) -> dict[int, Checkpoint]:
            return store.checkpoints(steps)

    now = SURVEY.closes_ms(0) + MARGIN_MS
    assert Schedule(SURVEY, Forgetful(SURVEY), log, MemoryResults(), []).run(now) == []
    store.commit(0, (1, ""), Checkpoint(2, SURVEY.start_ms, pane(0, 6)))  # type: ignore[arg-type]
    assert keys(Schedule(SURVEY, Forgetful(SURVEY), log, MemoryResults(), []).run(now)) == [(0, True)]


@settings(max_examples=60)
@given(st.data())
def test_two_estimators_never_replace_a_result_by_a_poorer_one(data: st.DataObject) -> None:
    """Each estimator may be interrupted by the other at every call. All saved and published results are complete."""
    steps = SURVEY.window_steps + 4
    log = Log([SURVEY.opens_ms(s) + 1 for s in range(steps)])
    store, results, told = MemoryCountStore(SURVEY), MemoryResults(), Told()
    panes = {k: t for s in range(steps) for k, t in pane(s, s + 1).items()}
    store.commit(0, None, Checkpoint(steps, log.times[0][-1], panes))  # type: ignore[arg-type]
    now = SURVEY.closes_ms(steps) + MARGIN_MS
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


def test_publications_without_numbers_survive_json() -> None:
    """NaN of an empty step and the missing bound of a one-time level survive JSON."""
    once = parse_survey(
        tomllib.loads("""
        name = "once"
        start = 2026-01-05T00:00:00Z
        step_seconds = 60
        window_steps = 2
        lateness_steps = 0
        collection = "smp"
        [[attribute]]
        name = "a"
        size = 3
        level = [{ name = "l", mechanism = "GRR", eps = 1.0 }]
    """)
    )
    m = once.mechanisms[0][0]
    made = conclude(once, 0, 0, "step", [[m.empty_table()]], True)
    back = msgspec.json.decode(msgspec.json.encode(made), type=Publication)
    assert back == made
    assert back.estimators["mi"].frequencies == [None, None, None]
    assert np.isnan(back.estimators["mi"].estimate().standard_errors).all()
    assert back.privacy["l"].eps_inf is None
    registry = CollectorRegistry()
    publisher = PrometheusPublisher(once, registry)
    publisher.publish([made])
    newer = msgspec.structs.replace(made, step=5)
    publisher.publish([newer])
    publisher.publish([made])  # an old step again
    labels = {"survey": "once", "attribute": "a"}
    assert registry.get_sample_value("ldpstream_estimate_step", labels | {"span": "step"}) == 5
    assert registry.get_sample_value("ldpstream_privacy_eps_inf_nats", labels | {"level": "l"}) == math.inf


def test_a_publication_holds_ibu_and_the_maximum_over_all_levels() -> None:
    survey = parse_survey(
        tomllib.loads("""
        name = "mixed"
        start = 2026-01-05T00:00:00Z
        step_seconds = 60
        window_steps = 2
        lateness_steps = 0
        collection = "smp"
        [[attribute]]
        name = "a"
        size = 50
        level = [{ name = "low", mechanism = "GRR", eps = 2.0 }, { name = "high", mechanism = "OLH", eps = 1.0 }]
    """)
    )
    rng = np.random.default_rng(15)
    levels = survey.mechanisms[0]
    panes = [[m.tabulate(m.simulate(rng.integers(0, 20, 300), rng)) for m in levels] for _ in range(2)]
    made = conclude(survey, 0, 1, "window", panes, True)
    groups = [(m, panes[0][i] + panes[1][i]) for i, m in enumerate(levels)]
    expected = {"ibu": gibu(groups, steps=2, likelihood="support"), "mle": combined_mle(groups, 2, likelihood="support")}
    back = msgspec.json.decode(msgspec.json.encode(made), type=Publication)
    for name, found in expected.items():
        estimate = back.estimators[name].estimate()
        np.testing.assert_array_equal(estimate.frequencies, found.frequencies)
        assert back.estimators[name].interval_withheld == "bias"  # 600 reports of 50 values are few
        assert np.isnan(estimate.standard_errors).all()
        assert (estimate.iterations, estimate.converged, estimate.gap) == (found.iterations, found.converged, found.gap)
    assert expected["mle"].gap < 1e-12 < 1e-6 < expected["ibu"].gap  # stopped before it converged
    assert back.estimators["mi"].gap is None
    assert back == conclude(survey, 0, 1, "window", panes, True)


@pytest.mark.parametrize("window_steps", [1, 3])
def test_diagnostics_are_published(window_steps: int) -> None:
    """Three steps: honest reports, changed values, forged reports. Even the shortest window keeps the previous step."""
    survey = parse_survey(
        tomllib.loads(f"""
        name = "signs"
        start = 2026-01-05T00:00:00Z
        step_seconds = 60
        window_steps = {window_steps}
        lateness_steps = 0
        collection = "smp"
        [[attribute]]
        name = "a"
        size = 8
        level = [{{ name = "l", mechanism = "OUE", eps = 1.0 }}, {{ name = "m", mechanism = "GRR", eps = 1.0 }}]
    """)
    )
    unary, symbols = survey.mechanisms[0]
    rng = np.random.default_rng(31)
    values = rng.choice(3, (3, 5000))
    values[1:] += 4  # from the second step on
    store, results, told = MemoryCountStore(survey), MemoryResults(), Told()
    registry = CollectorRegistry()
    panes: dict[PaneKey, CountTable] = {}
    for step in range(3):
        panes[PaneKey(0, 0, step)] = unary.tabulate(unary.simulate(values[step], rng))
        panes[PaneKey(0, 1, step)] = symbols.tabulate(symbols.simulate(values[step], rng))
    panes[PaneKey(0, 0, 2)] += unary.table(500, np.full(8, 500))
    store.commit(0, None, Checkpoint(3, survey.closes_ms(2) - 1, panes))
    log = Log([survey.opens_ms(step) for step in range(3)])
    schedule = Schedule(survey, store, log, results, [told, PrometheusPublisher(survey, registry)])
    for step in range(3):  # one step at a time, so that old tables are pruned
        schedule.run(survey.closes_ms(step) + MARGIN_MS)
    found = {(p.step, p.span): p.diagnostics for p in told.publications}
    assert found == {
        (p.step, p.span): p.diagnostics
        for p in msgspec.json.decode(msgspec.json.encode(results.history()), type=list[Publication])
    }
    honest, changed, forged = (found[step, "step"] for step in range(3))
    assert (honest.drift_sigma, honest.drift_value, honest.drift_p) == (None, None, None)
    assert changed.drift_sigma is not None
    assert changed.drift_sigma > 10
    assert changed.drift_value in (0, 1, 2, 4, 5, 6)
    assert changed.drift_p is not None
    assert changed.drift_p < 1e-6
    assert all(found[step, "window"].drift_sigma is None for step in range(3))
    for quiet in (honest, changed):
        assert set(quiet.fit_z) == set(quiet.fit_p) == set(quiet.fit_sign) == {"l", "m"}
        assert all(abs(z) < 5 for z in quiet.fit_z.values() if z is not None)
    assert forged.fit_z["l"] is not None
    assert forged.fit_z["l"] > 6
    assert (forged.fit_sign["l"], found[2, "window"].fit_sign["l"]) == ("ones", "ones")
    assert honest.mass_below_zero is not None
    assert 0 < honest.mass_below_zero < 0.3
    labels = {"survey": "signs", "attribute": "a"}
    assert registry.get_sample_value("ldpstream_fit_z", labels | {"level": "l"}) == forged.fit_z["l"]
    assert registry.get_sample_value("ldpstream_drift_sigma", labels) == forged.drift_sigma
    assert registry.get_sample_value("ldpstream_mass_below_zero_ratio", labels | {"span": "step"}) == forged.mass_below_zero


class Unfenced(MemoryCountStore):
    """The control: a store that prunes without a check."""

    def prune(self, before_step: int, seen: Mapping[int, Checkpoint]) -> None:
        super().prune(before_step, self.snapshot())


class Unmarked(MemoryCountStore):
    """The control: a store that does not report pruned steps."""

    def checkpoints(self, steps: range) -> dict[int, Checkpoint]:
        return {p: replace(checkpoint, pruned_below=0) for p, checkpoint in super().checkpoints(steps).items()}


def full(store: MemoryCountStore, steps: int, writer: str) -> Log:
    """Counts five reports in each of `steps` steps; returns the log of these reports."""
    panes = {key: table for step in range(steps) for key, table in pane(step).items()}
    change = Checkpoint(steps, SURVEY.opens_ms(steps - 1), panes, writer=writer)  # type: ignore[arg-type]
    assert store.commit(0, None, change)
    return Log([SURVEY.opens_ms(step) for step in range(steps)])


@pytest.mark.parametrize(("kind", "right"), [(MemoryCountStore, True), (Unfenced, False)])
def test_late_pruning_keeps_tables_that_were_counted_again(kind: type[MemoryCountStore], right: bool) -> None:
    """An estimator hangs between saving and pruning. Meanwhile the store is lost, and the records are counted again."""
    steps, results = SURVEY.window_steps + 4, MemoryResults()
    store = kind(SURVEY)
    log = full(store, steps, "before")
    now = SURVEY.closes_ms(steps - 1) + MARGIN_MS

    class Hanging(kind):  # type: ignore[misc, valid-type]
        def prune(self, before_step: int, seen: Mapping[int, Checkpoint]) -> None:
            store._checkpoints.clear()
            full(store, steps, "after")
            store.prune(before_step, seen)

        def heads(self) -> dict[int, Checkpoint]:
            return store.heads()

        def checkpoints(self, steps: range) -> dict[int, Checkpoint]:
            return store.checkpoints(steps)

    Schedule(SURVEY, store, log, results, []).run(now - SURVEY.step_ms)
    assert keys(Schedule(SURVEY, Hanging(SURVEY), log, results, []).run(now)) == [(steps - 1, True)]
    again = Schedule(SURVEY, store, log, MemoryResults(), []).run(now)
    assert (keys(again) == [(step, True) for step in range(steps)]) is right
    assert all(p.reports == 5 for p in again if p.attribute == "screen" and p.span == "step") is right


@pytest.mark.parametrize(("kind", "right"), [(MemoryCountStore, True), (Unmarked, False)])
def test_a_step_whose_tables_were_pruned_is_never_complete(kind: type[MemoryCountStore], right: bool) -> None:
    """Example: a Redis Cluster fails over and loses only the progress."""
    steps = SURVEY.window_steps + 4
    store = kind(SURVEY)
    log, now = full(store, steps, "a"), SURVEY.closes_ms(steps - 1) + MARGIN_MS
    first = Schedule(SURVEY, store, log, MemoryResults(), []).run(now)
    second = Schedule(SURVEY, store, log, MemoryResults(), []).run(now)
    true = {p.key: p.reports for p in first}
    assert all(p.complete for p in first)
    assert all(p.reports == true[p.key] for p in second if p.complete) is right
    assert any(not p.complete for p in second) is right
    assert second[-1].complete  # the latest tables are there


def test_the_topics_publications_survive_loss_of_the_store(store: MemoryCountStore) -> None:
    """No step is published again, and the results are restored from the topic."""
    steps, topic = SURVEY.window_steps + 4, MemoryTopic(lambda: SURVEY.start_ms)
    log, now = full(store, steps, "a"), SURVEY.closes_ms(steps - 1) + MARGIN_MS
    before = MemoryResults()
    Schedule(SURVEY, store, log, before, [], topic=TopicClient(topic)).run(now)
    told = list(topic.records)
    assert len(told) == 2 * len(SURVEY.attributes) * steps
    results, anew = MemoryResults(), MemoryCountStore(SURVEY)
    schedule = Schedule(SURVEY, anew, log, results, [], topic=TopicClient(topic))
    assert schedule.run(now + 9 * SURVEY.step_ms)  # all deadlines have passed, and no record is counted yet
    history = [p for p in results.history() if p.step < steps]
    assert history == before.history()
    assert topic.records[: len(told)] == told
    assert all(p.step >= steps for _, p in topic.records[len(told) :])
    full(anew, steps, "b")
    schedule.run(now + 9 * SURVEY.step_ms)
    assert [p for p in results.history() if p.step < steps] == before.history()


def test_a_replaced_estimator_publishes_nothing(store: MemoryCountStore) -> None:
    """An estimator hangs before it publishes an incomplete step. Meanwhile another estimator publishes the complete step."""
    close, topic, results = SURVEY.closes_ms(0), MemoryTopic(lambda: SURVEY.start_ms), MemoryResults()
    log = Log([SURVEY.start_ms, close - 1, close])
    store.commit(0, None, Checkpoint(1, SURVEY.start_ms, pane(0)))  # type: ignore[arg-type]
    other = Schedule(SURVEY, store, log, results, [], topic=TopicClient(topic))

    class Slow(TopicClient):
        def publish(self, publications: list[Publication]) -> None:
            store.commit(0, (1, ""), Checkpoint(3, close, pane(0)))  # type: ignore[arg-type]
            assert other.run(close + MARGIN_MS)
            super().publish(publications)

    slow = Schedule(SURVEY, store, log, results, [], topic=Slow(topic))
    with pytest.raises(LogUnavailable):
        slow.run(slow.deadline_ms(0))
    assert keys([p for _, p in topic.records]) == [(0, True)]
    assert slow.run(slow.deadline_ms(0)) == []
    assert list(topic.last.values()) == results.get(list(topic.last))
