"""Compares EMS with a dense implementation of its docstring, and tests its laws and its place in a publication."""

from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy import stats

from lab.drawn_tables import drawn_table
from ldpstream.estimators import mle
from ldpstream.estimators.diagnostics import fit
from ldpstream.estimators.estimate import Group
from ldpstream.estimators.maximum.ems import CELLS, TOLERANCE, ems
from ldpstream.mechanisms import ChannelMechanism, CountTable, mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.families.square_wave import SquareWave
from ldpstream.publishing.estimates.catalogue import estimators
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.estimates.filtering import conclude_filtered, replay
from ldpstream.publishing.estimates.publication import COHORT_SPANS, edges_of, spans
from ldpstream.surveys import Survey, SurveyError
from tests.small_survey import small_survey


def beta(k: int) -> FloatArray:
    return np.diff(stats.beta(5, 2).cdf(np.linspace(0, 1, k + 1)))


def drawn(m: Any, shares: FloatArray, n: int, seed: int = 1) -> CountTable:
    rng = np.random.default_rng(seed)
    return drawn_table(m, rng.multinomial(n, shares), rng)


def dense(groups: list[Group], iterations: int) -> FloatArray:
    """EMS on the cells of every bin, with matrices: the channel's rows repeated, and the smoothing step's matrix."""
    k = groups[0][0].k
    each = -(-CELLS // k)
    smoothing = 2 * np.eye(k * each) + np.eye(k * each, k=1) + np.eye(k * each, k=-1)
    smoothing /= smoothing.sum(axis=1, keepdims=True)
    cells = np.full(k * each, 1 / (k * each))
    for _ in range(iterations):
        pull = np.zeros(k * each)
        for m, table in groups:
            if isinstance(m, ChannelMechanism):
                channel = np.repeat(m.channel(), each, axis=0)
            else:  # the papers' pseudo-likelihood of the support counts
                channel = np.repeat(np.where(np.eye(k, dtype=bool), m.p, m.q), each, axis=0)
            pull += channel @ (table.counts / (cells @ channel))
        cells = smoothing @ (cells * pull / (cells * pull).sum())
        cells /= cells.sum()
    return np.asarray(cells.reshape(k, each).sum(axis=1))


@pytest.mark.parametrize("k", [2, 7, 300])
def test_ems_follows_its_docstring(k: int) -> None:
    sw = SquareWave(k, 1.0)
    table = drawn(sw, beta(k), 2000)
    np.testing.assert_allclose(ems(sw, table, max_iter=12).frequencies, dense([(sw, table)], 12), rtol=1e-9)
    grr = mechanism("GRR", k, eps=2.0)
    groups: list[Group] = [(sw, table), (grr, drawn(grr, beta(k), 500))]
    np.testing.assert_allclose(ems(groups, max_iter=12).frequencies, dense(groups, 12), rtol=1e-9)


def test_ems_stops_when_the_likelihood_stands_still() -> None:
    m = SquareWave(40, 1.0)
    table = drawn(m, beta(40), 5000)
    last = ems(m, table)
    before, first = (ems(m, table, max_iter=last.iterations - i) for i in (1, 2))
    assert last.converged
    assert not before.converged
    assert abs(last.log_likelihood - before.log_likelihood) < TOLERANCE <= abs(before.log_likelihood - first.log_likelihood)
    assert last.log_likelihood < mle(m, table).log_likelihood  # smoothing costs likelihood
    assert last.log_likelihood + last.gap * table.n >= mle(m, table).log_likelihood


# ---- the fit


def test_the_fit_accepts_any_values_and_sees_forged_reports() -> None:
    """The p-values of 1000 honest tables of very different values are uniform, by a Kolmogorov-Smirnov test at 1e-6."""
    m, rng = SquareWave(12, 1.0), np.random.default_rng(5)
    shapes = [beta(12), np.eye(12)[3], np.full(12, 1 / 12)]
    p_values = [fit(m, drawn_table(m, rng.multinomial(3000, shapes[i % 3]), rng)).p for i in range(1000)]
    assert stats.kstest(p_values, "uniform").pvalue > 1e-6
    assert stats.kstest(np.sqrt(p_values), "uniform").pvalue < 1e-6
    few = [fit(m, drawn_table(m, rng.multinomial(3, shapes[0]), rng)).z for _ in range(300)]
    assert max(np.abs(few)) < 6
    honest = drawn(m, beta(12), 20_000)
    forged = honest.counts.copy()
    forged[7] += 1500
    assert fit(m, m.table(21_500, forged)).z > 6
    assert fit(m.with_fake_data(3), CountTable(m.with_fake_data(3).signature, 21_500, forged)).z > 6
    assert fit(m, m.empty_table()).sign is None
    assert fit(SquareWave(5, 6.0), drawn(SquareWave(5, 6.0), beta(5), 100)).sign == "counts"


# ---- the survey and its publication


@cache
def survey_of(mechanisms: tuple[str, ...], **domain: Any) -> Survey:
    levels = [{"name": name, "mechanism": name, "eps": 1.0, "every_steps": 2, "lifetime_reports": 9} for name in mechanisms]
    return small_survey({"name": "a", **(domain or {"size": 20}), "level": levels})


@pytest.mark.parametrize("mechanisms", [("SW",), ("SW", "OUE"), ("GRR",)])
def test_a_survey_with_square_wave_publishes_ems(mechanisms: tuple[str, ...]) -> None:
    survey = survey_of(mechanisms)
    tables = [drawn(m, beta(20), 3000) for m in survey.mechanisms[0]]
    p = conclude(survey, 0, 0, "step", [tables], True)
    assert list(p.estimators) == [row.name for row in estimators(survey.mechanisms[0])]
    assert (p.main, "ems" in p.estimators) == ("eb", "SW" in mechanisms)
    if "SW" not in mechanisms:
        return
    found = p.estimators["ems"]
    assert found.frequencies == ems(list(zip(survey.mechanisms[0], tables))).frequencies.tolist()
    assert (found.standard_errors, found.interval_withheld) == ([None] * 20, "bias")
    assert p.estimators["mi"].interval_withheld is None
    assert p.privacy["SW"].eps_lifetime == 9.0
    assert p.diagnostics.fit_sign["SW"] == "classes"
    empty = conclude(survey, 0, 0, "step", [[m.empty_table() for m in survey.mechanisms[0]]], True)
    assert empty.estimators["ems"].interval_withheld is None
    own = p.estimators["eb"]
    assert own.interval_withheld is None
    low, high = own.estimate().interval()
    assert (low >= 0).all()
    assert (low <= own.estimate().frequencies).all()
    assert (own.estimate().frequencies <= high).all()
    assert (high <= 1).all()


@pytest.mark.parametrize("mechanisms", [("SW",), ("SW", "OUE")])
def test_a_survey_with_square_wave_publishes_numbers_with_intervals(mechanisms: tuple[str, ...]) -> None:
    edges = tuple(float(i) for i in range(21))
    survey = survey_of(mechanisms, bins=edges)
    tables = [drawn(m, beta(20), 5000) for m in survey.mechanisms[0]]
    truth = float(beta(20) @ (np.arange(20) + 0.5))
    made = [conclude(survey, 0, 0, span, [tables], True) for span in COHORT_SPANS]
    for p in made:
        assert set(p.numbers) == {"mean", "p50", "p90", "p99"}
        low, value, high = (getattr(p.numbers["mean"], end) for end in ("low", "value", "high"))
        assert low <= value <= high
        assert low < truth < high
    asked = survey.attributes[0]
    assert [edges_of(asked, survey.mechanisms[0], span) for span in spans(asked)] == [edges, edges, None]
    curve, state = conclude_filtered(survey.mechanisms[0], tables, made, None, True, None)
    assert not curve.numbers
    assert replay(survey.mechanisms[0], made[0], None) == state
    earlier = {name: made[0].estimators[name] for name in ("ems", "mi")}  # of a version whose default was EMS
    assert replay(survey.mechanisms[0], msgspec.structs.replace(made[0], estimators=earlier), None) == state


def test_square_wave_needs_numbers() -> None:
    assert survey_of(("SW",), bins=(0.0, 10.0, 20.0, 50.0)).mechanisms[0][0].signature == "SW(k=3, eps=1.0, width=1)"
    with pytest.raises(SurveyError, match=r"level\[0\] \(a, SW\): SW needs numbers: bins or size instead of values"):
        survey_of(("SW",), values=("b", "c"))
