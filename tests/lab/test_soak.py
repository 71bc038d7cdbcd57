"""The slope of memory: a line with noise of dependent errors. The standard error must not be too small."""

import numpy as np

from lab.bench.soak import slope


def test_the_slope_is_within_its_standard_errors() -> None:
    """400 series of dependent noise, false alarm about 10⁻⁶. The control is the standard error for independent noise."""
    rng, n = np.random.default_rng(20261123), 400
    hours = np.linspace(0, 1, 600)
    beyond = independent = 0
    for _ in range(n):
        noise = np.zeros(600)
        for i, shock in enumerate(rng.normal(size=600)):
            noise[i] = 0.8 * noise[i - 1] + shock
        found, error = slope(hours, 100 + 7 * hours + noise)
        residuals = noise - noise.mean() - (found - 7) * (hours - hours.mean())
        naive = residuals.std() / np.sqrt(((hours - hours.mean()) ** 2).sum())
        beyond += abs(found - 7) > 2 * error
        independent += abs(found - 7) > 2 * naive
    assert beyond < 0.12 * n
    assert independent > 0.3 * n
