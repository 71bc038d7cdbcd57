"""Differences of means and percentiles between two times and between two cohorts."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from scipy.stats import binom
from starlette.testclient import TestClient

from ldpstream.estimators.quantiles import PERCENTILES
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_api
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.estimates.frequencies import NUMBERS, NumberEstimate
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.publishing.progress import Progress
from ldpstream.surveys import Cohort
from tests.faults.memory_store import MemoryResults
from tests.small_survey import small_survey

PEOPLE, SEEDS, MOST_MISSES = 2000, 60, 10
EDGES = np.array([0.0, 1, 2, 5, 10, 20, 50])
LEVEL = {"name": "standard", "mechanism": "GRR", "eps": 3.0}
SURVEY = small_survey(
    {"name": "km", "bins": EDGES.tolist(), "level": [LEVEL]}, {"name": "trips", "size": 20, "ordered": True, "level": [LEVEL]}
)
COHORT = Cohort(name="town", values=("inner", "outer"), least=1)


def made(attribute: str, values: IntArray, step: int, rng: np.random.Generator) -> Publication:
    place = SURVEY.index(attribute)
    [m] = SURVEY.mechanisms[place]
    return conclude(SURVEY, place, step, "step", [[m.tabulate(m.simulate(values, rng))]], True)


def compared(by: str, before: Publication, after: Publication) -> dict[str, Any]:
    """The differences of numbers in the answer: of two steps, or of two cohorts at one step."""
    survey, query = SURVEY, {"before": "0"}
    if by == "cohorts":
        survey, query = replace(SURVEY, cohort=COHORT), {"cohort": "inner", "against": "outer"}
        before, after = replace(before, step=1, cohort="outer"), replace(after, cohort="inner")
    results = MemoryResults()
    assert results.save([before, after], None, Progress(first_step=0, next_step=2))
    with TestClient(create_api(Served(survey, results, dict))) as client:
        answer = client.get(f"/api/v1/attributes/{after.attribute}/comparison", params={"span": "step", **query})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["numbers"]
    return found


@pytest.mark.parametrize("by", ["times", "cohorts"])
def test_a_difference_lies_between_the_farthest_ends(by: str) -> None:
    """If an interval of one side is missing, the difference has none."""
    rng = np.random.default_rng(1)
    one, other = (made("km", np.full(100, 2), step, rng) for step in (0, 1))
    was = {
        "mean": NumberEstimate(value=10.0, low=8.0, high=13.0), "p50": NumberEstimate(value=4.0, low=2.0, high=5.0),
        "p90": NumberEstimate(value=20.0, low=10.0, high=50.0),
    }  # fmt: skip
    now = {
        "mean": NumberEstimate(value=14.5, low=12.0, high=16.0), "p50": NumberEstimate(value=3.0, low=2.0, high=5.0),
        "p90": NumberEstimate(value=25.0, low=None, high=None), "p99": NumberEstimate(value=40.0, low=20.0, high=50.0),
    }  # fmt: skip
    assert compared(by, replace(one, numbers=was), replace(other, numbers=now)) == {
        "mean": {"value": 4.5, "low": -1.0, "high": 8.0},  # 12 - 13 and 16 - 8
        "p50": {"value": -1.0, "low": -3.0, "high": 3.0},
        "p90": {"value": 5.0, "low": None, "high": None},
    }


def numbers_of(points: FloatArray, shares: FloatArray) -> FloatArray:
    """The mean and the percentiles of a population whose numbers are `points`."""
    return np.array([points @ shares, *points[np.searchsorted(np.cumsum(shares), PERCENTILES)]])


@pytest.mark.parametrize(("by", "attribute"), [("times", "trips"), ("cohorts", "km")])
def test_intervals_of_differences_cover(by: str, attribute: str) -> None:
    """60 pairs of samples of two populations. If an interval contains the true difference with a probability of 95 %, more than
    ten misses of a number have a probability of 2e-4.

    The numbers of `km` lie at the upper ends of their bins before, and at the lower ends after: the worst case. Control:
    intervals of the mean with a quarter of the width miss more often.
    """
    k, rng = SURVEY.attributes[SURVEY.index(attribute)].k, np.random.default_rng(7)
    populations = [np.exp(-np.arange(k) / scale) / np.exp(-np.arange(k) / scale).sum() for scale in (k / 4, k / 3)]
    points = [np.arange(float(k))] * 2 if attribute == "trips" else [EDGES[:-1] + 0.999 * np.diff(EDGES), EDGES[:-1]]
    before, after = (numbers_of(*each) for each in zip(points, populations, strict=True))
    true, misses, narrow = after - before, np.zeros(len(NUMBERS)), 0
    for _ in range(SEEDS):
        samples = (rng.choice(k, PEOPLE, p=shares) for shares in populations)
        found = compared(by, *(made(attribute, values, step, rng) for step, values in enumerate(samples)))
        low, high = (np.array([found[name][end] for name in NUMBERS]) for end in ("low", "high"))
        misses += ~((low <= true) & (true <= high))
        narrow += abs(true[0] - (low[0] + high[0]) / 2) > (high[0] - low[0]) / 8
    assert binom.sf(MOST_MISSES, SEEDS, 0.05) < 2e-4
    assert (misses <= MOST_MISSES).all()
    assert narrow > MOST_MISSES
