"""The conformance check's binomial tests are exact, and detect what they claim to detect."""

from math import comb

import numpy as np
import pytest

from devices.conformance.binomial import BinomialCounts, by_probability, counts, detectable, uniform
from ldpstream.mechanisms.families.square_wave import SquareWave


def test_p_values_are_exact() -> None:
    """Pr[p-value <= a] <= a, summed over all outcomes of 60 tosses."""
    x = np.arange(61)
    for probability in (0.03, 0.5, 0.8):
        pmf = np.array([float(_binomial(60, int(i), probability)) for i in x])
        p_values = BinomialCounts("", "", x, np.full(61, 60), np.full(61, probability)).p_values
        for a in (0.5, 0.05, 1e-3, 1e-6):
            assert pmf[p_values <= a].sum() <= a * (1 + 1e-9)
        assert p_values[round(60 * probability)] > 0.5
        assert p_values.min() < 1e-6


def _binomial(n: int, i: int, p: float) -> float:
    return comb(n, i) * p**i * (1 - p) ** (n - i)


def test_uniform_counts_cover_every_outcome() -> None:
    numbers = np.array([0, 0, 1, 3])
    found = uniform("", "", numbers, 4)
    assert found.successes.tolist() == [2, 1, 0, 1, 3, 3]
    assert found.probabilities.tolist() == [0.25, 0.25, 0.25, 0.25, 0.5, 0.75]
    many = uniform("", "", np.arange(1000), 1000)
    assert (many.successes == np.round(many.probabilities * 1000)).all()
    assert uniform("", "", np.zeros(5, np.int64), 1).trials.size == 0


@pytest.mark.parametrize("k", [6, 24, 100])
def test_rounding_errors_divide_no_count(k: int) -> None:
    """With Square Wave all values have the same support probability. So all reports form one count, and few reports suffice."""
    m = SquareWave(k, eps=0.7)
    own, fake = m.claims.support_chances()
    found = by_probability("", "", np.ones(3 * k), np.tile(own, 3), np.tile(own - 0.1, 3))
    assert (found.trials.tolist(), found.successes.tolist()) == ([3 * k], [3 * k])
    np.testing.assert_allclose(found.probabilities, m.keep)
    assert found.rival is not None
    np.testing.assert_allclose(found.rival, m.keep - 0.1)
    assert by_probability("", "", np.ones(k), fake).trials.size > 1  # a control: these differ


def test_detectable_changes_are_detected() -> None:
    n, p, alpha = 4000, 0.3, 1e-5
    change, rng = detectable(n, p, alpha), np.random.default_rng(1)
    p_values = counts("", "", rng.binomial(n, p + change, 2000), n, p).p_values
    assert 0.86 < (p_values < alpha).mean() < 0.94
