"""Compares the optimum of Shokri's linear programme with known optima, the dual programme and other mechanisms.

test_location.py tests the properties common to all location mechanisms.
"""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from lab.papers.location.shokri import Shokri
from ldpstream.mechanisms.arguments import FloatArray


def dual_optimum(prior: FloatArray, distance: FloatArray, loss: FloatArray, bound: float) -> float:
    """Solves the dual programme: minimise Σ_x u_x + Q v with v ≥ 0 and weights y_zg ≥ 0, Σ_g y_zg ≥ 1, such that
    u_x + v π_x ℓ(x, z) ≥ Σ_g y_zg π_x d(x, g) for all x and z."""
    k = len(prior)
    a_ub, b_ub = [], []
    for x, z in product(range(k), repeat=2):
        row = np.zeros(k + 1 + k * k)
        row[x], row[k] = -1, -prior[x] * loss[x, z]
        row[k + 1 + z * k : k + 1 + (z + 1) * k] = prior[x] * distance[x]
        a_ub.append(row)
        b_ub.append(0.0)
    for z in range(k):
        row = np.zeros(k + 1 + k * k)
        row[k + 1 + z * k : k + 1 + (z + 1) * k] = -1
        a_ub.append(row)
        b_ub.append(-1.0)
    cost = np.concatenate([np.ones(k), [bound], np.zeros(k * k)])
    solution = linprog(cost, A_ub=np.array(a_ub), b_ub=b_ub, bounds=[(None, None)] * k + [(0, None)] * (1 + k * k))
    return float(solution.fun)


@pytest.mark.parametrize("k", [2, 3, 6])
@pytest.mark.parametrize("seed", range(4))
def test_the_optimum_equals_the_dual_optimum(k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((k, k)) + 0.1, 1)
    distance, loss = upper + upper.T, rng.random((k, k)) * (1 - np.eye(k))
    prior = rng.dirichlet(np.ones(k))
    for bound in (0.02, 0.1, 0.3):
        bound = min(bound, loss.max())
        m = Shokri(prior, distance, bound, loss)
        assert m.expected_error == pytest.approx(dual_optimum(prior, distance, loss, bound), abs=1e-8)
        assert m.expected_loss <= bound + 1e-8
