"""Ordered values with heaps: people round their numbers to multiples of five, so no smooth density fits."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import gamma

from lab.drawn_tables import drawn_table
from ldpstream.estimators import empirical_bayes
from ldpstream.estimators.estimate import Estimate
from ldpstream.estimators.quantiles import mean, quantiles
from ldpstream.estimators.smooth.draws import Draws, Unshrunk
from ldpstream.estimators.smooth.ordered import _misfit
from ldpstream.estimators.smooth.smooth_prior import smooth_posterior
from ldpstream.mechanisms import mechanism

K, RUNS = 100, 20
EDGES = np.arange(K + 1.0)
ALL_ROUND = np.zeros(K)
np.add.at(ALL_ROUND, np.minimum(np.round(np.arange(K) / 5).astype(int) * 5, K - 1), gamma.pdf(np.arange(K), 12, scale=3))
ALL_ROUND /= ALL_ROUND.sum()


def test_the_99th_percentile_s_interval_holds_with_heaps() -> None:
    """Of 20 intervals with a level of 95 %, fewer than 16 hold in 0.3 % of all cases.

    Control: without the unbiased shares, most of the intervals miss.
    """
    m, rng = mechanism("OUE", k=K, eps=4.0), np.random.default_rng(8)
    truth = float(np.interp(0.99, np.concatenate([[0.0], np.cumsum(ALL_ROUND)]), EDGES))
    held = np.zeros(2, int)
    for _ in range(RUNS):
        found = empirical_bayes(m, drawn_table(m, rng.multinomial(10**6, ALL_ROUND), rng), ordered=True)
        assert isinstance(found.posterior, Draws)
        smooth_alone = replace(found, posterior=replace(found.posterior, unshrunk=None))
        for i, estimate in enumerate((found, smooth_alone)):
            [p99] = quantiles(estimate, EDGES, [0.99]) or ()
            held[i] += p99.low <= truth <= p99.high
    assert held[0] >= 16
    assert held[1] <= 8


def of(unshrunk: Unshrunk | None) -> Estimate:
    """An estimate of four bins whose smooth draws all have equal shares."""
    draws = np.full((10, 4), 0.25)
    posterior = Draws(draws, draws, np.zeros(4), np.zeros(4), unshrunk)
    return Estimate(np.full(4, 0.25), np.full(4, 0.1), 1000, posterior=posterior)


def test_the_intervals_move_towards_those_of_the_unbiased_shares_by_their_weight() -> None:
    """With weight 0 nothing moves; with weight 1 the interval is about the unbiased share ± 1.96 standard errors."""
    shares, variance = np.array([0.1, 0.2, 0.3, 0.4]), np.full(4, 1e-4)
    at = {}
    for weight in (None, 0.0, 0.5, 1.0):
        estimate = of(None if weight is None else Unshrunk(weight, shares, variance))
        [median], average = quantiles(estimate, np.arange(5.0), [0.5]) or (), mean(estimate, np.arange(5.0))
        assert average is not None
        at[weight] = np.array([median.low, median.high, average.low, average.high])
        assert median.low <= median.value <= median.high
    np.testing.assert_array_equal(at[None], at[0.0])
    np.testing.assert_allclose(at[0.5], (at[0.0] + at[1.0]) / 2)
    error = np.sqrt(3e-4 * (1 - 0.75))  # standard error of the share below the third edge, at which the median 2 + 2/3 lies
    assert at[1.0][1] == pytest.approx(2 + 2 / 3 + 1.96 * error / 0.3, rel=0.01)
    assert at[1.0][3] == pytest.approx(2.5 + 1.96 * np.sqrt(1e-4 * 5), rel=0.01)
    assert at[1.0][0] == pytest.approx(2)  # the smooth interval's end, which is further out
    dense = np.diag(variance) - np.outer(variance, variance) / variance.sum()
    unshrunk, middles = Unshrunk(1.0, shares, variance), np.arange(4, dtype=np.float64) + 0.5
    assert unshrunk.error_of_mean(middles) == pytest.approx(np.sqrt(middles @ dense @ middles))
    below = np.tril(np.ones((4, 4)))
    np.testing.assert_allclose(unshrunk.cumulative()[1][1:], np.sqrt(np.diag(below @ dense @ below.T).clip(0)), atol=1e-9)


def test_a_posterior_that_claims_too_little_error_is_widened() -> None:
    """The estimated risk beyond what the posterior claims becomes noise of the shares, up to the noise of the counts."""
    k, noise = 200, np.full(200, 1e-6)
    smooth = smooth_posterior(np.full(k, 1 / k), lambda _: noise)
    claimed = float((smooth.standard_errors**2 / noise).sum())
    assert not _misfit(smooth, k + claimed, noise).any()
    np.testing.assert_allclose(_misfit(smooth, k + claimed + 10 + 0.1 * k, noise) ** 2, 0.1 * noise)  # 10 = ½ √(2k)
    np.testing.assert_allclose(_misfit(smooth, 1e9, noise) ** 2, noise)
