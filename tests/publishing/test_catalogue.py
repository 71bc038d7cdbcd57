"""The table of estimators: one more row is enough to publish an estimator, and no other module lists the estimators."""

import re

import numpy as np
import pytest
from fastapi.testclient import TestClient

from lab.bench.methods import estimates
from ldpstream.estimators import Estimate
from ldpstream.mechanisms import mechanism
from ldpstream.mechanisms.families.square_wave import SquareWave
from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_api
from ldpstream.publishing.estimates import catalogue
from ldpstream.publishing.estimates.catalogue import AttributeCounts, PublishedEstimator
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.publishing.progress import Progress
from tests.faults.memory_store import MemoryResults
from tests.ldpstream.rooms import ROOT, lists, sources

from .test_publication import one_attribute

K = 4
NAMES = {row.name for row in catalogue.ESTIMATORS}
SOURCES = [path for room in ("publishing", "ldpstream", "runtime", "surveys", "deploy") for path in sources(room)]
STATIC = ROOT / "publishing" / "page" / "static"


def equal_shares(counts: AttributeCounts) -> Estimate:
    return Estimate(np.full(counts.k, 1 / counts.k), np.zeros(counts.k), counts.n)


TOY = PublishedEstimator(name="toy", label="equal shares", meaning="Equal.", intervals="unless biased", make=equal_shares)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> PublishedEstimator:
    monkeypatch.setattr(catalogue, "ESTIMATORS", (*catalogue.ESTIMATORS, TOY))
    return TOY


def concluded(k: int = K, name: str = "GRR") -> tuple[Publication, TestClient]:
    """The publication of a step in which everybody has the first value, and the API that serves it."""
    survey = one_attribute("toys", k, {"l": (name, 1.0)})
    m = survey.mechanisms[0][0]
    reports = m.simulate(np.zeros(2000, np.int64), np.random.default_rng(1))
    made, results = conclude(survey, 0, 0, "step", [[m.tabulate(reports)]], True), MemoryResults()
    assert results.save([made], None, Progress(first_step=0, next_step=1))
    return made, TestClient(create_api(Served(survey, results, dict)))


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("name", ["GRR", "SW"])
def test_one_more_row_is_published_and_served(name: str) -> None:
    made, client = concluded(name=name)
    assert made.estimators["toy"].frequencies == [1 / K] * K
    assert made.estimators["toy"].interval_withheld == "bias"  # everybody has the first value
    assert made.main != "toy"
    info = client.get("/api/v1/survey").json()
    assert info["attributes"][0]["estimators"] == list(made.estimators)
    shown = {"name": "toy", "label": "equal shares", "meaning": "Equal.", "spans": ["step", "window"]}
    assert info["estimators"][-1] == {**shown, "post_processed": False}
    asked = {"span": "step", "estimator": "toy"}
    for what in ("histogram", "series"):
        assert client.get(f"/api/v1/attributes/a/{what}", params=asked).json()["estimator"] == "toy"
    refused = client.get("/api/v1/attributes/a/histogram", params=asked | {"estimator": "toys"})
    assert refused.status_code == 422
    assert f"estimator must be one of {', '.join(made.estimators)}, got 'toys'" in refused.text


@pytest.mark.parametrize(("k", "name", "names"), [
    (4, "GRR", ["eb", "mi", "ibu", "mle"]),
    (10_000, "OUE", ["eb", "mi", "ibu", "mle"]),
    (10_001, "OUE", ["eb", "mi"]),
    (4, "SW", ["eb", "ems", "mi"]),
])  # fmt: skip
def test_the_rows_depend_on_mechanism_and_number_of_values(k: int, name: str, names: list[str]) -> None:
    """The benchmarks measure the same estimators."""
    m = mechanism(name, k=k, eps=1.0)
    rows = catalogue.estimators([m])
    assert [row.name for row in rows] == names
    if k == K:
        counted = [name for name, _ in estimates(m, m.table(2, np.array([2, *[0] * (m.empty_table().counts.size - 1)])))]
        assert [name for name in counted if " " not in name] == names


# ---- no second list


def test_no_other_module_lists_the_estimators() -> None:
    """Files `__init__.py` are left out: they list public functions, and `ibu` and `mle` are functions too."""
    found = {path: list(lists(path.read_text(encoding="utf-8"), NAMES)) for path in SOURCES if path.name != "__init__.py"}
    assert len(found) > 100
    assert not {path: lines for path, lines in found.items() if lines}


def test_the_page_names_no_estimator() -> None:
    named = re.compile(rf"""["'`]({"|".join(NAMES)})["'`]|\b({"|".join(NAMES)}):""")
    assert named.search('about === "mi"')
    assert named.search('{ mi: "matrix inversion" }')
    for path in STATIC.glob("*.js"):
        assert not named.search(path.read_text(encoding="utf-8")) or "uPlot" in path.name, path


# ---- order


def test_a_channel_of_categories_is_not_a_channel_of_numbers() -> None:
    """The declared `answers` decides, and not whether the mechanism has p and q."""

    class Categories(SquareWave):
        answers = "values"

    rng, values = np.random.default_rng(4), np.arange(3000) % 3
    found: dict[str, dict[str, Estimate]] = {}
    for m in (SquareWave(8, 2.0), Categories(8, 2.0)):
        counts = AttributeCounts(groups=[(m, m.tabulate(m.report(values, rng)))], reports=[1])
        found[m.answers] = {row.name: row.estimate(counts) for row in catalogue.estimators([m])}
    assert set(found["numbers"]) - set(found["values"]) == {"ems"}
    assert found["numbers"]["eb"].posterior.__class__ is not found["values"]["eb"].posterior.__class__
