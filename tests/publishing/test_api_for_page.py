"""Tests of the API's answers for the page: two times, people, the year ahead, the next estimate."""

import csv
import gzip
import io
import math
import re

import msgspec
import numpy as np
import pytest
from fastapi.testclient import TestClient
from msgspec.structs import replace

from ldpstream.estimators.differences import difference_errors
from ldpstream.promises.device_chance import guesses
from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_api
from ldpstream.publishing.api.routes import PAGE
from ldpstream.publishing.estimates.frequencies import Frequencies
from ldpstream.publishing.estimates.thresholds import ALARM_CHANCE, CLIENT_LIMIT, FIT_LIMIT, OVERDUE_MS
from ldpstream.publishing.progress import Progress
from ldpstream.services.demo import Demo
from tests.faults.memory_store import MemoryResults

from .api_rig import STEPS, SURVEY, published
from .page.page_rig import many


@pytest.mark.parametrize(
    ("name", "estimator", "named"), [("screen", "eb", True), ("latency_ms", "eb", False), ("latency_ms", "mi", True)]
)
def test_few_values_without_an_order_are_named(client: TestClient, name: str, estimator: str, named: bool) -> None:
    found = client.get(f"/api/v1/attributes/{name}/histogram", params={"estimator": estimator}).json()
    assert found["named"] == [named] * len(found["values"])


def test_of_many_values_the_twenty_largest_are_named() -> None:
    survey, results = many(100, attributes=1, steps=1)
    with TestClient(create_api(Served(survey, results, dict))) as client:
        found = client.get("/api/v1/attributes/a00/histogram").json()
    largest = np.argsort(-np.array(found["frequencies"]), kind="stable")[:20]
    assert np.flatnonzero(found["named"]).tolist() == sorted(largest.tolist())


# ---- two times


@pytest.mark.parametrize(
    ("name", "estimator", "basis"),
    [("screen", "mi", "inversion"), ("screen", "ibu", "inversion"), ("latency_ms", "mi", "any")],
)
@pytest.mark.parametrize("span", ["step", "window"])
def test_a_comparison_has_the_bound_of_its_basis(
    client: TestClient, demo: Demo, name: str, estimator: str, basis: str, span: str
) -> None:
    url = f"/api/v1/attributes/{name}/comparison"
    query: dict[str, str | float] = {"before": 1, "span": span, "estimator": estimator, "confidence": 0.9}
    found = client.get(url, params=query).json()
    first, second = published(demo, name, span, 1), published(demo, name, span, STEPS - 1)
    one, other = (p.estimators[estimator].estimate() for p in (first, second))
    raw, later = (p.estimators["mi"].estimate() for p in (first, second))
    m = SURVEY.mechanisms[SURVEY.index(name)][0]
    people = max(first.reports / first.panes, second.reports / second.panes)
    errors = difference_errors(raw, later, m, people) if basis == "inversion" else raw.standard_errors + later.standard_errors
    assert found["basis"] == basis
    assert (found["before"]["step"], found["after"]["step"]) == (1, STEPS - 1)
    assert found["overlap"] == (span == "window")
    np.testing.assert_allclose(found["differences"], other.frequencies - one.frequencies, rtol=1e-12)
    np.testing.assert_allclose(found["standard_errors"], errors, rtol=1e-12)
    assert (np.subtract(found["high"], found["low"]) >= 2 * 1.6448536 * errors - 1e-9).all()
    assert len(found["clear"]) == SURVEY.attributes[SURVEY.index(name)].k
    truths = [demo.truth.of(p).shares for p in (first, second)]
    assert truths[0] is not None
    assert truths[1] is not None
    np.testing.assert_allclose(found["truth"], np.subtract(truths[1], truths[0]))
    rows = list(csv.DictReader(io.StringIO(client.get(f"{url}.csv", params=query).text)))
    assert {row["after_end"] for row in rows} == {"2026-01-05T04:00:00.000Z"}
    assert [float(row["difference"]) for row in rows] == found["differences"]
    assert {row["basis"] for row in rows} == {basis}
    assert len(client.get(url, params={**query, "top": 2}).json()["values"]) == 2


def test_a_comparison_without_intervals_states_the_reason(demo: Demo) -> None:
    results = MemoryResults()
    p = published(demo, "screen", "step", 1)
    withheld = Frequencies.of(p.estimators["eb"].estimate(), "levels")
    changed = msgspec.structs.replace(p, estimators={**p.estimators, "eb": withheld})
    assert results.save([*demo.service.results.history(), changed], None, Progress(first_step=0, next_step=STEPS))
    with TestClient(create_api(Served(SURVEY, results, dict))) as client:
        found = client.get("/api/v1/attributes/screen/comparison", params={"before": 1, "span": "step"}).json()
        assert (found["interval_withheld"], found["low"], found["clear"]) == ("levels", [None] * 6, [False] * 6)
        assert found["truth"] is None


# ---- people, the year ahead, the next estimate


def test_at_least_so_many_people_reported(client: TestClient, demo: Demo) -> None:
    for span, most in (("step", 1), ("window", STEPS), ("filtered", 1)):
        found = client.get("/api/v1/attributes/screen/histogram", params={"span": span}).json()
        assert found["people_at_least"] == math.ceil(published(demo, "screen", span, STEPS - 1).reports / most)
    assert client.get("/api/v1/attributes/screen/histogram", params={"span": "step"}).json()["people_at_least"] <= 2000


def test_the_values_that_are_not_shown_have_the_rest(client: TestClient) -> None:
    url = "/api/v1/attributes/screen/histogram"
    everything, some = client.get(url).json(), client.get(url, params={"top": 2}).json()
    assert everything["others"] is None
    assert some["others"] == pytest.approx(sum(everything["frequencies"]) - sum(some["frequencies"]))


def test_the_status_looks_a_year_ahead(client: TestClient) -> None:
    for i, (overview, mechanisms) in enumerate(
        zip(client.get("/api/v1/status").json()["attributes"], SURVEY.mechanisms, strict=True)
    ):
        for outlook, m in zip(overview["outlook"].values(), mechanisms, strict=True):
            for when, steps in (("now", STEPS), ("year", STEPS + 8760)):
                found, loss = outlook[when], m.eps_sequence(steps)
                assert (found["t"], found["eps_t"], found["eps_sequence"]) == (steps, m.eps_t(steps), loss.value)
                assert (found["guess"], found["guess_any_values"]) == (m.guess(steps), m.claims.guess_any_values(steps))
                assert found["eps_sequence_exact"] == loss.exact
                chances = guesses(SURVEY, i, m, steps)
                assert {name: found[name] for name in chances} == chances
                assert found["bounds"] == [name for name, chance in chances.items() if not chance.exact]


def test_the_status_has_the_chances_for_the_published_shares(client: TestClient, demo: Demo) -> None:
    for overview, mechanisms in zip(client.get("/api/v1/status").json()["attributes"], SURVEY.mechanisms, strict=True):
        p = published(demo, overview["attribute"], "window", STEPS - 1)
        shares = np.maximum(np.array(p.estimators[p.main].frequencies, np.float64), 0)
        shares /= shares.sum()
        for outlook, m in zip(overview["outlook"].values(), mechanisms, strict=True):
            told = {"no_report": shares.max(), "one_report": m.claims.guess_known(shares, 1)}
            assert outlook["known_shares"] == pytest.approx(
                told | {"now": m.claims.guess_known(shares, STEPS), "year": m.claims.guess_known(shares, STEPS + 8760)}
            )


def test_the_losses_stop_growing_at_the_end_of_the_survey() -> None:
    survey = replace(SURVEY, ends=5)
    responses, m = Served(survey, MemoryResults(), dict), survey.mechanisms[0][0]
    (first, *_), (last, *_) = (responses.outlook(survey.attributes[0].name, step, None).values() for step in (1, 4))
    assert (first.now.t, first.year.t) == (m.reports_in(2), m.reports_in(5))
    assert last.now == last.year


def test_the_status_says_when_the_next_estimate_is_due(demo: Demo, client: TestClient) -> None:
    simulated = client.get("/api/v1/status").json()
    assert (simulated["first_step"], simulated["latest_step"], simulated["due_ms"]) == (0, STEPS - 1, None)
    with TestClient(create_api(Served(SURVEY, demo.service.results, dict, clock=lambda: 1234))) as real:
        found = real.get("/api/v1/status").json()
        assert (found["now_ms"], found["due_ms"]) == (1234, SURVEY.closes_ms(STEPS))
        assert found["attributes"][0]["step_reports"] == published(demo, "screen", "step", STEPS - 1).reports
    now = SURVEY.opens_ms(7)
    with TestClient(create_api(Served(SURVEY, MemoryResults(), dict, clock=lambda: now))) as fresh:
        found = fresh.get("/api/v1/status").json()
        assert (found["first_step"], found["latest_step"], found["due_ms"]) == (None, None, SURVEY.closes_ms(7))


def imports(path: str) -> list[str]:
    return re.findall(r'^import [^;]* from "\./([^"]+)"', (PAGE / path.rsplit("/")[-1]).read_text(), re.M)


def test_the_page_is_light_and_loads_only_its_own_files(client: TestClient) -> None:
    """The weights are those of the bodies, as served to a browser that accepts gzip. The page of an attribute also loads the
    other modules and the library of the charts."""
    index = client.get("/")
    named = set(re.findall(r'(?:href|src)="(/page/[^"]+)"', index.text))
    first = weight = int(index.headers["content-length"])
    modules = {f"/page/{path.name}" for path in PAGE.glob("*.js")} - {"/page/surveys.js"}  # the start page loads that module
    imported = {f"/page/{name}" for path in named if path.endswith(".js") for name in imports(path)}
    assert imported <= named, "every module of the first screen is preloaded"
    for path in sorted(named | modules):
        answer = client.get(path, headers={"Accept-Encoding": "gzip"})
        size = len(gzip.compress(answer.content, 5) if answer.headers.get("content-encoding") == "gzip" else answer.content)
        weight, first = weight + size, first + size * (path in named)
        assert "://" not in re.sub(r"http://www.w3.org/2000/svg", "", answer.text) or "uPlot" in path, path
    assert first < 36_000
    assert weight < 78_000
    policy = index.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy


def test_the_page_gets_the_thresholds_from_the_api(client: TestClient) -> None:
    told = client.get("/api/v1/survey").json()["thresholds"]
    assert told == {
        "fit_limit": FIT_LIMIT, "alarm_chance": ALARM_CHANCE, "overdue_ms": OVERDUE_MS, "client_limit": CLIENT_LIMIT,
    }  # fmt: skip
    scripts = "".join(path.read_text() for path in PAGE.glob("*.js"))
    assert all(f"thresholds.{name}" in scripts for name in told)
