"""Round numbers: every m-th bin, or a single one, is more frequent than its neighbours.

A model with heaps has an amplitude a for each of a few rows of bins:

    f_v = w_v e^{η_v + Σ a c_v} / Σ w e^{η + Σ a c}      a ~ N(0, HEAP²)
    c_v = 1 in every m-th bin from some bin on, or in a single bin; else 0

A row is added if it makes the counts more probable, to second order in a, by more than the prior odds against it.

Often the counts can neither show nor exclude heaps: if the wave is as wide as a multiple of m bins, its reports hardly differ
with and without them. Intervals of shares therefore reach to the shares

    f_h = (1 - h) f + h (f collected in the nearest bins of a row)
    f_h = (1 - h) f + h (f with the share of one bin moved to its two neighbours)

for the largest h in [0, 1] at which the log-likelihood is lower than that of f by `CUT` at most.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ldpstream.mechanisms.arguments import FloatArray, IntArray

EVERY = (2, 3, 4, 5, 6, 7, 8, 10, 12)  # m
HEAP = 3.0  # prior standard deviation of an amplitude
LOG_ODDS = -2.0  # prior log-odds of one more row of some m, and of one more single bin
MOST, EACH = 4, 8  # most rows, and the number of cells for each
CUT = 3.32  # half of the 99 % quantile of χ² with one degree of freedom


@dataclass(frozen=True, slots=True)
class Heaps:
    """Rows of cells with heaps.

    Attributes:
        rows: (K - 1, R) c_v - c_1 of each row.
        log_odds: (R,) prior log-odds of each row.
    """

    rows: FloatArray
    log_odds: FloatArray

    def __getitem__(self, which: list[int]) -> "Heaps":
        return Heaps(self.rows[:, which], self.log_odds[which])

    def gains(self, slope: FloatArray, information: FloatArray, factor: FloatArray) -> FloatArray:
        """Returns by how much each row raises the log-probability of the counts, with its prior odds, (R,); -inf for a < 0.

        Args:
            slope: (K - 1,) `Likelihood.slope` at the mode of a model without the row.
            information: (K - 1, K - 1) `Likelihood.information` there.
            factor: (K - 1, K - 1) `ModelFit.factor` of this model.
        """
        from scipy.linalg import solve_triangular  # slow to load; only estimates need it

        up, pulled = slope @ self.rows, information @ self.rows
        smooth = solve_triangular(factor, pulled, lower=True, check_finite=False)
        precision = np.maximum((self.rows * pulled).sum(axis=0) - (smooth**2).sum(axis=0), 0) + HEAP**-2
        return np.where(up > 0, (up**2 / precision - np.log(precision * HEAP**2)) / 2 + self.log_odds, -np.inf)

    def added(self, q: FloatArray, log_det: float) -> tuple[FloatArray, float]:
        """Returns a model's precision with the rows, and its log-determinant plus twice their log-odds."""
        pulled = q @ self.rows
        inner = np.eye(self.log_odds.size) + HEAP**2 * self.rows.T @ pulled
        log_det += 2 * float(self.log_odds.sum()) - float(np.linalg.slogdet(inner)[1])
        return np.asarray(q - HEAP**2 * pulled @ np.linalg.solve(inner, pulled.T)), log_det


@lru_cache(maxsize=8)
def possible_heaps(cells: int) -> Heaps:
    """Returns the rows of every m-th cell with at least two periods, and of each single cell."""
    every = _rows(cells)
    rows = np.hstack([np.arange(cells)[:, None] % every[:, 0] == every[:, 1], np.eye(cells)])
    chances = np.concatenate([every[:, 0] * len(EVERY), np.full(cells, cells)])
    return Heaps(rows[1:] - rows[0], LOG_ODDS - np.log(chances))


def hidden_heaps(f: FloatArray, first: IntArray, score: FloatArray, curvature: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns the number by which each share may be larger, and the part of it by which it may be smaller, (k,) each.

    Args:
        f: (k,) shares.
        first: (K,) first bin of each cell.
        score: (K,) derivative of the log-likelihood by the shares of the cells, at f.
        curvature: (K, K) `Likelihood.curvature`.
    """
    places, bins, of_bin = _nearest(f.size), np.arange(f.size), np.repeat(np.arange(first.size), np.diff(first, append=f.size))
    moved = np.bincount(places.ravel(), np.tile(f, len(places)), places.size).reshape(places.shape) - f
    of_cells = np.add.reduceat(moved, first, axis=1)
    h = _largest(of_cells @ score, ((of_cells @ curvature) * of_cells).sum(axis=1))[:, None]
    larger, smaller = ((h * change).max(axis=0, initial=0.0) for change in (moved, -moved / f))
    near = of_bin[[bins, np.abs(bins - 1), f.size - 1 - np.abs(f.size - 2 - bins)]]  # the cells of a bin and its neighbours
    part, among = np.array([-1.0, 0.5, 0.5]), curvature[near[:, None], near[None]]  # among: (3, 3, k)
    return larger, np.maximum(smaller, _largest(f * (part @ score[near]), f**2 * np.einsum("i,ijv,j->v", part, among, part)))


def _largest(slope: FloatArray, information: FloatArray) -> FloatArray:
    information = np.maximum(information, np.finfo(float).tiny)
    return np.asarray(np.clip((slope + np.sqrt(slope**2 + 2 * CUT * information)) / information, 0, 1))


def _rows(k: int) -> IntArray:
    every = [(m, first) for m in EVERY if 2 * m <= k for first in range(m)]
    return np.array(every, np.int64).reshape(len(every), 2)


@lru_cache(maxsize=8)
def _nearest(k: int) -> IntArray:
    m, first = _rows(k).T[:, :, None]
    nearest = np.clip((np.arange(k) - first + m // 2) // m, 0, (k - 1 - first) // m)
    return np.asarray(first + m * nearest + k * np.arange(len(m))[:, None])
