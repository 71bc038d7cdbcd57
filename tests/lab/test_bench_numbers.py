"""Tests the errors of `bench numbers` on histograms whose distances are known, and its rows on a small grid."""

import numpy as np
import pytest
from scipy import stats

from lab.bench import numbers
from lab.bench.numbers import DECILES, Setting, errors, measure, summary_table
from lab.drawn_tables import drawn_table
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.families.square_wave import SquareWave
from tests.mechanisms.test_sampling import LIMIT, p_value


def drawn(shares: FloatArray) -> FloatArray:
    """100 000 numbers of the histogram, evenly spread within each bin."""
    people = np.round(shares * 1e5).astype(int)
    at = np.concatenate([(np.arange(n) + 0.5) / max(n, 1) for n in people])
    return np.asarray((np.repeat(np.arange(shares.size), people) + at) / shares.size)


def test_the_errors_are_those_of_the_numbers() -> None:
    rng = np.random.default_rng(1)
    for k in (2, 5, 9):
        truth, found = rng.dirichlet(np.ones(k), 2)
        found[0] = 0.0
        found /= found.sum()
        a, b = drawn(truth), drawn(found)
        wasserstein, quantile, mean, variance = errors(truth, found)
        assert wasserstein == pytest.approx(stats.wasserstein_distance(a, b), abs=1e-4)
        assert quantile == pytest.approx(np.abs(np.quantile(a, DECILES) - np.quantile(b, DECILES)).mean(), abs=1e-3)
        assert mean == pytest.approx(abs(a.mean() - b.mean()), abs=1e-4)
        within = 1 / (12 * k**2)  # the variance of numbers that are spread evenly within a bin
        assert variance == pytest.approx(abs((a.var() - within) - (b.var() - within)), abs=1e-4)
        assert errors(truth, truth) == (0, 0, 0, 0)


def test_drawn_tables_of_square_wave_follow_the_channel() -> None:
    """A chi-squared test at 1e-9 of the sum of 300 tables; the control has another ε."""
    m, rng, people = SquareWave(7, 1.0), np.random.default_rng(2), np.array([10, 0, 300, 5, 80, 1, 104])
    counts = np.sum([drawn_table(m, people, rng).counts for _ in range(300)], axis=0)
    assert p_value(counts, people @ m.channel() / 500) > LIMIT
    assert p_value(counts, people @ SquareWave(7, 1.1, m.width).channel() / 500) < LIMIT


def test_a_small_grid_is_reproducible() -> None:
    setting = Setting("Beta(5, 2)", 8, 500, 2.0)
    seen: list[str] = []
    rows = measure([setting], 2, 1, seen.append, processes=1)
    assert rows == measure([setting], 2, 1, seen.append, processes=1)
    assert rows != measure([setting], 2, 2, seen.append, processes=1)
    assert seen[0] == "Beta(5, 2), 8 bins, ε = 2"
    assert {row.method for row in rows} == {f"{name} {one}" for name, these in numbers.ESTIMATORS.items() for one in these}
    assert summary_table(rows).row_count == len(rows)
