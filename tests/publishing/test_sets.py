"""The published estimates of questions with several answers: shares of people, in publications, API, CSV and exports."""

import csv
import io
import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from lab.bench.sets import population
from ldpstream.engines.checkpoint import tables_of
from ldpstream.estimators.empirical_bayes import empirical_bayes
from ldpstream.estimators.estimate import NORMAL, Estimate
from ldpstream.estimators.filter.local_level import Filtered
from ldpstream.estimators.filter.step_noise import step_noise
from ldpstream.estimators.matrix_inversion import matrix_inversion
from ldpstream.estimators.post_processing import post_process
from ldpstream.estimators.sets import mean_choices, mean_of_filtered, shares_of_people
from ldpstream.mechanisms import Mechanism, mechanism
from ldpstream.mechanisms.families.padded_sampling import PaddedSampling
from ldpstream.publishing.estimates.conclusions import pooled
from ldpstream.publishing.estimates.filtering import replay
from ldpstream.publishing.estimates.frequencies import with_nan
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.services.demo import Demo
from tests.publishing import cohort_rig as rig
from tests.set_survey import LEVEL, ONCE, set_survey

SPACED = ONCE | {"name": "spaced", "every_steps": 2}
COHORT = {"name": "version", "values": ["1", "2"], "least": 10}
SURVEY, STEPS = set_survey(apps={"level": [LEVEL, SPACED]}, lateness_steps=1, cohort=COHORT), 4
PATH = "/api/v1/attributes/apps"


@cache
def demo() -> Demo:
    return rig.demo_of(SURVEY, 8000, STEPS)


@cache
def client() -> TestClient:
    return rig.client_of(SURVEY, demo())


def published(span: str, step: int = STEPS - 1, cohort: str | None = None) -> Publication:
    history = demo().service.results.history()
    [found] = [p for p in history if (p.span, p.step, p.cohort) == (span, step, cohort)]
    return found


def get(path: str, **query: Any) -> Any:
    answer = client().get(f"{PATH}/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def counts(steps: range) -> tuple[Any, Any]:
    tables = demo().service.store.tables(range(STEPS))
    by_cohort = [[tables_of(SURVEY, tables, 0, s, c) for c in range(2)] for s in steps]
    panes = [[one + two for one, two in zip(*both, strict=True)] for both in by_cohort]
    return pooled(SURVEY.mechanisms[0], panes)


@pytest.mark.parametrize(("span", "steps"), [("step", range(3, 4)), ("window", range(2, 4))])
def test_shares_of_people_are_three_times_the_shares_of_drawn_members(span: str, steps: range) -> None:
    groups, reports = counts(steps)
    raw, default = matrix_inversion(groups, steps=reports), empirical_bayes(groups, ordered=False, steps=reports)
    p = published(span)
    np.testing.assert_allclose(p.estimators["mi"].estimate().frequencies, 3 * raw.frequencies)
    np.testing.assert_allclose(p.estimators["mi"].estimate().standard_errors, 3 * raw.standard_errors)
    assert np.sum(p.estimators["mi"].estimate().frequencies) == pytest.approx(3)
    np.testing.assert_allclose(p.estimators["eb"].estimate().frequencies, shares_of_people(default, 3).frequencies)
    low, high = default.interval()
    np.testing.assert_allclose(with_nan(p.estimators["eb"].low or []), 3 * low)
    np.testing.assert_allclose(with_nan(p.estimators["eb"].high or []), np.minimum(3 * high, 1))
    for level, (m, table), most in zip(p.levels.values(), groups, reports, strict=True):
        np.testing.assert_allclose(with_nan(level.frequencies), 3 * matrix_inversion(m, table, steps=most).frequencies)
    mean = mean_choices(groups, reports)
    assert mean is not None
    assert (p.numbers["mean"].value, p.numbers["mean"].low, p.numbers["mean"].high) == (mean.value, mean.low, mean.high)


def test_the_truth_lies_in_most_intervals_of_every_span_and_cohort() -> None:
    """8 shares of 4 steps; the shares of two steps depend on each other."""
    for span, cohort in (("step", None), ("window", None), ("filtered", None), ("step", "1"), ("window", "2")):
        inside, means = [], []
        for step in range(STEPS):
            p = published(span, step, cohort)
            truth = demo().truth.of(p).shares
            assert truth is not None
            assert sum(truth) == pytest.approx(3)
            low, high = p.estimators[p.main].estimate().interval()
            inside += ((low <= truth) & (truth <= high)).tolist()
            mean = p.numbers["mean"]
            assert mean.low is not None
            assert mean.high is not None
            means.append(mean.low <= sum(truth[:5]) <= mean.high)
        assert np.mean(inside) > 0.8, (span, cohort)
        assert sum(means) >= 3, (span, cohort)


def test_the_mean_number_of_values_has_the_stated_error() -> None:
    """The ratio of the variance of 1000 estimates to the stated one is in 1 ± 0.2, except with probability 1e-5."""
    m, rng = SURVEY.mechanisms[0][0], np.random.default_rng(11)
    everybody = rng.choice([0, 1, 3, 7, 11], 50_000, p=[0.1, 0.2, 0.3, 0.2, 0.2])
    truth = float(np.bitwise_count(everybody).mean())
    found = []
    for _ in range(1000):
        one = mean_choices([(m, m.tabulate(m.simulate(rng.choice(everybody, 3000), rng)))], [1])
        assert one is not None
        found.append((one.value, (one.high - one.low) / 2 / 1.959964))
    values, errors = np.array(found).T
    assert values.var() / (errors**2).mean() == pytest.approx(1, abs=0.2)
    assert abs(values.mean() - truth) < 5 * errors.mean() / np.sqrt(1000)
    assert mean_choices([(m, m.empty_table())], [1]) is None


FILTERED = [
    mechanism("PS-GRR", 5, eps=4.0, choices=3),
    mechanism("PS-GRR", 5, eps=1.0, choices=3).spaced(4),
    mechanism("L-PS-GRR", 5, eps_inf=4.0, eps_1=2.0, choices=3),
]


@pytest.mark.parametrize("m", FILTERED, ids=repr)
def test_the_filtered_mean_has_the_error_of_the_choice_of_people_after_many_steps(m: Mechanism) -> None:
    """After many steps only lasting noise is left. That of PS-GRR is the choice of the people: exact. Memos add more noise."""
    everybody, people = np.repeat([0, 1, 3, 7, 11], [100, 200, 300, 200, 200]), 1000
    shares, sizes = m.counts_of(everybody) / everybody.size / 3, np.bitwise_count(everybody)
    lasting = step_noise([(m, people)], shares).lasting
    half = NORMAL * np.sqrt(lasting)
    found = Filtered(shares, shares - half, shares + half, lasting, None)
    number = mean_of_filtered(found, (m,))
    assert number is not None
    assert number.value == pytest.approx(sizes.mean())
    error, chosen = (number.high - number.low) / 2 / NORMAL, math.sqrt(sizes.var() / people / m.every_steps)
    assert error == pytest.approx(chosen) if m.name == "PS-GRR" else error > 1.1 * chosen
    fresh = mean_of_filtered(replace(found, lasting=np.zeros(8)), (m,))
    assert fresh is not None
    assert (fresh.high - fresh.low) / 2 / NORMAL == pytest.approx(3 * math.sqrt(lasting[5:].sum()))
    if m.name == "PS-GRR":  # the control: dummies as if they were independent
        assert fresh.high - fresh.low < 0.8 * (number.high - number.low)
    assert mean_of_filtered(replace(found, frequencies=np.full(8, np.nan)), (m,)) is None


def test_an_estimate_without_negative_shares_has_no_share_above_one() -> None:
    drawn = Estimate(np.array([0.5, 0.3, 0.2]), np.full(3, 0.1), 100)
    assert drawn.times(None) is drawn
    np.testing.assert_allclose(drawn.times(3, 1.0).frequencies, [1.0, 0.9, 0.6])
    np.testing.assert_allclose(drawn.times(3).frequencies, [1.5, 0.9, 0.6])
    np.testing.assert_allclose(drawn.times(3).standard_errors, 0.3)


def test_post_processing_projects_the_shares_of_drawn_members() -> None:
    raw = np.array(get("histogram", estimator="mi")["frequencies"], float)
    found = np.array(get("histogram", estimator="mi", post="norm-sub")["frequencies"], float)
    np.testing.assert_allclose(found, np.minimum(3 * post_process(raw / 3, "norm-sub"), 1))
    assert 0 <= found.min() <= found.max() <= 1
    assert get("histogram", top=2)["others"] is None


def test_differences_of_two_steps_have_errors_of_people() -> None:
    found = get("comparison", before=0, step=3, span="step", estimator="mi", top=8)
    assert found["basis"] == "any"  # two levels
    one, other = (published("step", step).estimators["mi"].estimate() for step in (0, 3))
    order = found["values"]
    np.testing.assert_allclose(found["differences"], (other.frequencies - one.frequencies)[order])
    np.testing.assert_allclose(found["standard_errors"], (one.standard_errors + other.standard_errors)[order])
    survey = set_survey(lateness_steps=1)
    single = rig.client_of(survey, rig.demo_of(survey, 2000, 3))
    found = single.get(f"{PATH}/comparison", params={"before": 0, "step": 2, "span": "step", "estimator": "mi"}).json()
    assert found["basis"] == "inversion"
    inside = np.abs(np.subtract(found["differences"], found["truth"])) < 4 * np.array(found["standard_errors"])
    assert inside.all()  # each of 8 fails with probability below 1e-4


def test_the_filter_continues_from_a_restored_step() -> None:
    p = published("step", 0)
    state = replay(SURVEY.mechanisms[0], p, None)
    assert demo().service.results.filters()["apps"]
    assert state
    curve = published("filtered").estimators["filter"].estimate().frequencies
    assert 0 <= curve.min() <= curve.max() <= 1
    assert curve.sum() == pytest.approx(3, abs=0.2)


def test_the_api_describes_the_question() -> None:
    [info] = client().get("/api/v1/survey").json()["attributes"]
    assert (info["k"], info["choices"], info["guessed"], info["numbers"]) == (8, 3, 2, ["mean"])
    labels = get("histogram")["labels"]
    assert labels[3:] == ["music", "other", "at most 2", "at most 1", "none of these"]
    [overview] = client().get("/api/v1/overview?top=8").json()["attributes"]
    assert (overview["labels"][:3], overview["found"], overview["others"]) == (["chat", "mail", "maps"], 5, None)
    assert [line["value"] for line in get("series")["lines"]] == [0, 1, 2, 3, 4]
    for span in ("step", "window", "filtered"):
        [line] = get("numbers", span=span)["lines"]
        assert line["name"] == "mean"
        assert all(
            0 < low < value < high < 3 for low, value, high in zip(line["low"], line["values"], line["high"], strict=True)
        )
    text = client().get(f"{PATH}/numbers.csv").text
    assert {row["number"] for row in csv.DictReader(io.StringIO(text))} == {"mean"}


def test_intervals_of_a_window_of_a_spaced_level_cover_what_they_state() -> None:
    """Each of 6000 devices reports at 2 of 6 steps. In 100 runs, the coverage of the 8 shares has a standard error of about 0.8
    points; the band is ± 4 of them. The control counts each report as that of another person: its intervals are too narrow."""
    m, rng, people, most = PaddedSampling(5, 4.0, 3).spaced(3), np.random.default_rng(6), 6000, 3
    everybody = population(5, most, 200_000, rng)
    truth, inside, alone = m.counts_of(everybody) / everybody.size, 0.0, 0.0
    for _ in range(100):
        sets, phases = rng.choice(everybody, people), rng.integers(0, 3, people)
        panes = [[m.tabulate(m.report(sets[phases == step % 3], rng))] for step in range(6)]
        groups, reports = pooled([m], panes)
        assert reports == [2]
        for estimate, steps in ((empirical_bayes, reports), (matrix_inversion, reports), (matrix_inversion, [1])):
            low, high = estimate(groups, steps=steps).times(most).interval()
            held = float(((low <= truth) & (truth <= high)).mean())
            inside, alone = (inside + held, alone) if steps == reports else (inside, alone + held)
    assert 0.918 < inside / 200 < 0.982
    assert alone / 100 < 0.918


def test_fewer_answers_never_have_a_larger_share() -> None:
    """People with no answer are among those with at most one. The unbiased shares of 40 reports often say otherwise."""
    m, rng, broken = SURVEY.mechanisms[0][0], np.random.default_rng(5), 0
    for _ in range(20):
        table = m.tabulate(m.simulate(rng.choice([0, 1, 3, 7], 40), rng))
        for estimate in (empirical_bayes(m, table), matrix_inversion(m, table)):
            few = shares_of_people(estimate, 3)
            assert (np.diff(few.frequencies[-3:]) <= 0).all()
            low, high = few.interval()
            assert (low <= few.frequencies).all()
            assert (few.frequencies <= high).all()
            broken += bool((np.diff(3 * estimate.frequencies[-3:]) > 0).any())
            np.testing.assert_array_equal(few.frequencies[:-3], np.minimum(3 * estimate.frequencies[:-3], 1))
    assert broken > 10
