"""Privacy loss of reports between any two value sequences, with GRR memos: for L-GRR, and for L-LH on the hashed symbols.

A device with values x_1 … x_t draws one memo for every distinct value. At each step the device randomizes the memo of the
step's value:

    P(y|x) = Π_{v in x} Σ_m P₁(m|v) Π_{j: x_j = v} P₂(y_j|m)        eps_sequence(t) = max_{x, x', y} ln P(y|x)/P(y|x')

Write E = p₂/q₂ = e^{ε₂} and E₁ = p₁/q₁ = e^{ε∞}. Let n_m be the number of reports equal to m. Without the factor q₂^t, which
cancels,

    ln P(y|x) = Σ_v f_v(c_v),   c_vm = #{j: x_j = v, y_j = m},   f_v(c) = ln[(E₁ E^{c_v} + Σ_{m≠v} E^{c_m}) / (E₁+k-1)]

where f_v is convex and f_v(0) = 0. The best x is y itself:

    max_x ln P(y|x) = Σ_m φ(n_m),   φ(n) = ln[(E₁ E^n + k-1)/(E₁+k-1)] <= ε₂ n

The loss is the largest Σ_m φ(n_m) - Σ_v f_v(c_v) over all counts c of x' with the sums n_m. For up to four symbols and few
reports, a dynamic programme over the values v finds it. It is at most each of these:

1. t ε₂, the loss of the second round alone.
2. t ε₂ (1 - 1/k) + k ln(E₁+k-1), since f_v(c) is at least ε₂ max_m c_m - ln(E₁+k-1).
3. The bound from the slopes of f_v at 0 (`_free_rows`). Number the symbols in descending order of n_m. With prices π_m, where
   π_1+…+π_M = ln(1+MX) and X = (E-1)/(E₁+k-1), every f_v(c) is at least Σ_m π_m c_m. So the loss is at most the largest
   Σ_m φ(n_m) - Σ_m π_m n_m over all n_1 >= n_2 >= … with the sum t.

One report reaches the third bound. From four symbols on and up to eight reports, it exceeds the exact loss by 20 % at most.
"""

from __future__ import annotations

import math
from functools import lru_cache

from ldpstream.mechanisms.arguments import MAX_EPS, MAX_K, FloatArray, IntArray, integer, real
from ldpstream.mechanisms.arrays import np, npt
from ldpstream.mechanisms.ledger.sequence_loss import MAX_T, SequenceLoss, partitions

MAX_LOG_RATIO = 3 * MAX_EPS  # ε₂ exceeds ε∞ when ε₁ is close to ε∞
TINY = 5e-324  # the smallest positive double
DENSE = 4096  # up to this many symbols, every number of symbols is tried
MOST_EXACT = {2: 30, 3: 15, 4: 12}  # the largest number of reports with an exact loss, by the number of symbols


def eps_sequence_grr(t: int, *, k: int, log_e1: float, log_e2: float) -> SequenceLoss:
    """Loss of t reports of GRR∘GRR between any two value sequences, in nats; for L-LH with k := g.

    If L-LH has k >= g values, some function maps them onto all g symbols. With fewer values, this loss is only an upper bound.

    The result is exact for t = 1 and up to `MOST_EXACT`, else a proven upper bound.

    Args:
        t: number of reports, in [1, 2^50].
        k: number of symbols, in [2, 2^31).
        log_e1: ε∞ = ln(p₁/q₁), in (0, 700] nats.
        log_e2: ε₂ = ln(p₂/q₂), in (0, 2100] nats.

    Raises:
        ValueError: if an argument is outside its range.

    >>> [round(eps_sequence_grr(t, k=4, log_e1=2.0, log_e2=1.5731722).value, 3) for t in (1, 2, 24)]
    [1.0, 2.196, 30.964]
    """
    t, k = integer("t", t, 1, MAX_T), integer("k", k, 2, MAX_K)
    e1, e2 = real("log_e1", log_e1, TINY, MAX_EPS), real("log_e2", log_e2, TINY, MAX_LOG_RATIO)
    log_total = float(np.logaddexp(e1, math.log(k - 1)))  # ln(E₁+k-1)
    if t <= MOST_EXACT.get(k, 0):
        return SequenceLoss(_exact(t, k, e1, e2, log_total), exact=True)
    bounds = t * e2, t * e2 * (1 - 1 / k) + k * log_total, _free_rows(t, k, e1, e2, log_total)
    return SequenceLoss(min(bounds), exact=t == 1)


@lru_cache(maxsize=4096)
def _exact(t: int, k: int, e1: float, e2: float, log_total: float) -> float:
    best = 0.0
    for n in partitions(t, k, t):
        counts = np.indices([x + 1 for x in n]).reshape(len(n), -1)  # every c_v, in an order in which places add up
        fits = (counts[:, :, None] >= counts[:, None, :]).all(axis=0)
        place = np.arange(fits.shape[0])
        rest = np.where(fits, place[:, None] - place, 0)
        cost = np.where(place == 0, 0.0, np.inf)  # the least Σ f_v of some values for every sum of their counts
        for value in range(k):
            own = np.arange(k)[:, None] == value
            weights = e1 * own + np.append(e2 * counts, np.zeros((k - len(n), place.size)), axis=0)
            row = np.logaddexp.reduce(weights) - log_total
            cost = np.where(fits, cost[rest] + row, np.inf).min(axis=1)
        gain = np.logaddexp(0.0, e1 - log_total + _log_expm1(e2 * np.array(n)))
        best = max(best, float(gain.sum() - cost[-1]))
    return best


def _free_rows(t: int, k: int, e1: float, e2: float, log_total: float) -> float:
    """The largest of the third bound over numbers M of symbols that are reported equally often, and between these numbers."""
    m = _widths(t, k)
    total = np.logaddexp(0.0, np.log(m) + _log_expm1(e2) - log_total)  # ln(1+MX)
    gain, price = m * np.logaddexp(0.0, e1 - log_total + _log_expm1(e2 * t / m)), total / m
    slope = (-np.expm1(-total) - total) / m / m
    left = np.flatnonzero(np.diff(m) > 1)
    right = left + 1
    ahead = price[left] - price[right] + slope[right] * (m[right] - m[left])
    bend = slope[right] - slope[left]
    step = np.divide(ahead, bend, out=np.zeros_like(bend), where=bend > 0)
    chord = gain[left] + step / (m[right] - m[left]) * (gain[right] - gain[left])
    between_widths = chord - t * (price[left] + slope[left] * step)
    return float(max((gain - t * price).max(), between_widths.max(initial=-np.inf)))


def _widths(t: int, k: int) -> IntArray:
    top = min(t, k)
    dense = np.arange(1, min(top, DENSE) + 1)
    sparse = np.exp(np.arange(math.log(DENSE), math.log(top), 1 / 2048)) if top > DENSE else np.zeros(0)
    return np.unique(np.concatenate((dense, sparse.astype(np.int64), [top])))


def _log_expm1(y: npt.ArrayLike) -> FloatArray:
    """ln(e^y - 1) for y > 0, elementwise, accurate at both ends."""
    y = np.asarray(y, np.float64)
    with np.errstate(divide="ignore"):
        small = np.log(np.expm1(np.clip(y, 0.0, 1.0)))
    return np.asarray(np.where(y < 0.5, small, y + np.log1p(-np.exp(-np.maximum(y, 0.5)))))
