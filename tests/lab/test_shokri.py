"""Compares the optimum of Shokri's linear programme with known optima, the dual programme and other mechanisms.

test_location.py tests the properties common to all location mechanisms.
"""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from lab.papers.location.shokri import Shokri, expected_error
from ldpstream.mechanisms.arguments import FloatArray


@pytest.mark.parametrize("k", [2, 3, 5, 8])
@pytest.mark.parametrize("seed", range(4))
def test_the_optimum_is_the_known_one_if_both_losses_are_equal(k: int, seed: int) -> None:
    """The optimum is min(Q, error of the best guess without a report). If the user's loss is c times the error, the optimum for
    the bound cQ is the same."""
    rng = np.random.default_rng(seed)
    points = rng.random((k, 2))
    distance = np.hypot(*(points[:, None] - points).transpose(2, 0, 1))
    prior = rng.dirichlet(np.ones(k))
    blind = (prior @ distance).min()
    for share, factor in product((0.1, 0.5, 0.99, 1.3), (1.0, 3.0)):
        bound = min(share * blind, distance.max())
        m = Shokri(prior, distance, factor * bound, loss=factor * distance)
        assert m.expected_error == pytest.approx(min(bound, blind), rel=1e-8)
        assert m.expected_error == pytest.approx(expected_error(m.channel(), prior, distance))
        assert m.expected_loss <= factor * bound * (1 + 1e-8)
        if share < 1:
            assert m.expected_loss == pytest.approx(factor * bound, rel=1e-8)  # the mechanism uses the whole bound


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
