"""The conformance check's binomial tests are exact, and detect what they claim to detect."""

from math import comb

import numpy as np

from devices.conformance.binomial import BinomialCounts, counts, detectable


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


def test_detectable_changes_are_detected() -> None:
    n, p, alpha = 4000, 0.3, 1e-5
    change, rng = detectable(n, p, alpha), np.random.default_rng(1)
    p_values = counts("", "", rng.binomial(n, p + change, 2000), n, p).p_values
    assert 0.86 < (p_values < alpha).mean() < 0.94
