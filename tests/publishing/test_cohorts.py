"""Histograms of cohorts: from the cohort's own tables, and never below the least size in anything that is shown."""

import csv
import io
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from msgspec.structs import replace

from ldpstream.mechanisms import CountTable
from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_api
from ldpstream.publishing.estimates.cohorts import conclude_cohort
from ldpstream.publishing.estimates.conclusions import conclude, least_people
from ldpstream.publishing.estimates.publication import COHORT_SPANS, Publication, publication_keys
from ldpstream.publishing.history.month_files import merged, rows_of
from ldpstream.publishing.progress import Progress
from tests.faults.memory_store import MemoryResults

from .cohort_rig import (
    ATTRIBUTES,
    BELOW,
    COHORT,
    LEAST,
    PEOPLE,
    PLAIN,
    STEPS,
    SURVEY,
    client,
    demo,
    everything_shown,
    history,
    published,
    without_least,
)
from .metrics_rig import Gauges

LAST = STEPS - 1
FIRST, *_ = COHORT.values
Json = Any


def ask(what: str, attribute: str = "screen", status: int = 200, **query: Any) -> Json:
    answer = client().get(f"/api/v1/attributes/{attribute}/{what}", params=query)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_every_step_has_a_publication_of_every_cohort() -> None:
    assert {p.key for p in history()} == {key for step in range(STEPS) for key in publication_keys(SURVEY, step)}
    for attribute in ATTRIBUTES:
        for span in COHORT_SPANS:
            for step in range(STEPS):
                parts = [published(attribute, span, step, cohort) for cohort in COHORT.values]
                assert sum(p.reports for p in parts) == published(attribute, span, step).reports
                assert [p.below_least for p in parts] == [(span, p.cohort) in BELOW for p in parts]
    assert published("screen", "step", 1).reports == PEOPLE
    found = {(p.span, p.cohort) for p in history() if p.step == LAST and p.below_least}
    assert found == set(BELOW)


@pytest.mark.parametrize("span", COHORT_SPANS)
@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_a_cohorts_histogram_is_that_of_its_reports_alone(attribute: str, span: str) -> None:
    """The histograms are the default estimate and the raw inversion of a survey that has only these reports."""
    index, tables = SURVEY.index(attribute), demo().service.store.tables(range(STEPS))
    steps = range(LAST - (span == "window"), LAST + 1)
    for number, cohort in enumerate(COHORT.values):
        p = published(attribute, span, LAST, cohort)
        if p.below_least:
            continue
        panes = [
            [
                tables[key]
                for level in range(len(SURVEY.mechanisms[index]))
                for key in tables
                if key == (index, level, step, number)
            ]
            for step in steps
        ]
        alone = conclude(PLAIN, index, LAST, "step" if span == "step" else "window", panes, True)
        assert p.estimators == {name: alone.estimators[name] for name in (alone.main, "mi")}
        assert (p.numbers, p.panes, p.reports, p.complete) == (alone.numbers, alone.panes, alone.reports, True)
        assert p.privacy == published(attribute, span, LAST).privacy
        true = demo().truth.of(p).shares
        assert true is not None
        np.testing.assert_allclose(p.estimators[p.main].estimate().frequencies, true, atol=0.12)


def test_below_the_least_size_nothing_but_the_number_of_reports_is_shown() -> None:
    """As a control, the same search finds the histograms of the larger cohorts."""
    shown, found = everything_shown(), 0
    for attribute in ATTRIBUTES:
        for span in COHORT_SPANS:
            for cohort in COHORT.values:
                p = published(attribute, span, LAST, cohort)
                would_be = without_least(attribute, span, LAST, cohort)
                assert would_be.reports == p.reports
                texts = {
                    repr(f) for of in would_be.estimators.values() for f in of.frequencies if f is not None and 1e-3 < f < 1
                }
                assert len(texts) >= 3
                where = {name for name, text in shown.items() if any(number in text for number in texts)}
                if (span, cohort) in BELOW:
                    assert not where
                    assert p == replace(would_be, below_least=True, estimators={}, numbers={})
                    assert not p.levels
                else:
                    assert {f"{what} {attribute} {span} {cohort}" for what in ("histogram", "histogram.csv", "series")} <= where
                    assert {"topic", f"export {attribute}"} <= where
                    assert "metrics" not in where  # a cohort has no time series of shares
                    found += 1
    assert found == len(ATTRIBUTES) * (2 * len(COHORT.values) - len(BELOW))


@pytest.mark.parametrize(("reports", "shown"), [(LEAST - 1, False), (LEAST, True)])
def test_the_least_size_is_the_least_number_of_people(reports: int, shown: bool) -> None:
    m = SURVEY.mechanisms[0][0]
    pane = [m.table(reports, np.array([reports, 0, 0, 0]))]
    for steps, span in ((1, "step"), (2, "window")):
        p = conclude_cohort(SURVEY, 1, published("screen", span, 1), [pane] * steps)
        assert (p.reports, p.below_least, bool(p.estimators)) == (steps * reports, not shown, shown)


def test_the_number_of_people_is_never_above_that_of_any_population() -> None:
    """Random populations of two levels, one of which reports at every second step.

    The bound is also reached: some population of this size makes these reports.
    """
    rng, most = np.random.default_rng(7), (3, 2)
    m = SURVEY.mechanisms[0][0]
    for _ in range(300):
        devices = [(level, rng.random(3) < 0.6) for level in rng.integers(0, 2, 4)]
        sent = [(level, at if level == 0 else at & (np.arange(3) % 2 == rng.integers(2))) for level, at in devices]
        counts = np.zeros((3, 2), int)
        for level, at in sent:
            counts[:, level] += at
        panes = [[m.table(int(n), np.array([n, 0, 0, 0])) for n in of_step] for of_step in counts]
        fewest = 0
        for level, each in enumerate(most):  # the fewest devices with at most `each` reports, at most one a step
            people = 0
            while np.minimum(counts[:, level], people).sum() < counts[:, level].sum() or people * each < counts[:, level].sum():
                people += 1
            fewest += people
        assert least_people(panes, most) == fewest <= sum(at.any() for _, at in sent)


def test_the_intervals_of_a_cohort_are_withheld_if_its_levels_differ() -> None:
    """People of one cohort choose their level by their value, in numbers that everybody's histogram does not show."""
    index, (bits, hashed) = SURVEY.index("latency_ms"), SURVEY.mechanisms[SURVEY.index("latency_ms")]
    rng = np.random.default_rng(3)

    def tables(*values: int) -> list[CountTable]:
        return [m.tabulate(m.simulate(np.full(1000, value), rng)) for m, value in zip((bits, hashed), values, strict=True)]

    everybody = conclude(PLAIN, index, 0, "step", [tables(1, 1)], True)
    apart, alike = (conclude_cohort(SURVEY, 0, everybody, [tables(*values)]) for values in ((0, 3), (2, 2)))
    assert (apart.estimators["eb"].interval_withheld, alike.estimators["eb"].interval_withheld) == ("levels", None)
    assert apart.numbers["mean"].low is None
    differ = conclude(PLAIN, index, 0, "step", [tables(0, 3)], True)
    assert conclude_cohort(SURVEY, 0, differ, [tables(2, 2)]).estimators["eb"].interval_withheld == "levels"


# ---- API


def test_the_survey_tells_its_cohorts() -> None:
    found = client().get("/api/v1/survey").json()
    assert found["cohort"] == {"name": "version", "values": list(COHORT.values), "least": LEAST}


@pytest.mark.parametrize("span", COHORT_SPANS)
@pytest.mark.parametrize("cohort", COHORT.values)
def test_the_api_serves_the_saved_publication(cohort: str, span: str) -> None:
    for attribute in ATTRIBUTES:
        p, h = published(attribute, span, LAST, cohort), ask("histogram", attribute, span=span, cohort=cohort)
        k = len(h["values"])
        assert (h["cohort"], h["below_least"], h["reports"]) == (cohort, p.below_least, p.reports)
        assert h["estimator"] == "eb"
        if p.below_least:
            assert h["frequencies"] == h["standard_errors"] == h["low"] == h["high"] == [None] * k
            assert (h["numbers"], h["levels"], h["converged"]) == ({}, {}, False)
        else:
            assert h["frequencies"] == p.estimators[p.main].frequencies
        assert h["truth"] == demo().truth.of(p).shares
        assert h["people_at_least"] >= (1 if p.below_least else LEAST)
        s = ask("series", attribute, span=span, cohort=cohort, values="0,1")
        of_steps = [published(attribute, span, step, cohort) for step in range(STEPS)]
        assert (s["cohort"], s["reports"]) == (cohort, [p.reports for p in of_steps])
        assert s["below_least"] == [p.below_least for p in of_steps]
        for line in s["lines"]:
            shares = [None if p.below_least else p.estimators[p.main].frequencies[line["value"]] for p in of_steps]
            assert line["frequencies"] == shares
        c = ask("comparison", attribute, span=span, cohort=cohort, before=0)
        assert c["cohort"] == cohort
        assert [c[side]["below_least"] for side in ("before", "after")] == [of_steps[0].below_least, p.below_least]
        if of_steps[0].below_least or p.below_least:
            assert c["differences"] == [None] * k
            assert not any(c["clear"])
    number = ask("numbers", "latency_ms", span=span, cohort=cohort)
    assert (number["cohort"], len(number["lines"])) == (cohort, 4)


def test_the_default_lines_of_a_series_need_an_estimate() -> None:
    assert ask("series", span="step", cohort=COHORT.values[3])["lines"] == []
    assert len(ask("series", span="step", cohort=FIRST)["lines"]) == 4


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"cohort": "2.0"}, "the cohort (version) must be one of 1.0, 1.1, beta <b>|&, =1+1, got '2.0'"),
        ({"cohort": ""}, "the cohort (version) must be one of 1.0, 1.1, beta <b>|&, =1+1, got ''"),
        ({"cohort": FIRST, "span": "filtered"}, "span must be step or window for a cohort, got 'filtered'"),
        ({"cohort": FIRST, "estimator": "ibu"}, "estimator must be one of eb, mi, got 'ibu'"),
        ({"cohort": "=1+1", "estimator": "mi"}, "estimator must be one of eb, got 'mi'"),
        ({"cohort": "x" * 201}, f"cohort: String should have at most 200 characters, got {'x' * 201!r}"),
    ],
)
def test_a_wrong_cohort_is_refused_with_one_line(query: dict[str, str], said: str) -> None:
    for what in ("histogram", "histogram.csv", "series", "comparison"):
        assert ask(what, status=422, **({"before": "0"} if what == "comparison" else {}), **query)["detail"] == said


# ---- metrics and files


def test_the_metrics_have_the_number_of_reports_of_each_cohort_and_nothing_else() -> None:
    gauges = Gauges(SURVEY, history())
    labelled = [sample for sample in gauges.samples() if "cohort" in sample.labels]
    assert {sample.name for sample in labelled} == {"ldpstream_cohort_reports"}
    assert len(labelled) == len(ATTRIBUTES) * 2 * len(COHORT.values)
    for sample in labelled:
        where = sample.labels
        p = published(where["attribute"], where["span"], LAST, where["cohort"])
        assert sample.value == p.reports
    reports = published("screen", "window", LAST).reports
    assert gauges("estimate_reports", attribute="screen", span="window") == reports


def test_an_exported_cohort_never_replaces_another_cohort_or_all_people() -> None:
    everything = rows_of(SURVEY, [p for p in history() if p.attribute == "screen"])
    assert set(everything["cohort"]) == {None, *COHORT.values[:3]}
    assert merged(everything, everything).equals(everything.sort("step", "span", "cohort", "estimator", "value"))
    poorer: list[Publication] = [replace(p, complete=False) for p in history() if p.attribute == "screen" and p.cohort == FIRST]
    assert merged(everything, rows_of(SURVEY, poorer)).equals(merged(everything, everything))
    better = [replace(p, reports=p.reports + 1) for p in history() if p.attribute == "screen" and p.cohort is None]
    after = merged(everything, rows_of(SURVEY, better))
    assert after.height == everything.height
    old, new = (set(rows.filter(span="step", step=LAST)["reports"]) for rows in (everything, after))
    assert (old ^ new) == {PEOPLE, PEOPLE + 1}


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_two_cohorts_of_a_window_are_compared(attribute: str) -> None:
    """The interval holds also if a person reported in both cohorts. It comes from the raw inversions."""
    second, first = (published(attribute, "window", LAST, cohort) for cohort in COHORT.values[:2])
    after, before = (p.estimators[p.main].estimate() for p in (second, first))
    raw, other = (p.estimators["mi"].estimate() for p in (second, first))
    found = ask("comparison", attribute, cohort=COHORT.values[0], against=COHORT.values[1])
    assert (found["basis"], found["cohort"]) == ("inversion" if attribute == "screen" else "any", COHORT.values[0])
    assert [(found[side]["step"], found[side]["cohort"]) for side in ("before", "after")] == [
        (LAST, COHORT.values[1]), (LAST, COHORT.values[0])
    ]  # fmt: skip
    np.testing.assert_allclose(found["differences"], after.frequencies - before.frequencies, rtol=1e-12)
    errors, most = np.array(found["standard_errors"], float), raw.standard_errors + other.standard_errors
    assert (errors <= most * (1 + 1e-12)).all()
    assert attribute == "screen" or np.allclose(errors, most, rtol=1e-12)
    moved = raw.frequencies - other.frequencies
    np.testing.assert_allclose(
        np.array(found["high"], float), np.minimum(np.maximum(moved + 1.959964 * errors, found["differences"]), 1), atol=1e-6
    )
    truths = [np.asarray(demo().truth.of(p).shares) for p in (second, first)]
    np.testing.assert_allclose(found["truth"], truths[0] - truths[1])
    opposite = ask("comparison", attribute, cohort=COHORT.values[1], against=COHORT.values[0])
    np.testing.assert_allclose(opposite["differences"], np.negative(found["differences"]))
    answer = client().get(
        f"/api/v1/attributes/{attribute}/comparison.csv", params={"cohort": COHORT.values[0], "against": COHORT.values[1]}
    )
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert {(row["before_cohort"], row["cohort"]) for row in rows} == {(COHORT.values[1], COHORT.values[0])}


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_two_cohorts_of_one_step_are_independent(attribute: str) -> None:
    second, first = parts = [without_least(attribute, "step", LAST, cohort) for cohort in COHORT.values[:2]]
    results = MemoryResults()
    assert results.save(parts, None, Progress(first_step=0, next_step=STEPS))
    query = {"cohort": second.cohort, "against": first.cohort, "span": "step"}
    with TestClient(create_api(Served(SURVEY, results, dict))) as alone:
        found = alone.get(f"/api/v1/attributes/{attribute}/comparison", params=query).json()
    after, before = (p.estimators["mi"].estimate() for p in parts)
    assert found["basis"] == "separate"
    errors = np.array(found["standard_errors"], float)
    np.testing.assert_allclose(errors, np.hypot(after.standard_errors, before.standard_errors), rtol=1e-12)


def test_a_comparison_with_a_cohort_below_the_least_size_has_no_numbers() -> None:
    found = ask("comparison", cohort=FIRST, against=COHORT.values[3])
    assert (found["before"]["below_least"], found["after"]["below_least"]) == (True, False)
    assert {*found["differences"], *found["low"], *found["before"]["frequencies"]} == {None}
    assert not any(found["clear"])


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"before": 0, "against": "1.1"}, "before and against must not both be given, got before=0 and against='1.1'"),
        ({"against": "1.1"}, "against needs another cohort, got cohort=None and against='1.1'"),
        ({"against": "1.1", "cohort": "1.1"}, "against needs another cohort, got cohort='1.1' and against='1.1'"),
        ({"against": "2.0", "cohort": "1.1"}, "must be one of 1.0, 1.1"),
    ],
)
def test_a_comparison_has_one_other_side(query: dict[str, Any], said: str) -> None:
    assert said in ask("comparison", status=422, **query)["detail"]
