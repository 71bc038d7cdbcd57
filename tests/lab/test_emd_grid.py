"""Compares the earth mover's distance on the plane with SciPy's and with known distances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance_nd

from lab.papers.emd_grid import emd_grid


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
