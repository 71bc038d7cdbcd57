"""Compares the optimum of Shokri's linear programme with known optima, the dual programme and other mechanisms.

test_location.py tests the properties common to all location mechanisms.
"""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq, linprog

from lab.papers.location.geometric import PlanarGeometric, TruncatedGeometric
from lab.papers.location.shokri import Shokri, expected_error, expected_loss
from ldpstream.mechanisms import mechanism
from ldpstream.mechanisms.arguments import FloatArray

from .test_location import line, shokri


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


def at_loss(family: Callable[[float], FloatArray], prior: FloatArray, quality: FloatArray, bound: float) -> float:
    """The ε for which the family's channel has the expected quality loss `bound`."""
    return float(brentq(lambda eps: expected_loss(family(eps), prior, quality) - bound, 0.02, 20.0))


@pytest.mark.parametrize("quality", [line(9), line(9) ** 2, np.sqrt(line(9))], ids=["distance", "square", "root"])
def test_no_mechanism_of_equal_quality_has_a_larger_error(quality: FloatArray) -> None:
    """If quality loss and error are equal, other mechanisms have the same error, since the adversary's best guess is the
    report. If quality loss and error differ, at least three of the six other mechanisms have a smaller error."""
    prior, worse = np.full(9, 1 / 9), 0
    families: list[Callable[[float], FloatArray]] = [
        lambda eps: TruncatedGeometric(9, eps).channel(),
        lambda eps: mechanism("GRR", 9, eps=eps).channel(),
        lambda eps: PlanarGeometric((9, 1), eps).channel(),
    ]
    for bound in (0.3, 1.0):
        best = Shokri(prior, line(9), bound, loss=quality)
        assert best.expected_loss <= bound + 1e-8
        for family in families:
            eps = at_loss(family, prior, quality, bound)
            error = expected_error(family(eps), prior, line(9))
            assert error <= best.expected_error + 1e-8
            worse += error < 0.99 * best.expected_error
    assert worse == 0 if np.array_equal(quality, line(9)) else worse >= 3


def test_different_channels_have_different_signatures() -> None:
    a, again, b = shokri(5, 0.9), shokri(5, 0.9), Shokri(np.full(5, 0.2), line(5), 0.9, loss=line(5) ** 2)
    assert a.signature == again.signature
    assert np.array_equal(a.channel(), again.channel())
    assert a.signature != b.signature
    with pytest.raises(ValueError, match="cannot be added"):
        a.empty_table() + b.empty_table()


def test_the_extreme_bounds_report_the_truth_or_nothing() -> None:
    truthful = Shokri([0.5, 0.3, 0.2], line(3), 0.0)
    assert np.array_equal(truthful.channel(), np.eye(3))
    assert truthful.eps_1 == truthful.eps_distance == math.inf
    silent = Shokri([0.5, 0.3, 0.2], line(3), 2.0)  # the bound has no effect: every report can be the same for all values
    assert silent.expected_error == pytest.approx(0.7)
    of_two = Shokri([0.5, 0.5], line(2), 1.0)
    assert of_two.eps_1 == 0
    assert not of_two.guess(math.inf).exact  # a bound: all reports are equal


UNIFORM, LINE = np.full(3, 1 / 3), line(3)
BAD: list[tuple[dict[str, Any], str]] = [
    *[({"prior": prior, "distance": LINE, "max_loss": 0.1}, match) for prior, match in (
        ([1.0], r"the length of prior must be an integer in \[2, 128\], got 1"),
        (np.full(129, 1 / 129), r"the length of prior must be an integer in \[2, 128\], got 129"),
        ([], "prior must sum to 1 to within 1e-09, got 0.0"),
        ([0.5, 0.4, 0.2], "prior must sum to 1 to within 1e-09, got 1.1"),
        ([0.5, -0.5, 1.0], r"prior must hold probabilities in \[0, 1\], got -0.5 at position 1"),
        ([0.5, math.nan, 0.5], r"prior must hold probabilities in \[0, 1\], got nan at position 1"),
        ([0.5, 0.0, 0.5], "prior must be positive everywhere, got 0.0 at position 1"),
        ([[0.5, 0.5]], "prior must be a one-dimensional array of at least 2 numbers, got float64 of shape"),
        (["a", "b"], "prior must be a one-dimensional array of at least 2 numbers, got <U1 of shape"),
    )],
    *[({"prior": UNIFORM, "distance": distance, "max_loss": 0.1}, match) for distance, match in (
        (line(4), r"distance must be numbers of shape \(3, 3\), got float64 of shape \(4, 4\)"),
        (LINE.astype(str), r"distance must be numbers of shape \(3, 3\), got <U"),
        ([[0, 1], [1]], r"distance must be numbers of shape \(3, 3\), got rows of different lengths"),
        (np.full((3, 3), math.nan), "distance must be finite and not negative, got nan"),
        (-LINE, r"distance must be finite and not negative, got -1.0 at \[0, 1\]"),
        (LINE + 1, r"distance must be zero on the diagonal, got 1.0 at \[0, 0\]"),
        (np.triu(LINE), r"distance must be positive off the diagonal, got 0.0 at \[1, 0\]"),
        (LINE + np.triu(LINE), r"distance must be symmetric, got 2.0 at \[0, 1\]"),
    )],
    *[({"prior": UNIFORM, "distance": LINE, "max_loss": 0.1, "loss": loss}, match) for loss, match in (
        (line(2), r"loss must be numbers of shape \(3, 3\), got float64 of shape \(2, 2\)"),
        (np.full((3, 3), math.inf), "loss must be finite and not negative, got"),
        (LINE + 1, r"loss must be zero on the diagonal, got 1.0 at \[0, 0\]"),
        (LINE - 2 * np.triu(LINE), r"loss must be finite and not negative, got -1.0 at \[0, 1\]"),
    )],
    *[({"prior": UNIFORM, "distance": LINE, "max_loss": bound}, r"max_loss must be a number in \[0, 2\], got ")
      for bound in (-0.1, 2.1, math.nan, math.inf, True, "1", None)],
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_arguments_are_rejected_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Shokri(**arguments)
