"""Tests of the default estimate as it is published, and of the mean and percentiles of an attribute with numbers."""

import csv
import io
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from starlette.testclient import TestClient

from ldpstream.engines import PaneKey
from ldpstream.engines.checkpoint import Checkpoint
from ldpstream.estimators import empirical_bayes
from ldpstream.estimators.quantiles import mean, quantiles
from ldpstream.estimators.smooth.ordered import MAX_ORDERED
from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_api
from ldpstream.publishing.estimates import catalogue
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.estimates.frequencies import NUMBERS, Ends
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.surveys import Survey
from tests.faults.memory_store import MemoryCountStore, MemoryResults
from tests.small_survey import small_survey

from .metrics_rig import Gauges
from .schedule_rig import MARGIN_MS, Schedule, ScheduleLog

EDGES = [0.0, 10.0, 20.0, 40.0, 80.0, 160.0]
SHARES = np.array([0.4, 0.3, 0.15, 0.1, 0.05])


def survey_of(*levels: tuple[str, float], **domain: Any) -> Survey:
    """A survey of the attribute "a" with these bins by default, and of the attribute "b" without numbers."""
    level = [{"name": f"l{i}", "mechanism": name, "eps": eps} for i, (name, eps) in enumerate(levels)]
    numbers = {"name": "a", "level": level, **(domain or {"bins": EDGES})}
    return small_survey(numbers, {"name": "b", "size": 3, "level": level}, name="numbers")


def reported(survey: Survey, people: int, steps: int = 1) -> MemoryResults:
    """The publications of these steps. Nobody answers the attribute "b"."""
    rng, store, results = np.random.default_rng(7), MemoryCountStore(survey), MemoryResults()
    panes = {
        PaneKey(0, level, step): m.tabulate(m.simulate(rng.choice(SHARES.size, people, p=SHARES), rng))
        for step in range(steps)
        for level, m in enumerate(survey.mechanisms[0])
    }
    store.commit(0, None, Checkpoint(steps, survey.closes_ms(steps - 1) - 1, panes))
    log = ScheduleLog([survey.opens_ms(step) for step in range(steps)])
    Schedule(survey, store, log, results, []).run(survey.closes_ms(steps - 1) + MARGIN_MS)
    return results


@pytest.fixture(scope="module")
def survey() -> Survey:
    return survey_of(("OUE", 2.0))


@pytest.fixture(scope="module")
def results(survey: Survey) -> MemoryResults:
    return reported(survey, 3000, steps=3)


def of(results: MemoryResults, key: str) -> Publication:
    (found,) = results.get([key])
    assert found is not None
    return found


@pytest.mark.parametrize("ordered", [False, True])
def test_the_default_estimate_is_published_with_its_intervals(ordered: bool) -> None:
    survey = survey_of(("OUE", 1.0), ("GRR", 2.0), size=5, ordered=ordered)
    rng = np.random.default_rng(3)
    panes = [[m.tabulate(m.simulate(rng.choice(5, 800, p=SHARES), rng)) for m in survey.mechanisms[0]] for _ in range(2)]
    groups = [(m, panes[0][i] + panes[1][i]) for i, m in enumerate(survey.mechanisms[0])]
    expected = empirical_bayes(groups, ordered=ordered, steps=2)
    p = msgspec.json.decode(msgspec.json.encode(conclude(survey, 0, 1, "window", panes, True)), type=Publication)
    assert p.main == "eb"
    found = p.estimators["eb"].estimate()
    np.testing.assert_allclose(found.frequencies, expected.frequencies, rtol=1e-12)
    np.testing.assert_allclose(found.standard_errors, expected.standard_errors, rtol=1e-12)
    np.testing.assert_allclose(found.interval(), expected.interval(), rtol=1e-12)
    assert p.estimators["mi"].low is None
    assert bool(p.numbers) == ordered


def test_another_confidence_scales_the_published_ends() -> None:
    ends = Ends(np.array([0.5, 0.01]), np.array([0.4, 0.0]), np.array([0.7, 0.03]))
    narrow, wide = ends.interval(0.6826894921370859), ends.interval(0.9999)
    np.testing.assert_allclose(ends.frequencies - narrow[0], np.array([0.1, 0.01]) / 1.959964, rtol=1e-6)
    np.testing.assert_allclose(narrow[1] - ends.frequencies, np.array([0.2, 0.02]) / 1.959964, rtol=1e-6)
    assert (wide[0] >= 0).all()
    assert (wide[1] <= 1).all()
    assert (wide[1] > ends.high).all()
    assert ends.interval(0.95) == (ends.low, ends.high)


def test_many_values_are_published_without_likelihoods(monkeypatch: pytest.MonkeyPatch, survey: Survey) -> None:
    rows = [replace(row, max_k=row.max_k and 4) for row in catalogue.ESTIMATORS]
    monkeypatch.setattr(catalogue, "ESTIMATORS", tuple(rows))
    nothing = [m.empty_table() for m in survey.mechanisms[0]]
    always = [row.name for row in catalogue.estimators(survey.mechanisms[0])]
    assert {"eb", "mi"} <= set(always) <= {row.name for row in rows if row.max_k is None}
    assert list(conclude(survey, 0, 0, "step", [nothing], True).estimators) == always
    of_few = [row.name for row in catalogue.estimators(survey.mechanisms[1])]
    few = [m.empty_table() for m in survey.mechanisms[1]]
    assert list(conclude(survey, 1, 0, "step", [few], True).estimators) == of_few
    assert set(of_few) > set(always)
    with TestClient(create_api(Served(survey, MemoryResults(), dict))) as client:
        assert client.get("/api/v1/survey").json()["attributes"][0]["estimators"] == always


@pytest.mark.parametrize("span", ["step", "window", "filtered"])
def test_numbers_are_published_for_every_span(survey: Survey, results: MemoryResults, span: str) -> None:
    p = of(results, f"a|{span}|2")
    assert tuple(p.numbers) == NUMBERS == ("mean", "p50", "p90", "p99")
    truth = {"mean": 21.75, "p50": 10 + 10 / 3, "p90": 60.0, "p99": 144.0}  # if the numbers fill their bins evenly
    for name, number in p.numbers.items():
        assert number.low is not None
        assert number.high is not None
        assert EDGES[0] <= number.low < number.value < number.high <= EDGES[-1]
        assert name == "mean" or {number.low, number.high} <= set(EDGES)
        assert number.value == pytest.approx(truth[name], rel=0.25)
    values = [p.numbers[name].value for name in NUMBERS[1:]]
    assert values == sorted(values)
    assert of(results, f"b|{span}|2").numbers == {}


def test_too_many_values_have_no_numbers() -> None:
    survey = survey_of(("OUE", 2.0), size=MAX_ORDERED + 1, ordered=True)
    with TestClient(create_api(Served(survey, MemoryResults(), dict))) as client:
        told = client.get("/api/v1/survey").json()["attributes"][0]
        assert (told["numbers"], told["number_spans"]) == ([], [])
        refused = client.get("/api/v1/attributes/a/numbers")
        assert (refused.status_code, "for the span window: they need bins" in refused.json()["detail"]) == (404, True)


def test_the_numbers_are_those_of_the_default_estimate(survey: Survey) -> None:
    (m,) = survey.mechanisms[0]
    table = m.tabulate(m.simulate(np.arange(4000) % 5, np.random.default_rng(1)))
    estimate = empirical_bayes(m, table, ordered=True, widths=np.diff(EDGES))
    expected = [mean(estimate, EDGES, anywhere=True), *(quantiles(estimate, EDGES) or ())]
    found = conclude(survey, 0, 0, "step", [[table]], True).numbers.values()
    assert [(x.value, x.low, x.high) for x in found] == [(x.value, x.low, x.high) for x in expected if x is not None]
    assert conclude(survey, 0, 0, "step", [[m.empty_table()]], True).numbers == {}


def test_an_ordered_integer_is_known_exactly() -> None:
    """The mean's interval has no part for the place of a number in its bin. The median's contains the integer."""
    survey = survey_of(("OUE", 2.0), size=5, ordered=True)
    (m,) = survey.mechanisms[0]
    table = m.tabulate(m.simulate(np.full(100_000, 2), np.random.default_rng(1)))
    found = conclude(survey, 0, 0, "step", [[table]], True).numbers
    low, high = found["mean"].low, found["mean"].high
    assert low is not None
    assert high is not None
    assert 1.9 < low <= 2 <= high < 2.1
    assert (found["p50"].low, found["p50"].high) == (1.5, 2.5)


def test_differing_levels_have_numbers_without_intervals() -> None:
    survey = survey_of(("OUE", 3.0), ("OUE", 2.0))
    one, other = survey.mechanisms[0]
    rng = np.random.default_rng(2)
    pane = [one.tabulate(one.simulate(np.zeros(3000, int), rng)), other.tabulate(other.simulate(np.full(3000, 4), rng))]
    p = conclude(survey, 0, 0, "step", [pane], True)
    shares = p.estimators["eb"]
    assert (shares.interval_withheld, shares.low, shares.high) == ("levels", None, None)
    assert tuple(p.numbers) == NUMBERS
    assert all((x.low, x.high) == (None, None) for x in p.numbers.values())


def test_the_api_serves_the_numbers(survey: Survey, results: MemoryResults) -> None:
    with TestClient(create_api(Served(survey, results, dict))) as client:
        assert [a["numbers"] for a in client.get("/api/v1/survey").json()["attributes"]] == [list(NUMBERS), []]
        p = of(results, "a|step|1")
        h = client.get("/api/v1/attributes/a/histogram", params={"span": "step", "step": 1}).json()
        assert h["estimator"] == "eb"
        assert h["numbers"] == msgspec.to_builtins(p.numbers)
        query: dict[str, str | int] = {"span": "step", "last": 2}
        found = client.get("/api/v1/attributes/a/numbers", params=query).json()
        assert found["steps"] == [1, 2]
        for line in found["lines"]:
            number = p.numbers[line["name"]]
            assert (line["values"][0], line["low"][0], line["high"][0]) == (number.value, number.low, number.high)
        rows = list(csv.DictReader(io.StringIO(client.get("/api/v1/attributes/a/numbers.csv", params=query).text)))
        assert [(row["step"], row["number"]) for row in rows] == [(step, name) for step in "12" for name in NUMBERS]
        assert float(rows[3]["high"]) == p.numbers["p99"].high
        refused = client.get("/api/v1/attributes/b/numbers")
        assert (refused.status_code, "no percentiles" in refused.json()["detail"]) == (404, True)


def test_prometheus_shows_the_numbers(survey: Survey, results: MemoryResults) -> None:
    p, of_a = of(results, "a|window|2"), {"attribute": "a", "span": "window"}
    gauges = Gauges(survey, [p, of(results, "b|window|2")])

    def shown() -> list[float | None]:
        found = [gauges(f"mean{end}", **of_a) for end in ("", "_low", "_high")]
        return found + [gauges(f"quantile{end}", **of_a, percentile="99") for end in ("", "_low", "_high")]

    average, p99 = p.numbers["mean"], p.numbers["p99"]
    assert shown() == [average.value, average.low, average.high, p99.value, p99.low, p99.high]
    assert gauges("mean", attribute="b", span="window") is None
    nothing = [m.empty_table() for m in survey.mechanisms[0]]
    gauges.publish([conclude(survey, 0, 3, "window", [nothing], True)])
    assert np.isnan(np.array(shown(), float)).all()
