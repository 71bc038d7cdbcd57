"""Compares the earth mover's distance on the plane with SciPy's and with known distances."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance_nd

from lab.papers.emd_grid import emd_grid


def test_bad_weights_and_points_are_refused() -> None:
    truth, square = [0.5, 0.5, 0.0], [[0, 0], [0, 1], [1, 0]]
    assert math.isnan(emd_grid(truth, [math.nan, 0.5, 0.5], square))
    assert emd_grid(truth, truth, square) == 0
    for wrong in ([0.6, 0.5, -0.1], [0.0, 0.0, 0.0]):
        with pytest.raises(ValueError, match="weights must be non-negative and not all zero"):
            emd_grid(truth, wrong, square)
    bad_points: list[list[list[float]]] = [[[0, 0]], [[0, 0, 0]] * 3, [[0, 0], [0, 1], [0, math.inf]]]
    for bad in bad_points:
        with pytest.raises(ValueError, match="points must be"):
            emd_grid(truth, truth, bad)


@settings(max_examples=40)
@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 2**32), st.sampled_from([0.05, 1.0, 20.0]))
def test_the_grids_distance_equals_scipys(width: int, height: int, seed: int, evenness: float) -> None:
    """Includes cases with most of the mass on a few points, with empty points, and with unordered points."""
    rng = np.random.default_rng(seed)
    points = rng.permutation([(i, j) for i in range(width) for j in range(height)]).astype(float)
    a, b = (rng.dirichlet(np.full(len(points), evenness)) for _ in range(2))
    if rng.random() < 0.3:
        b = rng.multinomial(20, a) / 20
    assert emd_grid(a, 7 * b, points) == pytest.approx(wasserstein_distance_nd(points, points, a, b), abs=1e-6)
