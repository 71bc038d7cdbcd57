"""The estimate of numbers from Square Wave reports: its models against dense references, its intervals, and its accuracy."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import integrate, stats

from lab.drawn_tables import drawn_table
from ldpstream.estimators import Estimate, empirical_bayes
from ldpstream.estimators.quantiles import mean, quantiles
from ldpstream.estimators.smooth import density_models
from ldpstream.estimators.smooth import numbers as module
from ldpstream.estimators.smooth.density_models import (
    IRREGULAR_TAU,
    Likelihood,
    _factor,
    _gaussian,
    _irregular,
    _jumps,
    _precision,
    fits,
)
from ldpstream.estimators.smooth.draws import Draws, Unbiased
from ldpstream.estimators.smooth.numbers import _Cells, _likelihood, _unbiased, mean_variance
from ldpstream.mechanisms import CountTable, mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.families.square_wave import SquareWave

estimate = partial(empirical_bayes, ordered=True)


def bell(k: int) -> FloatArray:
    f = np.exp(-((np.arange(k) / k - 0.4) ** 2) / 0.03)
    return np.asarray(f / f.sum())


def spikes(k: int) -> FloatArray:
    f = np.full(k, 0.02 / k)
    f[[k // 5, 2 * k // 3]] += [0.6, 0.38]
    return f


def drawn(m: SquareWave, f: FloatArray, n: int, rng: np.random.Generator) -> CountTable:
    return drawn_table(m, rng.multinomial(n, f), rng)


def unbiased_of(found: Estimate) -> Unbiased:
    assert isinstance(found.posterior, Draws)
    return found.posterior.unbiased


# ---- the models


def random_likelihood(k: int, scale: float) -> Likelihood:
    rng = np.random.default_rng(1)
    root = rng.normal(size=(k, k))
    f = bell(k)
    g = scale * root @ root.T
    return Likelihood(g @ f, g, rng.uniform(0.5, 2, k))


def test_the_precision_at_a_mode_is_that_of_dense_derivatives() -> None:
    likelihood, eta = random_likelihood(6, 50.0), np.array([0.3, 0.1, 0.6, 0.7, 0.0])
    h = 1e-6 * np.eye(5)
    slopes = np.array([(likelihood.shares(eta + one) - likelihood.shares(eta - one)) / 2e-6 for one in h])  # (5, 6)
    q = _precision(5, 2, 1.0)[0]
    factor = _factor(likelihood, likelihood.shares(eta), q)
    np.testing.assert_allclose(factor @ factor.T, slopes @ likelihood.curvature @ slopes.T + q, rtol=1e-6)


@pytest.mark.parametrize("exponent", [-1.0, 1.0])
def test_the_evidence_is_the_integral_over_all_steps(exponent: float) -> None:
    """Two cells have one step, so quadrature gives the evidence. Laplace's error is small for a clear likelihood."""
    likelihood = Likelihood(np.array([900.0, 2100.0]), np.array([[3000.0, 0.0], [0.0, 3000.0]]), np.ones(2))
    q, log_det = _precision(1, 1, exponent)

    def density(u: float) -> float:
        value = likelihood(likelihood.shares(np.array([u]))) - 0.5 * q[0, 0] * u**2 + 0.5 * log_det
        return math.exp(value - 800) / math.sqrt(2 * math.pi)

    exact = math.log(integrate.quad(density, -3, 5, points=[0.85])[0]) + 800
    assert _gaussian(likelihood, "flat", np.zeros(1), q, log_det).log_evidence == pytest.approx(exact, abs=0.01)


def test_the_evidence_of_jumps_is_a_close_lower_bound() -> None:
    """u has Student's t distribution with one degree of freedom, the Cauchy distribution."""
    likelihood = Likelihood(np.array([900.0, 2100.0]), np.array([[3000.0, 0.0], [0.0, 3000.0]]), np.ones(2))
    scale = 0.01

    def density(u: float) -> float:
        prior = float(stats.cauchy.pdf(u, scale=math.sqrt(2 * scale)))
        return math.exp(likelihood(likelihood.shares(np.array([u]))) - 800) * prior

    exact = math.log(integrate.quad(density, -3, 5, points=[0.0, 0.85])[0]) + 800
    bound = _jumps(likelihood, np.zeros(1), scale, None).log_evidence
    assert exact - 1 < bound < exact + 0.01


def test_the_irregular_prior_adds_independent_parts() -> None:
    q, log_det = _irregular(7, 0.5)
    assert log_det == pytest.approx(np.linalg.slogdet(q)[1])
    relative = np.hstack([-np.ones((7, 1)), np.eye(7)])  # η_v - η_1
    smooth = np.linalg.inv(_precision(7, 2, IRREGULAR_TAU + 3 * math.log10(8 / 100))[0])
    np.testing.assert_allclose(np.linalg.inv(q), smooth + 0.25 * relative @ relative.T, atol=1e-8)
    eta = np.arange(7.0) ** 2
    assert eta @ _precision(7, 1, 1.0)[0] @ eta == pytest.approx(10 * float((np.diff(eta, prepend=0) ** 2).sum()))


# ---- the likelihood


def test_the_likelihood_has_the_score_and_the_information_of_the_reports() -> None:
    m, rng = SquareWave(12, 1.0), np.random.default_rng(1)
    table = drawn(m, bell(12), 50_000, rng)
    found = _likelihood([(m, table)], 1, _Cells(np.ones(12)))
    f, a = bell(12), m.channel()
    expected = f @ a
    information = a * (table.n / expected) @ a.T
    np.testing.assert_allclose(found.curvature, information, rtol=0.06)  # the pilot's probabilities are near the true ones
    score = found.linear - found.curvature @ f
    exact = a @ ((table.counts - table.n * expected) / expected)
    np.testing.assert_allclose(score - score @ f, exact - exact @ f, atol=0.06 * np.abs(exact).max())


@pytest.mark.parametrize("k", [5, 128, 129, 250, 1024])
def test_cells_keep_their_shares_and_a_straight_log_density(k: int) -> None:
    widths = np.random.default_rng(1).uniform(0.5, 2, k)
    cells = _Cells(widths)
    assert cells.first.size <= module.MAX_CELLS
    ends = np.cumsum(widths)
    f = widths * np.exp(-3 * (ends - widths / 2) / ends[-1])
    of_cells = np.add.reduceat(f, cells.first)
    found = cells.spread(of_cells)
    np.testing.assert_allclose(np.add.reduceat(found, cells.first), of_cells, rtol=1e-12)
    np.testing.assert_allclose(found, f, rtol=0.02)
    np.testing.assert_array_equal(cells.spread(np.array([of_cells, of_cells]))[1], found)


# ---- the unbiased mean and distribution function


@pytest.mark.parametrize("reports", [1, 3])
def test_the_unbiased_errors_are_those_of_the_channel(reports: int) -> None:
    """The exact covariance of a person's `reports` reports, from the channel, against the errors from large counts."""
    m, f, n, numbers = SquareWave(6, 1.5), bell(6), 3_000_000, np.array([0.0, 1.0, 5.0, 6.0, 10.0, 30.0])
    counts = np.round(n * (f @ m.channel())).astype(int)
    table = m.table(int(counts.sum()), counts)
    found = estimate(m, table, steps=reports).posterior
    assert isinstance(found, Draws)

    def error(values: FloatArray) -> float:
        told = m.reading.inverse() @ values
        of_value = m.channel() @ told**2 - (m.channel() @ told) ** 2  # the noise of one report, for each value
        between = float(f @ values**2 - (f @ values) ** 2)
        return math.sqrt((float(f @ of_value) / reports + between) * reports / n)

    assert found.unbiased.error_of_mean(numbers) == pytest.approx(error(numbers), rel=1e-3)
    assert mean_variance(m, f, numbers, reports) * reports / n == pytest.approx(error(numbers) ** 2, rel=1e-3)
    reached, edge = np.concatenate([[0.0], np.cumsum(f)]), np.arange(7)
    for reach in (1.0, 30.0, 300.0):  # wider spans are better for a larger reach
        low, high = found.unbiased.bounds(reach)
        for place in range(1, 6):
            below, above = [], []
            for span in (1, 2, 4):
                under, over = (
                    np.array([[float(e > v) for e in ends] for v in range(6)]).mean(axis=1)
                    for ends in (range(place - span + 1, place + 1), range(place, place + span))
                )
                below.append(f @ under - reach * error(under))
                above.append(f @ over + reach * error(over))
            assert low[place] == pytest.approx(max(0.0, *below), abs=2e-3 * (reached[place] - low[place]))
            assert high[place] == pytest.approx(min(above), abs=2e-3 * (high[place] - reached[place]))
        assert (low[edge[[0, -1]]].tolist(), high[edge[[0, -1]]].tolist()) == ([0.0, 1.0], [0.0, 1.0])


@pytest.mark.parametrize("reports", [1, 4])
def test_fake_data_and_repeated_reports_have_the_variance_of_a_share(reports: int) -> None:
    m, f = SquareWave(6, 1.0).with_fake_data(3), bell(6)
    found = [mean_variance(m, f, one, reports) for one in np.eye(6)]
    np.testing.assert_allclose(found, m.reading.inversion_variances(f, 1, reports), rtol=1e-9)
    counts = np.round(3_000_000 * (f @ m.channel())).astype(int)
    unbiased = unbiased_of(estimate(m, m.table(int(counts.sum()), counts), steps=reports))
    error = unbiased.bounds(1.0)[1][1] - unbiased.shares[0]  # of the first share: a wider span would lie higher
    assert error**2 * 3e6 / reports == pytest.approx(found[0], rel=1e-3)


def test_the_mean_of_two_levels_includes_the_choice_of_people_once() -> None:
    """Two values have opposite errors of their shares; the exact covariance of GRR's counts gives the error of the mean."""
    wave, sharp, n, f, numbers = SquareWave(12, 0.1), mechanism("GRR", k=12, eps=6.0), 10**6, np.zeros(12), np.arange(12.0)
    f[[0, 11]] = 0.5, 0.5
    channel = sharp.q + (sharp.p - sharp.q) * np.eye(12)
    counts = [np.round(n * (f @ a)).astype(int) for a in (wave.channel(), channel)]
    pairs = [(m, m.table(int(c.sum()), c)) for m, c in zip((wave, sharp), counts, strict=True)]
    reported = f @ channel
    exact = (reported @ numbers**2 - (reported @ numbers) ** 2) / (sharp.p - sharp.q) ** 2 / n
    assert unbiased_of(estimate(pairs)).error_of_mean(numbers) == pytest.approx(math.sqrt(exact), rel=0.02)


@pytest.mark.parametrize(("name", "eps"), [("SW", 2.0), ("GRR", 4.0), ("OUE", 1.0), ("OLH", 2.5)])
@pytest.mark.parametrize("reports", [1, 3])
def test_the_errors_of_two_levels_are_those_of_simulated_surveys(
    name: str, eps: float, reports: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """False alarm below 1e-4: 5 standard errors of a mean and of a standard deviation. OLH has more symbols than bins."""
    monkeypatch.setattr(module, "SPANS", (1,))
    levels, n, rng, f = (SquareWave(8, 0.5), mechanism(name, k=8, eps=eps)), 2000, np.random.default_rng(8), np.zeros(8)
    f[3:] = 0.05, 0.05, 0.1, 0.2, 0.6
    numbers, cells = np.array([0.0, 1.0, 2.0, 4.0, 5.0, 6.0, 8.0, 9.0]), _Cells(np.ones(8))

    def survey() -> Unbiased:
        groups = []
        for m in levels:
            values = rng.choice(8, n, p=f)
            rounds = [m.tabulate(m.simulate(values, rng)) for _ in range(reports)]
            groups.append((m, sum(rounds[1:], rounds[0])))
        return _unbiased(groups, reports, f, cells)

    runs = [survey() for _ in range(1000)]
    found = np.array([[x.shares @ numbers, *np.cumsum(x.shares)[:-1]] for x in runs])
    one = runs[0]
    stated = np.array([one.error_of_mean(numbers), *(one.bounds(1.0)[1][1:-1] - np.cumsum(one.shares)[:-1])])
    np.testing.assert_allclose(
        found.mean(axis=0), [f @ numbers, *np.cumsum(f)[:-1]], atol=5 * float(stated.max()) / math.sqrt(1000)
    )
    np.testing.assert_allclose(found.std(axis=0), stated, rtol=0.12)
    assert one.error_of_mean(numbers + 2000) == pytest.approx(one.error_of_mean(numbers), rel=1e-6)


def test_the_mean_of_few_reports_has_an_interval() -> None:
    """False alarm below 1e-4: 100 runs with a chance of 0.95. Three equal reports have no variance of their own."""
    m, f, rng, edges = SquareWave(12, 1.0), bell(12), np.random.default_rng(1), np.arange(13.0)
    truth, hits = float(f @ (edges[:-1] + 0.5)), 0
    for _ in range(100):
        found = mean(estimate(m, drawn(m, f, 3, rng)), edges)
        assert found is not None
        hits += found.low <= truth <= found.high
    assert hits >= stats.binom.ppf(1e-4, 100, 0.95)
    for cell, end in {0: 0.0, m.cells - 1: 12.0}.items():
        for n in (1, 50, 10**6):  # the unbiased mean is far beyond the edges
            found = mean(estimate(m, m.table(n, n * np.eye(m.cells, dtype=int)[cell])), edges)
            assert found is not None
            assert found.low < found.high
            assert found.low <= found.value <= found.high
            assert 0.5 <= found.value <= 11.5
            assert end in (found.low, found.high)


@pytest.mark.parametrize("shape", [bell, spikes])
def test_the_mean_covers_the_truth_in_95_of_100_cases(shape: object) -> None:
    """False alarm below 1e-4: 120 runs with a chance of 0.95. As a control, intervals of half the width miss more often."""
    m, f, rng, edges = SquareWave(24, 1.0), (bell if shape is bell else spikes)(24), np.random.default_rng(7), np.arange(25.0)
    truth, hits, control = float(f @ (edges[:-1] + 0.5)), 0, 0
    for _ in range(120):
        found = mean(estimate(m, drawn(m, f, 2000, rng)), edges)
        assert found is not None
        assert found.low <= found.value <= found.high
        hits += found.low <= truth <= found.high
        middle = (found.low + found.high) / 2
        control += abs(truth - middle) <= (found.high - found.low) / 4
    low, high = stats.binom.ppf([5e-5, 1 - 5e-5], 120, 0.95)
    assert low <= hits <= high
    assert control < low


# ---- the estimate


def far(k: int) -> FloatArray:
    return np.asarray(0.985 * np.eye(k)[0] + 0.015 * np.eye(k)[-1])


def test_the_99th_percentile_covers_people_far_from_all_others() -> None:
    """False alarm below 1e-4: 60 runs, each with a chance of 0.95. Control: the models nearly ignore these people."""
    m, f, rng, edges = SquareWave(32, 0.5), far(32), np.random.default_rng(11), np.linspace(0, 1, 33)
    truth, hits = float(np.interp(0.99, np.concatenate([[0.0], np.cumsum(f)]), edges)), np.zeros(2)
    for _ in range(60):
        found = estimate(m, drawn(m, f, 1000, rng))
        assert isinstance(found.posterior, Draws)
        alone = replace(found.posterior, unbiased=Unbiased.given_the_sum(found.frequencies, np.full(32, 1e-12)))
        for which, one in enumerate((found, replace(found, posterior=alone))):
            [p99] = quantiles(one, edges, [0.99]) or ()
            assert p99.low <= p99.value <= p99.high
            hits[which] += p99.low <= truth <= p99.high
    assert hits[0] >= stats.binom.ppf(1e-4, 60, 0.95) > hits[1]


def test_a_peak_of_one_among_a_hundred_bins_keeps_its_share() -> None:
    m, f = SquareWave(101, 4.0), 0.55 * bell(101)
    f[40] += 0.45
    found = estimate(m, drawn(m, f, 10_000, np.random.default_rng(6)))
    assert found.frequencies[40] == pytest.approx(f[40], abs=0.05)


@pytest.mark.parametrize("reports", [1, 5])
def test_percentiles_of_several_levels_and_repeated_reports_cover(reports: int) -> None:
    """False alarm below 1e-4: 60 runs for each of three percentiles, each with a chance of 0.95."""
    rng, f, edges = np.random.default_rng(12), spikes(12), np.linspace(0, 1, 13)
    wave, sharp, bits = SquareWave(12, 0.5).with_fake_data(2), SquareWave(12, 2.0), mechanism("OUE", k=12, eps=1.0)
    truth = np.interp((0.5, 0.9, 0.99), np.concatenate([[0.0], np.cumsum(f)]), edges)
    hits = np.zeros(3)
    for _ in range(60):
        groups = [(m, drawn_table(m, rng.multinomial(800, f), rng, reports)) for m in (wave, sharp, bits)]
        found = quantiles(estimate(groups, steps=reports), edges)
        assert found is not None
        hits += [x.low <= t <= x.high for x, t in zip(found, truth, strict=True)]
    assert hits.min() >= stats.binom.ppf(3e-5, 60, 0.95)


def test_the_edges_of_the_domain() -> None:
    for k in (2, 3, 1024):
        m = SquareWave(k, 1.0)
        found = estimate(m, drawn(m, np.full(k, 1 / k), 5000, np.random.default_rng(1)))
        assert found.frequencies.min() >= 0
        assert found.frequencies.sum() == pytest.approx(1)
        assert np.isfinite(found.standard_errors).all()
    m = SquareWave(8, 1.0)
    assert np.isnan(estimate(m, m.empty_table()).frequencies).all()
    assert estimate(m, m.empty_table()).interval()[0].shape == (8,)
    for n in (1, 10**15):  # one report; all reports in one cell, as nobody honest sends them
        counts = np.zeros(m.cells, np.int64)
        counts[-1] = n
        forged = estimate(m, m.table(n, counts))
        assert np.isfinite(forged.frequencies).all()
        assert forged.frequencies.argmax() == 7
    with pytest.raises(ValueError, match="widths must be 8 positive finite numbers"):
        estimate(m, m.empty_table() + m.table(1, np.eye(m.cells, dtype=int)[0]), widths=np.zeros(8))


def test_a_search_that_ends_by_its_limit_is_not_converged(monkeypatch: pytest.MonkeyPatch) -> None:
    m = SquareWave(16, 2.0)
    table = drawn(m, spikes(16), 5000, np.random.default_rng(1))
    assert estimate(m, table).converged
    assert all(fit.converged for fit in fits(random_likelihood(10, 100.0)) if fit.kind == "jumps")
    monkeypatch.setattr(density_models, "UPDATES", 1)
    assert not any(fit.converged for fit in fits(random_likelihood(10, 100.0)) if fit.kind == "jumps")
    monkeypatch.setattr(density_models, "ROUNDS", 1)
    assert not estimate(m, table).converged
