"""Upper bounds of the loss that `mechanisms.ledger.sequence_grr` defines, for any number of reports t.

The coefficients π_m of linear lower bounds of f_v are called *prices*. If Σ_m π_m c_m <= f_v(c) + κ_v for all counts c and all
v, and π_1 >= π_2 >= …, then

    eps_sequence(t) <= Σ_v κ_v + max_n [Σ_m φ(n_m) - Σ_m π_m n_m],   n_1 >= n_2 >= … integers with sum t

with the symbols numbered in descending order of n_m. There are two choices of prices:

- π_1+…+π_M = ln(1+MX), X = (E-1)/(E₁+k-1): slopes of f_v at 0, with κ = 0 (`free_rows`).
- The smallest prices that keep the bracket at most a given V (`best_bracket`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.mechanisms.arrays import np, npt

DENSE = 4096  # up to this many symbols, every number of symbols is tried
_MAX_CELLS = 200_000
_FLOOR = 1e-3  # counts of a row are searched up to a price this far below the mean price


def log_expm1(y: npt.ArrayLike) -> FloatArray:
    """ln(e^y - 1) for y >= 0, elementwise, accurate at both ends; -inf at 0."""
    y = np.asarray(y, np.float64)
    with np.errstate(divide="ignore"):
        small = np.log(np.expm1(np.clip(y, 0.0, 1.0)))
    return np.asarray(np.where(y < 0.5, small, y + np.log1p(-np.exp(-np.maximum(y, 0.5)))))


@dataclass(frozen=True, slots=True)
class GRRRounds:
    """GRR∘GRR on k symbols, with the functions that `mechanisms.ledger.sequence_grr` defines."""

    k: int
    e1: float
    e2: float

    @property
    def log_total(self) -> float:
        """ln(E₁+k-1)."""
        return float(np.logaddexp(self.e1, math.log(self.k - 1)))

    @property
    def log_step(self) -> float:
        """ln(E-1)."""
        return float(log_expm1(self.e2))

    def phi(self, n: npt.ArrayLike) -> FloatArray:
        return np.asarray(np.logaddexp(0.0, self.e1 - self.log_total + log_expm1(self.e2 * np.asarray(n))))

    def row(self, counts: npt.ArrayLike, own: int | None = None) -> FloatArray:
        """f_v of the counts of some symbols (last axis). v is the symbol at index `own`. If `own` is None, v is none of these
        symbols."""
        terms = log_expm1(self.e2 * np.asarray(counts))
        if own is not None:
            terms[..., own] += self.e1
        return np.asarray(np.logaddexp(0.0, np.logaddexp.reduce(terms, axis=-1) - self.log_total))

    def once(self, width: IntArray) -> FloatArray:
        """ln(1+MX): f_v for one report of each of M symbols other than v."""
        return np.asarray(np.logaddexp(0.0, np.log(width) + self.log_step - self.log_total))


def widths(t: int, k: int) -> IntArray:
    """Numbers of symbols M for which bounds are computed."""
    top = min(t, k)
    dense = np.arange(1, min(top, DENSE) + 1)
    sparse = np.exp(np.arange(math.log(DENSE), math.log(top), 1 / 2048)) if top > DENSE else np.zeros(0)
    return np.unique(np.concatenate((dense, sparse.astype(np.int64), [top])))


def free_rows(t: int, rounds: GRRRounds) -> float:
    """The bound from the slopes of f_v at 0."""
    m = widths(t, rounds.k)
    total = rounds.once(m)
    gain, price = m * rounds.phi(t / m), total / m
    slope = (-np.expm1(-total) - total) / m / m
    left = np.flatnonzero(np.diff(m) > 1)
    right = left + 1
    ahead = price[left] - price[right] + slope[right] * (m[right] - m[left])
    bend = slope[right] - slope[left]
    step = np.divide(ahead, bend, out=np.zeros_like(bend), where=bend > 0)
    chord = gain[left] + step / (m[right] - m[left]) * (gain[right] - gain[left])
    between_widths = chord - t * (price[left] + slope[left] * step)
    return float(max((gain - t * price).max(), between_widths.max(initial=-np.inf)))


def best_bracket(t: int, rounds: GRRRounds) -> float:
    """The bound for the best V found, with the smallest prices that keep the bracket at most V."""
    k = rounds.k
    m = np.arange(1, min(t, k) + 1)
    gain = m * rounds.phi(t / m)

    def bound(bracket: float) -> float:
        slopes = np.diff(np.maximum(m / t * (gain - bracket), 0.0), prepend=0.0)
        prices = np.maximum(np.maximum.accumulate(slopes[::-1])[::-1], 0.0)  # sorts; keeps partial sums large enough
        if prices.sum() > rounds.e2 or np.count_nonzero(prices) * _depth(t, rounds) > _MAX_CELLS:
            return math.inf
        worst = float((gain - t / m * np.cumsum(prices)).max())
        return max(worst, 0.0) + k * _dearest_row(prices[prices > 0], t, rounds)

    low, high = max(float((gain - rounds.e2 * t / m).max()), 0.0), float(gain.max())
    for _ in range(25):
        a, b = low + 0.382 * (high - low), low + 0.618 * (high - low)
        low, high = (low, b) if bound(a) < bound(b) else (a, high)
    return min(bound(high), bound((low + high) / 2))


def _depth(t: int, rounds: GRRRounds) -> int:
    return min(t, int((rounds.e1 + math.log(rounds.k) - math.log(_FLOOR)) / rounds.e2) + 2)


def _dearest_row(prices: FloatArray, t: int, rounds: GRRRounds) -> float:
    if not len(prices):
        return 0.0
    depth = _depth(t, rounds)
    level = rounds.e2 * np.arange(depth)
    order = np.argsort((level - np.log(prices)[:, None]).ravel(), kind="stable")
    height = np.logaddexp.accumulate(np.concatenate(([rounds.log_total], level[order % depth] + rounds.log_step)))
    value = np.concatenate(([0.0], np.cumsum(prices[order // depth]))) - (height - rounds.log_total)
    best = int(value.argmax())
    return math.inf if (order[:best] == depth - 1).any() and depth < t else float(value[best])
