"""Privacy losses of L-SS, memoized subset selection with two set sizes.

A memo is a set M of m of the k values, P(M|v) ∝ e^{ε∞} if v ∈ M, else 1. A report is a set Y of w values, P(Y|M) ∝ θ^|M∩Y|. So
the overlap j = |M∩Y| has the chances h_j ∝ C(m,j) C(k-m,w-j) θ^j (Fisher's noncentral hypergeometric distribution). Let μ be
its mean.

**One report is subset selection with ε₁ and size w.** Permutations of the values that fix v leave P(Y|v) unchanged. So P(Y|v)
has two values, for v ∈ Y and v ∉ Y, and their ratio is

    e^{ε₁} = (1 + aμ/w) / (1 + a(m-μ)/(k-w)),   a = e^{ε∞} - 1

Some θ solves this equation exactly if ε₁ is below `largest_eps_1`.

**t reports of an unchanged value.** Let c_u be the number of reports with u, x_u = θ^{c_u}, and e_i the elementary symmetric
polynomials of the x of the k-2 values except v and u. Then

    P(Y₁…Y_t|v) / P(Y₁…Y_t|u) = 1 + (e^{ε∞}-1) F
    F = (x_v - x_u) / (x_v + e^{ε∞} x_u + e_m/e_{m-1} + e^{ε∞} x_v x_u e_{m-2}/e_{m-1})

All counts c with 0 <= c_u <= t and the sum tw occur (Gale and Ryser). The maximum is among few of them:

- For two other values with a fixed sum of counts, each e_i is linear in s, the sum of their two x. So the ratio is monotone in
  s, and its maximum is at an end. Some maximum therefore has counts t, counts 0, and other counts that differ by at most 1.
- A count moved from u to v changes the logarithm of the ratio by an integral of Var(1[v∈M] - 1[u∈M]) >= 0. So some maximum has
  c_v = t or c_u = 0.

For m = 1, F depends on the other values by their sum e_1, which is least if their counts differ by at most 1.

**Any two value sequences.** P(Y₁…Y_t | any sequence) is at most (θ^min(m,w) / N)^t, N = Σ_j C(m,j) C(k-m,w-j) θ^j. By Jensen's
inequality for each memo, it is at least (θ^{w q₁} / N)^t, with w q₁ the mean overlap of a report with the memo of a value that
the report does not have. t equal reports come near this ratio, for a value in their set against t different values outside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ldpstream.mechanisms.arguments import FloatArray, IntArray, integer, log1mexp
from ldpstream.mechanisms.arrays import np
from ldpstream.mechanisms.ledger.sequence_loss import MAX_T, SequenceLoss

SAME = 1e-10  # relative difference of losses that counts as none
FAR = 500.0  # beyond this t ln θ, the loss of an unchanged value counts as ε∞
MOST_CELLS = 10**8  # numbers that a search for the worst reports computes, in about a second


def _log_binomial(n: int, i: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1)


def largest_eps_1(k: int, m: int, w: int, eps_inf: float) -> float:
    """The supremum of ε₁ for these set sizes: ε∞ if m = w."""
    if m <= w:
        return math.log1p(m / w * math.expm1(eps_inf)) if m < w else eps_inf
    return eps_inf - math.log1p((m - w) / (k - w) * math.expm1(eps_inf))


@dataclass(frozen=True)
class SubsetRounds:
    """Both rounds of L-SS. m and w are at most k/2; log_theta is positive."""

    k: int
    m: int
    w: int
    eps_inf: float
    eps_1: float
    log_theta: float

    @classmethod
    def calibrated(cls, k: int, m: int, w: int, eps_inf: float, eps_1: float) -> SubsetRounds:
        """The rounds with which one report has a loss of eps_1, or less by a rounding error; eps_1 is below `largest_eps_1`."""
        a, back = math.expm1(eps_inf), math.exp(-eps_1)
        total, gain = w + (k - w) * back, -math.expm1(-eps_1)
        above = w * (k - w) * gain * (k / a + m) / (k * total)  # μ - mw/k
        if m <= w:
            excess = m / w * -math.expm1(-eps_inf) - math.expm1(eps_1) * math.exp(-eps_inf)
            if m == w:
                excess = -math.expm1(eps_1 - eps_inf)  # the same number, without cancellation
            below = w * (k - w) * excess * back / (-math.expm1(-eps_inf) * total)  # min(m,w) - μ
        else:
            below = w * (back * (k - w) * (1 + 1 / a) - (k - w) / a - (m - w)) / total
        top = min(m, w)

        def too_large(x: float) -> bool:
            weights = _weights(k, m, w, x)
            if above < below:  # without cancellation, since the weights for x = 0 have the mean mw/k
                moved = _added(weight * -math.expm1(-x * j) * (j - m * w / k) for j, weight in enumerate(weights))
                return moved > above * _added(weights)
            return _added(weight * (top - j) for j, weight in enumerate(weights)) < below * _added(weights)

        low, high = 0.0, 1.0
        while not too_large(high):
            low, high = high, 2 * high
        while low < (middle := (low + high) / 2) < high:
            low, high = (low, middle) if too_large(middle) else (middle, high)
        return cls(k, m, w, eps_inf, eps_1, low)

    @property
    def mean_overlap(self) -> float:
        """μ."""
        weights = _weights(self.k, self.m, self.w, self.log_theta)
        return _added(weight * j for j, weight in enumerate(weights)) / _added(weights)

    @cached_property
    def overlaps(self) -> FloatArray:
        """h_j for j = 0 … min(m, w)."""
        weights = np.array(_weights(self.k, self.m, self.w, self.log_theta))
        return np.asarray(weights / weights.sum())

    @property
    def memo_other(self) -> float:
        """q₁ = Pr[the memo of another value has v]."""
        k, m = self.k, self.m
        out = 1 / (1 + m / (k - m) * math.exp(self.eps_inf))
        return (m - 1 + out) / (k - 1)


@lru_cache(maxsize=256)
def _ways(k: int, m: int, w: int) -> tuple[float, ...]:
    """ln C(m,j) C(k-m,w-j) for j = 0 … min(m, w)."""
    return tuple(_log_binomial(m, j) + _log_binomial(k - m, w - j) for j in range(min(m, w) + 1))


def _weights(k: int, m: int, w: int, log_theta: float) -> list[float]:
    """h_j up to a common factor, in plain Python, since a device computes it."""
    log = [ways + log_theta * j for j, ways in enumerate(_ways(k, m, w))]
    top = max(log)
    return [math.exp(x - top) for x in log]


def _added(numbers: Iterable[float]) -> float:
    """The sum, rounded after each number: the built-in function gives other bits from Python 3.12 on."""
    total = 0.0
    for number in numbers:
        total += number
    return total


def loss_of_counts(rounds: SubsetRounds, of_v: int, of_u: int, others: IntArray) -> FloatArray:
    """ln P(reports|v) / P(reports|u), (n,).

    Args:
        of_v, of_u: number of reports with v, and with u, at most `of_v`.
        others: (n, k-2), each row the numbers of reports with each of the other values.
    """
    m, log = rounds.m, rounds.log_theta
    x_v, x_u = of_v * log, of_u * log
    parts = [np.full(len(others), x) for x in (x_v, rounds.eps_inf + x_u)]
    if m == 1:
        parts.append(np.logaddexp.reduce(others * log, axis=1, initial=-np.inf))
    else:
        least = -log * others.max(axis=1) - math.log(4 * rounds.k)
        most = np.full(len(others), math.log(4 * rounds.k))
        for _ in range(16):  # about the scale s = e^middle with which the sum of s x / (1 + s x) is m - 1/2
            middle = (least + most) / 2
            low = _odds(middle[:, None] + log * others).sum(axis=1) < m - 0.5
            least, most = np.where(low, middle, least), np.where(low, most, middle)
        scaled = middle[:, None] + log * others
        chances = np.zeros((len(others), m + 1))  # number i is s^i e_i, up to a common factor
        chances[:, 0] = 1.0
        for p, not_p in zip(_odds(scaled).T[:, :, None], _odds(-scaled).T[:, :, None]):
            chances[:, 1:] = not_p * chances[:, 1:] + p * chances[:, :-1]
            chances[:, :1] *= not_p
        two_less, one_less, all_m = np.log(chances[:, -3:].T)
        parts += [all_m - one_less - middle, rounds.eps_inf + x_v + x_u + two_less - one_less + middle]
    return _loss(rounds, x_v, x_u, np.logaddexp.reduce(parts))


def _odds(log: FloatArray) -> FloatArray:
    """x / (1 + x) for x = e^log, accurate for small x."""
    return np.asarray(1 / (1 + np.exp(np.clip(-log, -700.0, 700.0))))


def _loss(rounds: SubsetRounds, x_v: float, x_u: float, log_rest: FloatArray) -> FloatArray:
    """ln(1 + (e^{ε∞}-1) F), with ln x_v, ln x_u, and the logarithm of the denominator of F."""
    if x_v <= x_u:
        return np.zeros(np.shape(log_rest))
    log_f = x_v + log1mexp(x_v - x_u) - log_rest
    return np.asarray(np.logaddexp(0.0, rounds.eps_inf + log1mexp(rounds.eps_inf) + log_f))


def candidates(rounds: SubsetRounds, t: int, total: int, most: int) -> IntArray | None:
    """The counts of the k-2 other values with this total, among which a loss is largest: (n, k-2); None for n above `most`."""
    n = rounds.k - 2
    if rounds.m == 1:
        if not 0 <= total <= n * t:
            return np.zeros((0, n), np.int64)
        whole, more = divmod(total, max(n, 1))
        return np.asarray(whole + (np.arange(n) < more), np.int64)[None, :]
    full, empty = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")  # number of values with count t, and 0
    rest, left = n - full - empty, total - full * t
    fits = (rest > 0) & (left >= rest) & (left <= rest * (t - 1)) | (rest == 0) & (left == 0)
    if np.count_nonzero(fits) > most:
        return None
    full, empty, rest, left = (x[fits][:, None] for x in (full, empty, rest, left))
    each = left // np.maximum(rest, 1)
    place = np.arange(n)
    inner = each + (place - full - empty < left - each * rest)
    return np.asarray(np.where(place < full, t, np.where(place < full + empty, 0, inner)), np.int64)


@lru_cache(maxsize=4096)
def eps_t_subset(t: int, rounds: SubsetRounds) -> float:
    """Privacy loss of t reports of L-SS if the value did not change, in nats.

    The result is the exact maximum over all pairs of values and all reports, to within 1e-10. If the search for it would take
    more than about a second, the result is the bound ε∞.

    Args:
        t: number of reports, in [1, 2^62].

    >>> rounds = SubsetRounds.calibrated(20, 2, 5, 2.0, 1.0)
    >>> [round(eps_t_subset(t, rounds=rounds), 3) for t in (1, 2, 4)]
    [1.0, 1.777, 1.998]
    """
    k, m, w, log = rounds.k, rounds.m, rounds.w, rounds.log_theta
    if t == 1 or t * log > FAR:
        return rounds.eps_1 if t == 1 else rounds.eps_inf
    least_rest = math.log((k - 1 - m) / m) if k - 1 > m else -math.inf  # of e_m / e_{m-1}

    def bound(c: int) -> float:
        x_v, x_u = min(c, t) * log, max(c - t, 0) * log
        return float(_loss(rounds, x_v, x_u, np.asarray(np.logaddexp.reduce([x_v, rounds.eps_inf + x_u, least_rest]))))

    best, left = 0.0, MOST_CELLS // k // (m + 16)
    for way in (1, -1):  # c = c_v + c_u from t on; the bound falls on both sides
        c = t if way > 0 else t - 1
        while 0 < c < 2 * t and best < rounds.eps_inf * (1 - SAME) and bound(c) > best * (1 + SAME):
            others = candidates(rounds, t, t * w - c, left)
            if others is None:
                return rounds.eps_inf
            left -= len(others)
            best = max(best, float(loss_of_counts(rounds, min(c, t), max(c - t, 0), others).max(initial=0.0)))
            c += way
    return best if best < rounds.eps_inf * (1 - SAME) else rounds.eps_inf


def eps_sequence_subset(t: int, rounds: SubsetRounds) -> SequenceLoss:
    """Privacy loss of t reports of L-SS between any two value sequences, in nats: exact for t = 1, else an upper bound.

    Args:
        t: number of reports, in [1, 2^50].

    >>> rounds = SubsetRounds.calibrated(20, 2, 5, 2.0, 1.0)
    >>> round(eps_sequence_subset(4, rounds).value, 2)
    18.14
    """
    if integer("t", t, 1, MAX_T) == 1:
        return SequenceLoss(rounds.eps_1, exact=True)
    farthest = min(rounds.m, rounds.w) - rounds.w * rounds.memo_other
    return SequenceLoss(t * rounds.log_theta * farthest, exact=False)
