"""Tests of the span "filtered" in the schedule: the filter sees each step once, in order, with its final counts."""

import contextlib
from copy import deepcopy

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ldpstream.engines import PaneKey
from ldpstream.engines.checkpoint import Checkpoint, Missing
from ldpstream.estimators.filter.local_level import LocalLevel
from ldpstream.estimators.filter.step_noise import step_noise
from ldpstream.estimators.matrix_inversion import matrix_inversion
from ldpstream.estimators.post_processing import post_process
from ldpstream.mechanisms import CountTable
from ldpstream.publishing.estimates import publication as publications
from ldpstream.publishing.estimates.filtering import conclude_filtered
from ldpstream.publishing.estimates.publication import Publication, publication_keys, spans
from ldpstream.publishing.progress import Filters
from tests.faults.memory_store import MemoryCountStore, MemoryResults
from tests.faults.memory_topic import MemoryTopic, TopicClient

from .schedule_rig import MARGIN_MS, SURVEY, Schedule, ScheduleLog, Told, concluded_once

STEPS = 7
QUIET, JUMPED = [0.5, 0.1, 0.1, 0.1, 0.1, 0.1], [0.2, 0.4, 0.1, 0.1, 0.1, 0.1]
DONE_MS = SURVEY.closes_ms(STEPS - 1) + MARGIN_MS


def panes(step: int, people: int = 200) -> dict[PaneKey, CountTable]:
    """Returns count tables of all attributes and levels, which depend on the step only; none at step 3."""
    rng = np.random.default_rng([step, 9])
    return {
        PaneKey(a, i, step): m.tabulate(m.simulate(rng.integers(0, m.k, people), rng))
        for a, mechanisms in enumerate(SURVEY.mechanisms)
        for i, m in enumerate(mechanisms)
        if step != 3
    }


def counted(steps: int, newest_ms: int | None = None) -> tuple[MemoryCountStore, ScheduleLog]:
    """Returns a store with the counts of the first steps, and a log with one record in every step.

    The last counted record's append time is the beginning of its step, or `newest_ms`.
    """
    store, log = MemoryCountStore(SURVEY), ScheduleLog([SURVEY.opens_ms(s) for s in range(STEPS)])
    every = {key: table for step in range(steps) for key, table in panes(step).items()}
    store.commit(0, None, Checkpoint(steps, SURVEY.opens_ms(steps - 1) if newest_ms is None else newest_ms, every))
    return store, log


def curve(results: MemoryResults) -> tuple[list[Publication], Filters]:
    return [p for p in results.history() if p.span == "filtered"], results.filters()


@pytest.fixture(scope="module")
def undisturbed() -> tuple[list[Publication], Filters]:
    store, log = counted(STEPS)
    results = MemoryResults()
    Schedule(SURVEY, store, log, results, []).run(DONE_MS)
    return curve(results)


def test_the_published_curve_is_that_of_the_filter(undisturbed: tuple[list[Publication], Filters]) -> None:
    """Compares with a filter that is fed directly. Step 3 has no reports: the filter predicts, and the intervals widen."""
    made, after = undisturbed
    for a, (attribute, mechanisms) in enumerate(zip(SURVEY.attributes, SURVEY.mechanisms, strict=True)):
        level = LocalLevel(attribute.k)
        for p in (p for p in made if p.attribute == attribute.name):
            tables = panes(p.step)
            groups = [(m, tables.get(PaneKey(a, i, p.step), m.empty_table())) for i, m in enumerate(mechanisms)]
            raw = matrix_inversion(groups).frequencies
            if p.step == 3:
                assert np.isnan(raw).all()
                found = level.skip()
            else:
                expected = level.predicted if level.observed else raw
                noise = step_noise([(m, table.n) for m, table in groups], expected)
                found = level.step(raw, noise.fresh, noise.lasting, noise.skewness)
            result = p.estimators[p.main]
            assert (list(p.estimators), p.complete, p.panes) == (["filter"], True, level.observed)
            assert p.reports == sum(table.n for _, table in groups)
            np.testing.assert_allclose(result.estimate().frequencies, post_process(found.frequencies, "norm-sub"), rtol=1e-12)
            assert result.standard_errors == found.standard_errors.tolist()
        assert after[attribute.name] == level.to_bytes()
    errors = {p.step: p.estimators["filter"].standard_errors[0] for p in made if p.attribute == "screen"}
    assert len(errors) == STEPS
    assert (errors[3] or 0) > (errors[2] or 0) > 0


def test_nobody_has_reported_yet() -> None:
    store, log = MemoryCountStore(SURVEY), ScheduleLog([SURVEY.start_ms])
    store.commit(0, None, Checkpoint(1, SURVEY.start_ms))
    results = MemoryResults()
    Schedule(SURVEY, store, log, results, []).run(SURVEY.closes_ms(0) + MARGIN_MS)
    for p in curve(results)[0]:
        found = p.estimators["filter"]
        assert (p.reports, p.panes, found.converged) == (0, 0, False)
        assert set(found.frequencies) == set(found.standard_errors) == {None}


def test_a_preliminary_curve_leaves_the_filter_as_it_was(undisturbed: tuple[list[Publication], Filters]) -> None:
    """Steps 2 to 4 are published at their deadlines, step 4 with half of its reports. The steps are completed later."""
    store, log = counted(3, SURVEY.closes_ms(1))
    results, told = MemoryResults(), Told()
    schedule = Schedule(SURVEY, store, log, results, [told])
    schedule.run(SURVEY.closes_ms(1) + MARGIN_MS)
    before = results.filters()
    store.commit(0, (3, ""), Checkpoint(3, SURVEY.closes_ms(1) + 1, panes(4, 100), writer="half"))
    late = schedule.run(schedule.deadline_ms(4))
    assert [(p.step, p.complete) for p in late if p.attribute == "screen" and p.span == "filtered"] == [
        (step, False) for step in (2, 3, 4)
    ]
    assert results.filters() == before
    assert {LocalLevel.from_bytes(state).next_step for state in before.values()} == {2}
    every = {key: table for step in range(3, STEPS) for key, table in panes(step).items()}
    store.commit(0, (3, ""), Checkpoint(STEPS, SURVEY.opens_ms(STEPS - 1), every, base_writer="half"))
    schedule.run(DONE_MS)
    assert curve(results) == undisturbed
    first = next(p for p in told.publications if p.span == "filtered" and p.step == 4)
    last = next(p for p in reversed(told.publications) if p.span == "filtered" and p.step == 4)
    assert first.estimators != last.estimators


@concluded_once()
@settings(max_examples=15)
@given(data=st.data())
def test_any_interleaving_gives_the_same_curve(undisturbed: tuple[list[Publication], Filters], data: st.DataObject) -> None:
    """Counts come late, and estimators are killed before and after publishing. The curve and the states are the same bits."""
    store, log = counted(1)
    topic, results = MemoryTopic(lambda: 0), MemoryResults()
    reached = 1

    class Killed(Exception):
        pass

    class Killing(TopicClient):
        def publish(self, made: list[Publication]) -> int:
            how = data.draw(st.sampled_from(["before", "after", "never", "never"]))
            if how == "before":
                raise Killed
            end = super().publish(made)
            if how == "after":
                raise Killed
            return end

    for _ in range(data.draw(st.integers(3, 10))):
        if data.draw(st.booleans()) and reached < STEPS:
            store.commit(0, (reached, ""), Checkpoint(reached + 1, SURVEY.opens_ms(reached), panes(reached)))
            reached += 1
        schedule = Schedule(SURVEY, store, log, results, [], topic=Killing(topic))
        with contextlib.suppress(Killed):
            schedule.run(SURVEY.closes_ms(data.draw(st.integers(0, STEPS - 1))) + MARGIN_MS)
    while reached < STEPS:
        store.commit(0, (reached, ""), Checkpoint(reached + 1, SURVEY.opens_ms(reached), panes(reached)))
        reached += 1
    Schedule(SURVEY, store, log, results, [], topic=TopicClient(topic)).run(DONE_MS)
    assert curve(results) == undisturbed


def test_steps_are_restored_in_order() -> None:
    """Redis comes back from an old copy. Four steps of the copy are open, and some stay incomplete for ever: records were lost.

    The filters see every step again, in order, and end with the same bits as before.
    """
    topic, (store, log), results = MemoryTopic(lambda: 10**15), counted(STEPS), MemoryResults()
    log.times.append([SURVEY.opens_ms(1)])  # a second partition, whose only record is lost
    log.begins[1] = 0
    log.markers.append([])
    schedule = Schedule(SURVEY, store, log, results, [], topic=TopicClient(topic))
    schedule.run(schedule.deadline_ms(3))
    copy = deepcopy((results._publications, results._progress, results._filters))
    opened = results.progress()
    assert opened is not None
    assert opened.incomplete == (0, 1, 2, 3)
    gap = Missing(SURVEY.opens_ms(1) - SURVEY.skew_ms, SURVEY.opens_ms(1) + 1, 1)
    store.commit(1, None, Checkpoint(1, SURVEY.opens_ms(STEPS - 1), missing=gap))
    schedule.run(DONE_MS)
    lost = {p.step for p in results.history() if not p.complete}
    assert lost
    again = MemoryResults()
    again._publications, again._progress, again._filters = copy
    recounted, _ = counted(STEPS)
    recounted.commit(1, None, Checkpoint(1, SURVEY.opens_ms(STEPS - 1), missing=gap))
    Schedule(SURVEY, recounted, log, again, [], topic=TopicClient(topic)).run(DONE_MS)
    assert again.progress() is not None
    assert {LocalLevel.from_bytes(state).next_step for state in again.filters().values()} == {STEPS}
    assert curve(again) == curve(results)


def test_a_preliminary_publication_states_no_jump() -> None:
    """After 40 equal steps the share of a value jumps. Only the final publication says so."""
    m, rng = SURVEY.mechanisms[0][0], np.random.default_rng(6)
    step = Publication(
        survey="", fingerprint="", attribute="screen", step=0, span="step", panes=1, reports=3000, complete=True, estimators={},
        privacy={}, diagnostics=publications.Diagnostics(mass_below_zero=None, fit_z={}),
    )  # fmt: skip
    state: bytes | None = None
    for t in range(41):
        table = m.tabulate(m.simulate(rng.choice(m.k, 3000, p=JUMPED if t == 40 else QUIET), rng))
        before = state
        found, state = conclude_filtered((m,), [table], [msgspec.structs.replace(step, step=t)], state)
        assert (found.change is not None) == (t == 40)
    assert found.change is not None
    assert found.change.changed_at == 40
    assert found.change.value in (0, 1)
    preliminary, _ = conclude_filtered((m,), [table], [msgspec.structs.replace(step, step=t)], before, final=False)
    assert preliminary == msgspec.structs.replace(found, change=None)


def behind() -> bytes:
    """Returns the state of a filter that has observed steps 0 and 1."""
    level = LocalLevel(6)
    for _ in range(2):
        level.step(np.full(6, 1 / 6), np.full(6, 0.01))
    return level.to_bytes()


UNUSABLE = (None, b"", b"{}", LocalLevel(3).to_bytes(), LocalLevel(6, next_step=99).to_bytes())


@pytest.mark.parametrize(("state", "seen"), [*((state, 0) for state in UNUSABLE), (behind(), 2)])
def test_a_filter_without_a_usable_state_starts_anew(state: bytes | None, seen: int) -> None:
    """The state is lost, damaged, belongs to another number of values, or belongs to a later step. Control: an earlier step."""
    store, log = counted(STEPS)
    results = MemoryResults()
    Schedule(SURVEY, store, log, results, []).run(SURVEY.closes_ms(3) + MARGIN_MS)
    results._filters.clear()
    results._filters.update({} if state is None else {attribute.name: state for attribute in SURVEY.attributes})
    made = Schedule(SURVEY, store, log, results, []).run(DONE_MS)
    assert [p.panes for p in made if p.span == "filtered" and p.attribute == "screen"] == [seen + 1, seen + 2, seen + 3]


def test_attributes_with_many_values_have_no_filtered_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publications, "MAX_FILTERED", 6)
    store, log = counted(STEPS)
    results = MemoryResults()
    Schedule(SURVEY, store, log, results, []).run(DONE_MS)
    assert {p.attribute for p in curve(results)[0]} == set(results.filters()) == {"screen"}
    assert [len(spans(attribute)) for attribute in SURVEY.attributes] == [3, 2]
    assert len(publication_keys(SURVEY, 0)) == 5
    assert len(results.history()) == 5 * STEPS


def test_a_curve_over_levels_that_differ_has_no_intervals() -> None:
    """The two levels of an attribute have opposite values, so an estimate over both is biased."""
    rng, made = np.random.default_rng(5), {}
    for i, m in enumerate(SURVEY.mechanisms[1]):
        made[PaneKey(1, i, 0)] = m.tabulate(m.simulate(np.full(4000, (m.k - 1) * i), rng))
    store, log, results = MemoryCountStore(SURVEY), ScheduleLog([SURVEY.start_ms]), MemoryResults()
    store.commit(0, None, Checkpoint(1, SURVEY.start_ms, made))
    Schedule(SURVEY, store, log, results, []).run(SURVEY.closes_ms(0) + MARGIN_MS)
    withheld = {p.attribute: p.estimators["filter"].interval_withheld for p in curve(results)[0]}
    assert withheld == {"screen": None, "latency_ms": "levels"}
