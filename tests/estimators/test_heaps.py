"""Ordered values that no smooth density fits: people round their numbers to multiples of five, or a few live far away."""

import numpy as np
import pytest
from scipy.stats import gamma, norm

from lab.drawn_tables import drawn_table
from ldpstream.estimators import empirical_bayes
from ldpstream.estimators.quantiles import mean, quantiles
from ldpstream.estimators.smooth.draws import Unbiased
from ldpstream.estimators.smooth.ordered import _misfit
from ldpstream.estimators.smooth.smooth_prior import smooth_posterior
from ldpstream.mechanisms import mechanism
from ldpstream.mechanisms.arguments import FloatArray

K, RUNS = 100, 20
EDGES = np.arange(K + 1.0)
ALL_ROUND = np.zeros(K)
np.add.at(ALL_ROUND, np.minimum(np.round(np.arange(K) / 5).astype(int) * 5, K - 1), gamma.pdf(np.arange(K), 12, scale=3))
ALL_ROUND /= ALL_ROUND.sum()


FAR = np.exp(-(((np.arange(K) + 0.5) / K - 0.25) ** 2) / 0.0128)  # most people, and 1.4 % at 95 % of the range
FAR = np.append(0.986 * FAR[:94] / FAR[:94].sum(), [0.007, 0.007, 0, 0, 0, 0])


@pytest.mark.parametrize(("shares", "n", "eps"), [(ALL_ROUND, 10**6, 4.0), (FAR, 10**5, 1.0), (FAR, 10**6, 2.0)])
def test_numbers_hold_with_heaps_and_with_a_small_group_far_away(shares: FloatArray, n: int, eps: float) -> None:
    """Of 20 intervals with a level of 95 %, fewer than 16 hold in 0.3 % of all cases.

    Control: with a tenth of the errors, the intervals of the mean miss.
    """
    m, rng = mechanism("OUE", k=K, eps=eps), np.random.default_rng(8)
    reached, level = np.concatenate([[0.0], np.cumsum(shares)]), (0.95, 2 * norm.cdf(0.196) - 1)
    truth = [float(shares @ (EDGES[1:] + EDGES[:-1]) / 2), *np.interp((0.5, 0.9, 0.99), reached, EDGES)]
    held = np.zeros((2, 4), int)
    for _ in range(RUNS):
        found = empirical_bayes(m, drawn_table(m, rng.multinomial(n, shares), rng), ordered=True)
        for i in range(2):
            numbers = mean(found, EDGES, level[i]), *(quantiles(found, EDGES, level=level[i]) or ())
            held[i] += [x is not None and x.low <= true <= x.high for x, true in zip(numbers, truth, strict=True)]
    assert held[0].min() >= 16
    assert held[1, 0] < 16


def test_the_unbiased_numbers_have_the_errors_of_a_dense_covariance() -> None:
    z, variance, numbers = np.array([0.1, 0.2, 0.3, 0.3]), np.array([1e-4, 2e-4, 3e-4, 4e-4]), np.array([0.5, 1.5, 4.0, 9.0])
    found, dense = Unbiased.given_the_sum(z, variance), np.diag(variance) - np.outer(variance, variance) / variance.sum()
    np.testing.assert_allclose(found.shares, [0.11, 0.22, 0.33, 0.34])
    assert found.error_of_mean(numbers) == pytest.approx(np.sqrt(numbers @ dense @ numbers))
    below = np.tril(np.ones((5, 4)), -1)
    errors = np.sqrt(np.diag(below @ dense @ below.T).clip(0))
    np.testing.assert_allclose(found.bounds(2.0), below @ found.shares + 2 * np.outer([-1, 1], errors), atol=1e-9)


def test_a_posterior_that_claims_too_little_error_is_widened() -> None:
    """The estimated risk beyond what the posterior claims becomes noise of the shares, up to the noise of the counts."""
    k, noise = 200, np.full(200, 1e-6)
    smooth = smooth_posterior(np.full(k, 1 / k), lambda _: noise)
    claimed = float((smooth.standard_errors**2 / noise).sum())
    assert not _misfit(smooth, k + claimed, noise).any()
    np.testing.assert_allclose(_misfit(smooth, k + claimed + 10 + 0.1 * k, noise) ** 2, 0.1 * noise)  # 10 = ½ √(2k)
    np.testing.assert_allclose(_misfit(smooth, 1e9, noise) ** 2, noise)
