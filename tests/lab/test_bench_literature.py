"""The figures of the mechanisms of the literature equal those of a dense enumeration of their reports.

Each of them is written down here a second time, as the table of Pr[report | value] with the estimator of the shares. Modular
subset selection is left out: it is made of subset selections.
"""

import math
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from lab.bench import literature_cells as cells
from lab.bench.literature import (
    LITERATURE,
    Figures,
    adaptive_local_hashing,
    adaptive_subset_selection,
    adaptive_unary_encoding,
    bit_flip,
    hadamard_response,
    modular,
    modular_subset_selection,
    projective_geometry_response,
)
from ldpstream.mechanisms.arguments import FloatArray

Dense = tuple[FloatArray, FloatArray]  # (reports, k) chances and changes of the estimated shares


def normalised(prefers: Any, eps: float) -> FloatArray:
    chances = np.where(prefers, math.exp(eps), 1.0)
    return np.asarray(chances / chances.sum(axis=0))


def pure(supports: Any, chances: FloatArray) -> Dense:
    """The estimator (1[report supports v] - q) / (p - q)."""
    p, q = (chances * supports).sum(axis=0)[0], (chances[:, 1] * supports[:, 0]).sum()
    return chances, (supports - q) / (p - q)


def hadamard(k: int, eps: float) -> Dense:
    blocks = 2 ** (math.ceil(math.log2(min(math.exp(eps), 2 * k))) - 1)
    side = 2 ** math.ceil(math.log2(k / blocks + 1))
    signs = np.array([[(-1) ** (i & j).bit_count() for j in range(side)] for i in range(side)])
    columns = np.zeros((blocks, side, k))
    for v in range(k):
        columns[v % blocks, :, v] = signs[1 + v // blocks]
    columns = columns.reshape(-1, k)
    chances = normalised(columns > 0, eps)
    return chances, columns / (chances * columns).sum(axis=0)


def projective(k: int, eps: float, q: int, t: int) -> Dense:
    points = [v for v in product(range(q), repeat=t) if any(v) and next(x for x in v if x) == 1]
    orthogonal = np.array([[sum(x * y for x, y in zip(u, v)) % q == 0 for v in points[:k]] for u in points])
    return pure(orthogonal, normalised(orthogonal, eps))


def subsets(k: int, eps: float, omega: int) -> Dense:
    has = np.array([[v in chosen for v in range(k)] for chosen in combinations(range(k), omega)])
    return pure(has, normalised(has, eps))


def unary(k: int, p: float, q: float) -> Dense:
    bits = np.array(list(product((0, 1), repeat=k)))
    one = np.where(np.eye(k), p, q)
    return pure(bits, np.where(bits[:, None], one, 1 - one).prod(axis=2))


def hashing(k: int, eps: float, g: int) -> Dense:
    functions = np.array(list(product(range(g), repeat=k)))
    has = np.concatenate([functions == y for y in range(g)])
    chances = np.where(has, math.exp(eps), 1) / (math.exp(eps) + g - 1) / len(functions)
    return pure(has, chances)


def variances(chances: FloatArray, changes: FloatArray) -> tuple[float, float]:
    """Mean variances of the share of a value that nobody has, and of shares that are all equal."""
    k, equal = chances.shape[1], chances.mean(axis=1)
    without = [np.delete(chances, v, axis=1).mean(axis=1) for v in range(k)]
    of_none = [seen @ changes[:, v] ** 2 - (seen @ changes[:, v]) ** 2 for v, seen in enumerate(without)]
    return float(np.mean(of_none)), float((equal @ changes**2 - (equal @ changes) ** 2).mean())


def figures(dense: Dense, eps: float) -> tuple[float, float, float, float]:
    """Both variances, guess and weight, after checks of the ε and of the estimator."""
    chances, changes = dense
    k = chances.shape[1]
    np.testing.assert_allclose(chances.sum(axis=0), 1)
    assert np.log(chances.max(axis=1) / chances.min(axis=1)).max() == pytest.approx(eps)
    np.testing.assert_allclose(changes.T @ chances, np.eye(k), atol=1e-9)
    return *variances(chances, changes), float(chances.max(axis=1).sum() / k), float(np.abs(changes).max())


def agree(found: Figures | None, dense: Dense, eps: float) -> None:
    assert found is not None
    assert (found.variance, found.equal, found.guess, found.weight) == pytest.approx(figures(dense, eps), rel=1e-9)


@pytest.mark.parametrize("eps", [0.4, 1.0, 2.2])
@pytest.mark.parametrize("k", [3, 4, 5, 9])
def test_hadamard_response_equals_enumeration(k: int, eps: float) -> None:
    agree(hadamard_response(k, eps), hadamard(k, eps), eps)


@pytest.mark.parametrize(("k", "eps", "q", "t"), [(7, 0.5, 2, 3), (5, 0.5, 2, 3), (13, 1.0, 3, 3), (6, 1.5, 5, 2)])
def test_projective_geometry_response_equals_enumeration(k: int, eps: float, q: int, t: int) -> None:
    agree(projective_geometry_response(k, eps), projective(k, eps, q, t), eps)


def test_moduli_that_do_not_determine_all_shares_are_refused() -> None:
    assert modular(9, 1.0, [2, 3]) is None
    assert modular_subset_selection(3, 1.0) is None


@pytest.mark.parametrize("eps", [0.3, 1.0])
def test_subset_unary_and_hashed_mechanisms_equal_enumeration(eps: float) -> None:
    for k in (3, 5):
        agree(bit_flip(k, eps), unary(k, math.exp(eps / 2) / (1 + math.exp(eps / 2)), 1 / (1 + math.exp(eps / 2))), eps)
        found = [adaptive_subset_selection(k, eps), adaptive_unary_encoding(k, eps)]
        agree(found[0], min((subsets(k, eps, w) for w in range(1, k - 1)), key=lambda d: cost(d, eps)), eps)
        tried = np.linspace(0.5, 0.999999, 100)
        agree(found[1], min((unary(k, p, p / (math.exp(eps) * (1 - p) + p)) for p in tried), key=lambda d: cost(d, eps)), eps)
    found_g = adaptive_local_hashing(4, eps)
    g = round(2 ** (found_g.bits - 64))
    agree(found_g, hashing(4, eps, g), eps)


def cost(dense: Dense, eps: float) -> float:
    """The objective of ASS and AUE: chance of a guess, and variance for a value that nobody has."""
    variance, _, guess, _ = figures(dense, eps)
    return variance + guess


# ---- beside ours


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "SIZES", (3, 10))
    monkeypatch.setattr(cells, "LOSSES", ((2.0, 1.0),))
    monkeypatch.setattr(cells, "SHOWN", ((10, 2.0, 1.0),))
    cells.figures.cache_clear()


def test_every_mechanism_is_compared_where_it_exists(small: None) -> None:
    result = cells.compare()
    for rivals in result.rivals.values():
        assert {rival.mechanism: rival.cells for rival in rivals} == dict.fromkeys(LITERATURE, 10) | {"MSS": 5}
    for reference in ("`auto`", "our best memoized mechanism"):
        assert all(rival.below == 0 for rival in result.rivals[reference])
    (shown,) = result.shown.values()
    assert [row.mechanism for row in shown] == [*cells.OURS, *LITERATURE]
    flip = shown[-1]
    assert (flip.one, flip.guess) == (flip.window, flip.guess_all)
    assert all(row.window < row.one and row.guess < row.guess_all for row in shown[:-1])
    assert [table.row_count for table in cells.tables(result)] == [*[len(LITERATURE)] * len(cells.REFERENCES), len(shown)]
