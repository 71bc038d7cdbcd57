"""Tests the comparison of levels: false alarms are as rare as stated, and true differences are detected."""

import msgspec
import numpy as np
import pytest
from fastapi.testclient import TestClient
from scipy.stats import binom

from lab.drawn_tables import drawn_table
from ldpstream.estimators import matrix_inversion
from ldpstream.estimators.estimate import Group
from ldpstream.estimators.levels import levels_difference
from ldpstream.mechanisms import LONGITUDINAL, NAMES, CountTable, Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_api
from ldpstream.publishing.estimates.catalogue import estimators
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.publishing.estimates.thresholds import ALARM_CHANCE
from ldpstream.publishing.progress import Progress
from tests.faults.memory_store import MemoryResults
from tests.small_survey import small_survey

from .metrics_rig import Gauges

SHARES = np.array([0.4, 0.25, 0.15, 0.1, 0.06, 0.03, 0.01])
K = SHARES.size
# People at the strict level have the last value ten times as often. The combined estimate is wrong by 0.02 or more.
STRICT = np.array([0.36, 0.2, 0.14, 0.1, 0.06, 0.04, 0.1])


def build(name: str, eps: float) -> Mechanism:
    return mechanism(name, k=K, eps_inf=2 * eps, eps_1=eps) if name in LONGITUDINAL else mechanism(name, k=K, eps=eps)


def group(m: Mechanism, n: int, rng: np.random.Generator, shares: FloatArray = SHARES) -> Group:
    return m, drawn_table(m, rng.multinomial(n, shares), rng)


PAIRS = [(("OUE", 0.5, 500), ("OUE", 2.0, 2000)), (("GRR", 6.0, 1), ("GRR", 6.0, 3000)), (("GRR", 8.0, 20), ("GRR", 8.0, 20)),
         (("L-GRR", 1.0, 300), ("L-OSUE", 2.0, 300)), (("OLH", 1.0, 200), ("SS", 2.0, 200))]  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS, ids=repr)
def test_levels_of_one_histogram_differ_as_rarely_as_stated(
    pair: tuple[tuple[str, float, int], tuple[str, float, int]],
) -> None:
    """In 500 surveys, p <= 5 % and p <= 0.1 % are not more frequent than stated, even with a single person.

    A correct test fails with probability 1e-6.
    """
    rng = np.random.default_rng(1)
    levels = [(build(name, eps), n) for name, eps, n in pair]
    found = [levels_difference([group(m, n, rng) for m, n in levels]) for _ in range(500)]
    for level in (0.05, 0.001):
        assert sum(difference.p <= level for difference in found if difference) <= binom.ppf(1 - 1e-6, 500, level)


@pytest.mark.parametrize("name", NAMES)
def test_levels_that_differ_are_detected(name: str) -> None:
    """Uses 30 000 people per level. One value has a share of a tenth at the strict level, a hundredth at the other level."""
    rng = np.random.default_rng(NAMES.index(name))
    found = levels_difference([group(build(name, 3.0), 30_000, rng), group(build(name, 2.0), 30_000, rng, STRICT)])
    assert found is not None
    assert found.p < ALARM_CHANCE
    assert (found.pair, found.value) == ((0, 1), K - 1)


def test_a_window_is_no_more_certain_than_its_people() -> None:
    """The same people report from kept memos at every step, so more steps add no certainty. The control treats every report as
    a report of another person."""
    m, rng, alarms, control = build("L-OSUE", 2.0), np.random.default_rng(3), 0, 0
    for _ in range(200):
        groups = [(m, m.tabulate(m.simulate(rng.choice(K, 100, p=SHARES), rng, steps=8))) for _ in range(2)]
        held, single = levels_difference(groups, 8), levels_difference(groups)
        alarms += held is not None and held.p <= 0.05
        control += single is not None and single.p <= 0.05
    assert alarms <= binom.ppf(1 - 1e-6, 200, 0.05)
    assert control > binom.ppf(1 - 1e-6, 200, 0.05)


def test_levels_without_people_are_not_compared() -> None:
    m, rng = build("OUE", 1.0), np.random.default_rng(4)
    nobody = (m, m.empty_table())
    assert levels_difference([nobody, nobody]) is None
    assert levels_difference([group(m, 100, rng), nobody]) is None
    found = levels_difference([group(m, 100, rng), nobody, group(m, 100, rng)])
    assert found is not None
    assert found.pair == (0, 2)


LEVELS = ({"name": "bold", "mechanism": "GRR", "eps": 4.0}, {"name": "strict", "mechanism": "OUE", "eps": 2.0})
SURVEY = small_survey({"name": "a", "size": K, "level": LEVELS}, name="levels", window_steps=1)


def publication(strict: FloatArray, n: tuple[int, int] = (5000, 5000)) -> tuple[Publication, list[CountTable]]:
    rng = np.random.default_rng(5)
    pairs = zip(SURVEY.mechanisms[0], n, (SHARES, strict), strict=True)
    tables = [group(m, people, rng, shares)[1] for m, people, shares in pairs]
    return conclude(SURVEY, 0, 0, "window", [tables], True), tables


def test_levels_are_published_beside_each_other() -> None:
    p, tables = publication(SHARES)
    for level, m, table in zip(("bold", "strict"), SURVEY.mechanisms[0], tables, strict=True):
        own = matrix_inversion(m, table)
        assert p.levels[level].reports == table.n
        np.testing.assert_array_equal(p.levels[level].frequencies, own.frequencies)
        np.testing.assert_array_equal(p.levels[level].standard_errors, own.standard_errors)
    assert p.diagnostics.levels_p is not None
    assert p.diagnostics.levels_p > 0.01
    assert p.diagnostics.levels_pair == ["bold", "strict"]
    rows = [row for row in estimators(SURVEY.mechanisms[0]) if row.intervals != "never"]
    assert all(p.estimators[row.name].interval_withheld is None for row in rows)
    assert msgspec.json.decode(msgspec.json.encode(p), type=Publication) == p


def test_intervals_over_levels_that_differ_are_withheld() -> None:
    """The API and Prometheus report the difference; the API also shows the levels' own estimates."""
    p, _ = publication(STRICT)
    assert p.diagnostics.levels_p is not None
    assert p.diagnostics.levels_p < ALARM_CHANCE
    for found in p.estimators.values():
        assert (found.interval_withheld, found.standard_errors) == ("levels", [None] * K)
    step = msgspec.structs.replace(p, span="step")
    results = MemoryResults()
    results.save([p, step], None, Progress(first_step=0, next_step=1))
    with TestClient(create_api(Served(SURVEY, results, dict))) as client:
        (overview,) = client.get("/api/v1/status").json()["attributes"]
        assert (overview["levels_p"], overview["levels_pair"]) == (p.diagnostics.levels_p, ["bold", "strict"])
        assert overview["levels_label"] == str(K - 1)
        h = client.get("/api/v1/attributes/a/histogram", params={"top": 2}).json()
        assert h["levels"]["strict"]["frequencies"] == [p.levels["strict"].frequencies[v] for v in h["values"]]
        power = client.get("/api/v1/attributes/a/histogram", params={"estimator": "mi", "post": "power"})
        assert (power.status_code, "withheld" in power.text) == (422, True)
    assert Gauges(SURVEY, [p])("levels_p", attribute="a", span="window") == p.diagnostics.levels_p


def test_a_level_without_people_has_no_own_estimate() -> None:
    p, _ = publication(SHARES, (5000, 0))
    assert p.levels["strict"].frequencies == [None] * K
    assert (p.levels["strict"].reports, p.diagnostics.levels_p, p.diagnostics.levels_pair) == (0, None, None)
    assert p.estimators["mi"].interval_withheld is None
