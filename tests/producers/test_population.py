"""Tests of the population: memoization, reproducible steps, enrolment and truth."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy.stats import chisquare

from ldpstream.mechanisms import LONGITUDINAL, Reports
from ldpstream.mechanisms.arguments import IntArray
from ldpstream.producers.memos import Memos
from ldpstream.producers.population import PaneReports, Population
from ldpstream.producers.randomness import Purpose, stream
from ldpstream.producers.values import MarkovValues
from ldpstream.surveys import Cohort, Survey
from tests.producers.samples import WrittenValues, level, make_survey, one_question

FALSE_ALARM = 1e-6
EXACT = 700.0  # with this ε one-time GRR reports the true value


def forget(memos: Memos, devices: IntArray, keys: IntArray, draw: Callable[[IntArray], Reports]) -> Reports:
    """A broken store: draws every memo again."""
    return draw(np.arange(len(devices)))


def only(panes: Iterator[PaneReports]) -> PaneReports:
    (pane,) = panes
    return pane


# ---- memoization


def reports_of_a_b_a(name: str) -> list[list[object]]:
    """Returns reports of A, B, A by 100 populations of one person. The second round nearly always repeats the memo."""
    survey = one_question(name, k=50, eps_inf=1.0, eps_1=1.0 - 1e-12)
    populations = [Population(survey, WrittenValues([[3], [8], [3]]), seed) for seed in range(100)]
    return [[only(population.reports(step)).reports.tolist() for population in populations] for step in range(3)]


# the second round of L-SOUE and L-OUE keeps a one with probability 1/2, so their reports cannot show the memo
@pytest.mark.parametrize("name", [name for name in LONGITUDINAL if not name.endswith("OUE") or name == "L-OSUE"])
def test_the_reports_show_the_memo(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A symbol or bit of a report differs from its memo with probability below 2e-12. 15 000 symbols or bits are compared."""
    first, _, again = reports_of_a_b_a(name)
    assert again == first
    monkeypatch.setattr(Memos, "recall", forget)
    first, _, again = reports_of_a_b_a(name)
    assert again != first


@pytest.mark.parametrize(("name", "at_most"), [("L-GRR", 10), ("L-OSUE", 10), ("L-BLH", 2)])
def test_a_device_draws_at_most_the_mechanisms_max_memos(name: str, at_most: int) -> None:
    n_people, n_steps = 40, 60
    rng = np.random.default_rng(1)
    population = Population(one_question(name), WrittenValues(rng.integers(0, 10, (n_steps, n_people)).tolist()), 1)
    for step in range(n_steps):
        only(population.reports(step))
    (group,) = population._groups
    assert n_people < len(group._memos._codes) <= at_most * n_people


def test_a_device_keeps_its_hash_function() -> None:
    population = Population(one_question("L-OLH", k=1000), WrittenValues([[v, (v + 1) % 1000] for v in range(20)]), 1)
    functions = [sorted(only(population.reports(step)).reports["function"].tolist()) for step in range(20)]
    assert all(pair == functions[0] for pair in functions)
    assert functions[0][0] != functions[0][1]


# ---- a step depends only on the seed

MIXED = make_survey({"mode": (5, [level("L-GRR"), level("OLH")]), "zone": (12, [level("L-OSUE"), level("L-OLH"), level("SS")])})


def contents(panes: Iterator[PaneReports]) -> list[tuple[int, int, int, bytes, list[int]]]:
    return [(b.attribute, b.level, b.step, b.reports.tobytes(), b.truth.tolist()) for b in panes]


EXPECTED = [contents(Population(MIXED, MarkovValues(MIXED, 60, 5, 7), 7).reports(step)) for step in range(5)]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), max_size=8))
def test_a_step_does_not_depend_on_earlier_calls(asked: list[tuple[int, int]]) -> None:
    population = Population(MIXED, MarkovValues(MIXED, 60, 5, 7), 7)
    for step, n_panes in asked:
        for _ in zip(range(n_panes), population.reports(step)):
            pass  # the caller may stop before the last pane
    for step in (3, 1, 4):
        assert contents(population.reports(step)) == EXPECTED[step]


# ---- levels with `every_steps`


def times(level: dict[str, object], steps: list[list[int | None]]) -> list[list[int]]:
    """Returns the steps at which each person reports. Every person's value is the person's number, and every report shows the
    value."""
    survey = make_survey({"zone": (len(steps[0]), [level])})
    population = Population(survey, WrittenValues(steps), 3)
    panes = {step: list(population.reports(step)) for step in range(len(steps))}
    for step, found in panes.items():
        for pane in found:
            assert pane.truth.sum() == sum(value is not None for value in steps[step])  # also counts people who do not report
    return [
        [step for step, found in panes.items() if any(person in pane.reports for pane in found)]
        for person in range(len(steps[0]))
    ]


def test_people_report_only_at_the_steps_of_their_phase() -> None:
    n_people, n_steps = 300, 12
    spaced = {**level("GRR", eps_1=EXACT), "every_steps": 3}
    found = times(spaced, [list(range(n_people))] * n_steps)
    assert all(steps == list(range(steps[0], n_steps, 3)) for steps in found)
    assert chisquare(np.bincount([steps[0] for steps in found], minlength=3)).pvalue > FALSE_ALARM
    limited = times({**spaced, "lifetime_reports": 2}, [list(range(n_people))] * n_steps)
    assert limited == [steps[:2] for steps in found]


def test_a_missed_step_is_skipped_and_does_not_count_as_a_report() -> None:
    spaced = {**level("GRR", eps_1=EXACT), "every_steps": 2, "lifetime_reports": 2}
    steps: list[list[int | None]] = [[0, 1, 2, 3]] * 8
    everybody = times(spaced, steps)
    (one, *_) = [person for person in range(4) if everybody[person][0] == 0]
    steps = [[None if step == 2 and person == one else person for person in range(4)] for step in range(8)]
    assert times(spaced, steps)[one] == [0, 4]
    assert [found for person, found in enumerate(times(spaced, steps)) if person != one] == [
        found for person, found in enumerate(everybody) if person != one
    ]


def test_purposes_and_places_share_no_randomness() -> None:
    draws = [int(stream(7, purpose, a, b).integers(2**62)) for purpose in Purpose for a in range(4) for b in range(4)]
    assert len(set(draws)) == len(draws)
    assert stream(7, Purpose.MEMOS, 1, 2).integers(2**62) == stream(7, Purpose.MEMOS, 1, 2).integers(2**62)


# ---- enrolment, truth and reports


def who(pane: PaneReports) -> list[int]:
    """Returns the people of a pane, in a survey where each person's value is the person's number."""
    return np.flatnonzero(pane.truth).tolist()


def everyone_tells_their_number(collection: str, n_people: int, n_steps: int = 2) -> tuple[Survey, Population]:
    levels = [level("GRR", eps_1=EXACT), {**level("GRR", eps_1=EXACT), "name": "other"}]
    survey = make_survey(dict.fromkeys(("a", "b", "c"), (n_people, levels)), collection)
    return survey, Population(survey, WrittenValues([list(range(n_people))] * n_steps), 5)


def test_under_smp_a_person_always_answers_one_attribute() -> None:
    """Makes two tests of uniformity. With random seeds, each would have a false-alarm rate of 1e-6."""
    n = 6000
    _, population = everyone_tells_their_number("smp", n)
    first, second = ({(b.attribute, b.level): who(b) for b in population.reports(step)} for step in range(2))
    assert first == second
    assert sorted(person for people in first.values() for person in people) == list(range(n))
    sizes = np.array([[len(first[a, lvl]) for lvl in range(2)] for a in range(3)])
    assert chisquare(sizes.sum(axis=1)).pvalue > FALSE_ALARM
    assert chisquare(sizes.ravel()).pvalue > FALSE_ALARM
    assert chisquare(sizes.sum(axis=1) + np.array([300, 0, -300])).pvalue < FALSE_ALARM  # control: the test detects a bias


def test_under_spl_everybody_answers_every_attribute() -> None:
    n = 6000
    _, population = everyone_tells_their_number("spl", n)
    panes = {(b.attribute, b.level): who(b) for b in population.reports(0)}
    for attribute in range(3):
        assert sorted(panes[attribute, 0] + panes[attribute, 1]) == list(range(n))
        assert chisquare([len(panes[attribute, lvl]) for lvl in range(2)]).pvalue > FALSE_ALARM
    assert panes[0, 0] != panes[1, 0]  # each attribute has independent levels


def test_the_truth_counts_exactly_the_reporting_people() -> None:
    survey = make_survey({"zone": (6, [level("GRR", eps_1=EXACT), {**level("GRR", eps_1=EXACT), "name": "other"}])})
    steps: list[list[int | None]] = [[0, 1, None, 1, 5, 5, 5], [None] * 7, [2, None, None, None, None, None, None]]
    population = Population(survey, WrittenValues(steps), 2)
    for step, values in enumerate(steps):
        panes = list(population.reports(step))
        for pane in panes:
            # reports equal the true values in this test
            assert np.bincount(pane.reports, minlength=6).tolist() == pane.truth.tolist()
            assert pane.truth.dtype == np.int64
        total = sum((pane.truth for pane in panes), np.zeros(6, np.int64))
        assert total.tolist() == [values.count(value) for value in range(6)]
    assert list(population.reports(1)) == []


@pytest.mark.parametrize("step", [-1, 3, 1.0])
def test_a_step_outside_the_source_is_refused(step: int) -> None:
    population = Population(MIXED, MarkovValues(MIXED, 1, 3, 1), 1)
    with pytest.raises(ValueError, match=r"step must be an integer in \[0, 2\]"):
        list(population.reports(step))


def test_a_value_outside_the_domain_is_refused_and_not_shown() -> None:
    population = Population(one_question("L-GRR"), WrittenValues([[1, 77]]), 1)
    with pytest.raises(ValueError, match="1 outside") as caught:
        list(population.reports(0))
    assert "77" not in str(caught.value)


# ---- cohorts


def test_the_cohorts_share_the_reports_of_a_survey_without_cohorts() -> None:
    """Everybody keeps one cohort, and the cohorts together have the reports that the same people make without cohorts."""
    cohort = Cohort(name="version", values=("1.0", "1.1", "other"), least=10)
    survey = replace(MIXED, cohort=cohort)
    population, plain = (Population(asked, MarkovValues(MIXED, 6000, 3, 7), 7) for asked in (survey, MIXED))
    sizes = []
    for step in range(3):
        panes = list(population.reports(step))
        assert len({(pane.attribute, pane.level, pane.cohort) for pane in panes}) == len(panes)
        for whole in plain.reports(step):
            parts = [pane for pane in panes if (pane.attribute, pane.level) == (whole.attribute, whole.level)]
            m = MIXED.mechanisms[whole.attribute][whole.level]
            assert sum((m.tabulate(part.reports) for part in parts), m.empty_table()) == m.tabulate(whole.reports)
            assert np.sum([part.truth for part in parts], axis=0).tolist() == whole.truth.tolist()
        sizes.append([sum(len(pane.reports) for pane in panes if pane.cohort == c) for c in range(3)])
    assert sizes[0] == sizes[1] == sizes[2]
    assert chisquare(sizes[0], np.array([6, 3, 2]) / 11 * 6000).pvalue > FALSE_ALARM
    assert chisquare(sizes[0], np.full(3, 2000)).pvalue < FALSE_ALARM
