"""Comparisons: differences of the shares of the histogram, with the intervals and the test of the raw inversions."""

from typing import Any

import numpy as np
from msgspec.structs import replace
from scipy.stats import binom
from starlette.testclient import TestClient

from lab.drawn_tables import drawn_table
from ldpstream.estimators.differences import beyond_chance, chances, separate_errors
from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import IntArray
from ldpstream.publishing.answers.comparison import differences_of
from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_api
from ldpstream.publishing.estimates.cohorts import conclude_cohort
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.progress import Progress
from ldpstream.surveys import Cohort
from tests.faults.memory_store import MemoryResults
from tests.small_survey import small_survey

PEOPLE, SEEDS = 3000, 60
BEFORE, AFTER = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.45, 0.3, 0.15, 0.1])
LEVEL = {"name": "standard", "mechanism": "GRR", "eps": 1.0}
SURVEY = small_survey({"name": "screen", "values": ["home", "search", "map", "chat"], "level": [LEVEL]})


def draw(m: Mechanism, people: IntArray, rng: np.random.Generator) -> IntArray:
    return drawn_table(m, people, rng).counts


def compared(seed: int, people: int = PEOPLE, **query: Any) -> dict[str, Any]:
    """The comparison of two steps in which other people answer."""
    rng, (m,) = np.random.default_rng(seed), SURVEY.mechanisms[0]
    made = []
    for step, shares in enumerate((BEFORE, AFTER)):
        table = m.tabulate(m.simulate(rng.choice(4, people, p=shares), rng))
        made.append(conclude(SURVEY, 0, step, "step", [[table]], True))
    results = MemoryResults()
    assert results.save(made, None, Progress(first_step=0, next_step=2))
    with TestClient(create_api(Served(SURVEY, results, dict))) as client:
        found: dict[str, Any] = client.get(
            "/api/v1/attributes/screen/comparison", params={"before": 0, "span": "step", **query}
        ).json()
    return found


def test_the_default_interval_covers() -> None:
    """60 surveys with four values: 240 intervals, of which on average at least 95 % contain the change.

    The four of one survey depend on each other, so the allowance is for 60 independent intervals, 90 % of which would be 54:
    fewer do with a probability of 3 % if the coverage is only 95 %. The seeds are fixed. Control: half of the width.
    """
    covered, narrow, widths = 0, 0, []
    for seed in range(SEEDS):
        found = compared(seed)
        assert (found["basis"], found["estimator"]) == ("inversion", "eb")
        low, high, true = np.array(found["low"]), np.array(found["high"]), AFTER - BEFORE
        middle, half = (low + high) / 2, (high - low) / 4
        covered += int(((low <= true) & (true <= high)).sum())
        narrow += int((np.abs(middle - true) <= half).sum())
        widths.append((high - low).mean())
        one, other = (np.array(found[side]["frequencies"]) for side in ("before", "after"))
        np.testing.assert_allclose(found["differences"], other - one)
        assert (low <= found["differences"]).all()
        assert (found["differences"] <= high).all()
    assert covered >= 0.9 * 4 * SEEDS
    assert narrow < 0.85 * 4 * SEEDS
    assert binom.cdf(0.9 * SEEDS - 1, SEEDS, 0.95) < 0.04
    raw = compared(0, estimator="mi")
    assert raw["basis"] == "inversion"
    assert np.mean(widths) < 1.05 * np.mean(np.subtract(raw["high"], raw["low"]))


def test_every_estimator_has_the_errors_of_the_raw_inversion() -> None:
    raw, *others = (compared(1, estimator=estimator) for estimator in ("mi", "mle", "ibu"))
    assert all((found["basis"], found["standard_errors"]) == ("inversion", raw["standard_errors"]) for found in others)


def test_cohorts_of_unequal_size_with_equal_shares_do_not_differ() -> None:
    """60 pairs of cohorts of 1000 and of 20 000 people. If 5 of 100 pairs have a clear value, more than nine do so with a
    probability of 1e-3.

    Controls: the default estimates with their own errors, independent or added, since the small cohort is biased.
    """
    shares = 1 / np.arange(1.0, 101)
    asked = {"name": "screen", "size": 100, "level": [{"name": "standard", "mechanism": "OUE", "eps": 1.0}]}
    survey = replace(small_survey(asked), cohort=Cohort(name="version", values=("new", "old"), least=1))
    (m,), rng, found, controls = survey.mechanisms[0], np.random.default_rng(54), 0, np.zeros(2)
    everybody = conclude(survey, 0, 0, "step", [[m.empty_table()]], True)
    for _ in range(SEEDS):
        people = (rng.multinomial(n, shares / shares.sum()) for n in (1000, 20_000))
        new, old = (
            conclude_cohort(survey, i, everybody, [[m.table(int(of.sum()), draw(m, of, rng))]]) for i, of in enumerate(people)
        )
        results = old.estimators["eb"], new.estimators["eb"]
        made = differences_of(survey, (old, new), results, "eb", 0.95, apart=True)
        clear = beyond_chance(made.p)
        assert not (clear & (made.low <= 0) & (made.high >= 0)).any()
        found += int(clear.any())
        one, other = (result.estimate() for result in results)
        for i, errors in enumerate((separate_errors(one, other), one.standard_errors + other.standard_errors)):
            controls[i] += beyond_chance(chances(other.frequencies - one.frequencies, errors)).any()
    assert binom.sf(9, SEEDS, 0.05) < 1e-3
    assert found <= 9 < controls.min()


def test_without_raw_inversions_nothing_is_clear() -> None:
    """An earlier version published cohorts without them."""
    (m,) = SURVEY.mechanisms[0]
    tables = [m.table(1000, np.array(counts)) for counts in ([400, 200, 200, 200], [700, 100, 100, 100])]
    sides = [conclude(SURVEY, 0, step, "step", [[table]], True) for step, table in enumerate(tables)]
    old = [replace(p, estimators={"eb": p.estimators["eb"]}) for p in sides]
    for (one, other), clear in ((sides, True), (old, False)):
        made = differences_of(SURVEY, (one, other), (one.estimators["eb"], other.estimators["eb"]), "eb", 0.95, apart=True)
        assert bool(beyond_chance(made.p).any()) == clear
        assert bool(np.isnan(made.low).all()) == (not clear)


def test_a_share_changes_by_at_most_one() -> None:
    """Control: the unbiased differences of few reports exceed these limits."""
    found, raw = compared(1, people=4), compared(1, people=4, estimator="mi")
    assert (min(found["low"]), max(found["high"])) == (-1, 1)
    assert all(low <= x <= high for low, x, high in zip(found["low"], found["differences"], found["high"], strict=True))
    assert max(raw["high"]) > 1


def test_few_reports_are_too_few_to_tell() -> None:
    """From 4000 reports, equal shares are known well enough, although none is more frequent."""
    (m,), rng = SURVEY.mechanisms[0], np.random.default_rng(3)
    for people, few in ((1, True), (40, True), (4000, False)):
        made = conclude(SURVEY, 0, 0, "step", [[m.tabulate(m.simulate(np.arange(people) % 4, rng))]], True)
        results = MemoryResults()
        assert results.save([made], None, Progress(first_step=0, next_step=1))
        with TestClient(create_api(Served(SURVEY, results, dict))) as client:
            where = "/api/v1/attributes/screen"
            found = client.get(f"{where}/histogram", params={"span": "step"}).json()
            assert found["too_few"] == few
            assert client.get(f"{where}/series", params={"span": "step"}).json()["too_few"] == few
            overview = client.get("/api/v1/overview", params={"span": "step"}).json()
            assert overview["attributes"][0]["too_few"] == overview["sentences"][0]["text"].startswith("too few") == few
