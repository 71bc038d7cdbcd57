"""Tests that no output shows numbers for a step without reports."""

import csv
import io
from collections.abc import Iterator

import numpy as np
import pytest
from fastapi.testclient import TestClient

from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_api
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.publishing.progress import Progress
from tests.faults.memory_store import MemoryResults
from tests.small_survey import small_survey

from .metrics_rig import Gauges

K = 25
LEVEL = {"name": "b", "mechanism": "L-OSUE", "eps_inf": 2.0, "eps_1": 1.0}
SURVEY = small_survey({"name": "a", "size": K, "level": [LEVEL]}, name="silent")
REPORTED = (True, True, False, False)  # the window that ends with step 3 is also empty


def publications(reported: tuple[bool, ...]) -> list[Publication]:
    (m,), rng, made = SURVEY.mechanisms[0], np.random.default_rng(1), []
    panes = []
    for step, somebody in enumerate(reported):
        values = rng.choice(4, 3000 * somebody, p=[0.1, 0.2, 0.3, 0.4])
        panes.append([m.tabulate(m.simulate(values, rng))])
        before = panes[step - 1] if step else [m.empty_table()]
        made.append(conclude(SURVEY, 0, step, "step", panes[-1:], True, before=before))
        made.append(conclude(SURVEY, 0, step, "window", panes[-2:], True))
    return made


def client_of(reported: tuple[bool, ...]) -> TestClient:
    results = MemoryResults()
    results.save(publications(reported), None, Progress(first_step=0, next_step=len(reported)))
    return TestClient(create_api(Served(SURVEY, results, dict)))


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with client_of(REPORTED) as client:
        yield client


@pytest.mark.parametrize("estimator", ["eb", "ibu", "mle", "mi"])
@pytest.mark.parametrize("span", ["step", "window"])
def test_a_histogram_without_reports_has_no_numbers(client: TestClient, estimator: str, span: str) -> None:
    query = {"estimator": estimator, "span": span}
    url = "/api/v1/attributes/a/histogram"
    for top in ({}, {"top": "7"}):
        h = client.get(url, params=query | top).json()
        shown = int(top.get("top", K))
        assert (h["step"], h["reports"], h["panes"], h["complete"], h["converged"], h["gap"]) == (3, 0, 0, True, False, None)
        assert h["values"] == list(range(shown))
        for name in ("frequencies", "standard_errors", "low", "high"):
            assert h[name] == [None] * shown
    assert h["diagnostics"]["drift_sigma"] is h["diagnostics"]["mass_below_zero"] is None
    assert h["diagnostics"]["fit_z"] == {"b": None}
    rows = list(csv.DictReader(io.StringIO(client.get(f"{url}.csv", params=query).text)))
    assert {row[name] for row in rows for name in ("frequency", "standard_error", "low", "high")} == {""}


def test_the_overview_and_the_status_without_reports_say_so(client: TestClient) -> None:
    assert client.get("/api/v1/overview").json()["sentences"][0]["text"] == "there are no reports."
    (overview,) = client.get("/api/v1/status").json()["attributes"]
    assert overview["reports"] == 0
    assert (overview["fit_z"], overview["drift_sigma"], overview["drift_label"]) == ({"b": None}, None, None)


def test_a_series_shows_values_of_the_last_step_with_reports(client: TestClient) -> None:
    s = client.get("/api/v1/attributes/a/series", params={"span": "step", "estimator": "mi"}).json()
    assert [line["value"] for line in s["lines"]][:4] == [3, 2, 1, 0]
    for line in s["lines"]:
        for name in ("frequencies", "low", "high"):
            assert [x is None for x in line[name]] == [False, False, True, True]
    assert s["reports"] == [3000, 3000, 0, 0]


def test_a_series_without_reports_has_no_lines() -> None:
    with client_of((False, False)) as client:
        s = client.get("/api/v1/attributes/a/series").json()
        assert (s["steps"], s["lines"]) == ([0, 1], [])
        assert client.get("/api/v1/attributes/a/series.csv").status_code == 200


def test_gauges_without_reports_are_nan_not_old_numbers() -> None:
    gauges = Gauges(SURVEY, publications(REPORTED))
    samples = gauges.samples()
    named = {
        "ldpstream_frequency_ratio", "ldpstream_frequency_low_ratio", "ldpstream_frequency_high_ratio",
        "ldpstream_fit_z", "ldpstream_drift_sigma", "ldpstream_drift_p",
    }  # fmt: skip
    assert {sample.name for sample in samples} >= named
    assert all(np.isnan(sample.value) for sample in samples if sample.name in named)
    assert gauges("estimate_reports", attribute="a", span="step") == 0


def test_values_get_gauges_only_after_a_first_report() -> None:
    made = publications((False, True))
    gauges = Gauges(SURVEY, made[:2])
    assert not any(sample.name == "ldpstream_frequency_ratio" for sample in gauges.samples())
    gauges.publish(made[2:])
    labels = {"attribute": "a", "span": "step", "estimator": "eb", "index": "03", "value": "3"}
    assert gauges("frequency_ratio", **labels) == pytest.approx(0.4, abs=0.15)
