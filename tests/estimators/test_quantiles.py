"""Tests means and quantiles: by hand, their order and range, what they refuse, and the coverage of their intervals."""

import itertools

import numpy as np
import pytest
from scipy.stats import binom

from ldpstream.estimators import Estimate, empirical_bayes, matrix_inversion, mean, quantiles
from ldpstream.estimators.smooth.draws import Draws, Unbiased
from ldpstream.mechanisms import mechanism
from ldpstream.mechanisms.arguments import FloatArray


def of_shares(shares: list[float], errors: float = 1e-9) -> Estimate:
    f, variance = np.array(shares), np.full(len(shares), errors**2)
    posterior = Draws(f[None], f, np.zeros(f.size), np.zeros(f.size), Unbiased.given_the_sum(f, variance))
    return Estimate(f, np.sqrt(variance), 100, posterior=posterior)


def test_a_quantile_is_interpolated_within_its_bin() -> None:
    found = of_shares([0.2, 0.0, 0.3, 0.5])
    wanted = {
        0.1: (1, 0, 2),
        0.2: (2, 0, 20),
        0.35: (15, 10, 20),
        0.5: (20, 10, 100),
        0.75: (60, 20, 100),
        0.99: (98.4, 20, 100),
    }
    got = quantiles(found, [0, 2, 10, 20, 100], list(wanted))
    assert got is not None
    np.testing.assert_allclose([(number.value, number.low, number.high) for number in got], list(wanted.values()))
    average = mean(found, [0, 2, 10, 20, 100])
    assert average is not None
    np.testing.assert_allclose([average.value, average.low, average.high], 0.2 * 1 + 0.3 * 15 + 0.5 * 60)


def test_numbers_are_in_order_and_within_the_edges() -> None:
    rng = np.random.default_rng(1)
    edges = np.cumsum(rng.uniform(0.1, 3, 9)) - 5
    for concentration, errors in itertools.product((0.05, 1.0, 30.0), (1e-6, 0.01, 0.2, 9.0)):
        found = of_shares(rng.dirichlet(np.full(8, concentration)).tolist(), errors)
        got = quantiles(found, edges, (0.001, 0.5, 0.9, 0.99, 0.999999))
        assert got is not None
        rows = np.array([[number.low, number.value, number.high] for number in got])
        assert (np.diff(rows, axis=0) >= 0).all()
        assert (np.diff(rows, axis=1) >= 0).all()
        assert edges[0] <= rows.min()
        assert rows.max() <= edges[-1]


def test_no_reports_have_no_numbers() -> None:
    m = mechanism("GRR", 4, eps=1.0)
    nothing = empirical_bayes(m, m.empty_table(), ordered=True)
    assert quantiles(nothing, np.arange(5)) is None
    assert mean(nothing, np.arange(5)) is None
    assert mean(matrix_inversion(m, m.table(4, np.ones(4, np.int64))), np.arange(5)) is None


@pytest.mark.parametrize("edges", [[0, 1], [0, 1, 1, 2], [0, 2, 1, 3], [0, 1, 2, np.inf], [0, 1, np.nan, 3], [[0, 1, 2, 3]]])
def test_wrong_edges_are_refused(edges: list[float]) -> None:
    with pytest.raises(ValueError, match="edges must be 4 finite numbers in ascending order"):
        mean(of_shares([0.2, 0.3, 0.5]), edges)


@pytest.mark.parametrize("q", [0.0, 1.0, -0.5, float("nan"), True])
def test_wrong_probabilities_are_refused(q: float) -> None:
    with pytest.raises(ValueError, match="probabilities must be"):
        quantiles(of_shares([0.2, 0.3, 0.5]), np.arange(4), [0.5, q])


RAGGED = np.array([0, 5, 10, 20, 50, 100, 200, 500.0])  # wide bins, in which the numbers of `skewed` are not evenly spread


def skewed(n: int, rng: np.random.Generator) -> FloatArray:
    return np.minimum(rng.lognormal(3.0, 1.1, n), 499.9)


@pytest.mark.parametrize("name", ["L-OSUE", "GRR", "SW"])
def test_intervals_contain_what_bins_cannot_know(name: str) -> None:
    """Mean, p50, p90 and p99 of 200 000 people, 25 surveys: at least 95 % of the intervals contain the people's number.

    If 95 % do, 18 or fewer of 25 do with a probability of 0.02 %. So a mechanism with its four numbers fails by chance in less
    than 1 of 1000 cases. The seeds are fixed. Control: intervals for numbers spread evenly in their bins miss the mean.
    """
    m = mechanism(name, 7, eps_inf=2.0, eps_1=1.0) if name == "L-OSUE" else mechanism(name, 7, eps=1.0)
    covered, evenly = np.zeros(4), np.zeros(4)
    for seed in range(25):
        rng = np.random.default_rng(seed)
        numbers = skewed(200_000, rng)
        table = m.tabulate(m.simulate(np.searchsorted(RAGGED, numbers, side="right") - 1, rng))
        estimate = empirical_bayes(m, table, ordered=True, widths=np.diff(RAGGED))
        truth = [numbers.mean(), *np.quantile(numbers, [0.5, 0.9, 0.99])]
        for hits, anywhere in ((covered, True), (evenly, False)):
            average, several = mean(estimate, RAGGED, anywhere=anywhere), quantiles(estimate, RAGGED)
            assert average is not None
            assert several is not None
            hits += [x.low <= true <= x.high for x, true in zip((average, *several), truth, strict=True)]
    assert covered.min() >= 19
    assert evenly[0] < 15
    assert 4 * binom.cdf(18, 25, 0.95) < 0.001  # the stated allowance


def test_intervals_for_numbers_anywhere_in_their_bins_follow_by_hand() -> None:
    """Known shares 0.2, 0.3 and 0.5 in the bins 0, 2, 10, 20: the mean lies from 5.6 to 13.4, the median in the second bin."""
    found = of_shares([0.2, 0.3, 0.5])
    average, several = mean(found, [0, 2, 10, 20], anywhere=True), quantiles(found, [0, 2, 10, 20], [0.4])
    assert average is not None
    assert several is not None
    np.testing.assert_allclose([average.low, average.value, average.high], [5.6, 9.5, 13.4])
    np.testing.assert_allclose([several[0].low, several[0].value, several[0].high], [2, 2 + 8 * 2 / 3, 10])
