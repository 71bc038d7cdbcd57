"""Privacy loss of reports between any two value sequences, with GRR memos: for L-GRR, and for L-LH on the hashed symbols.

A device with values x_1 … x_t draws one memo for every distinct value. At each step the device randomizes the memo of the
step's value:

    P(y|x) = Π_{v in x} Σ_m P₁(m|v) Π_{j: x_j = v} P₂(y_j|m)      eps_sequence(t) = max_{x, x', y} ln P(y|x)/P(y|x')

Write E = p₂/q₂ = e^{ε₂} and E₁ = p₁/q₁ = e^{ε∞}. Let n_m be the number of reports equal to m. Without the factor q₂^t, which
cancels,

    ln P(y|x) = Σ_v f_v(c_v),  c_vm = #{j: x_j = v, y_j = m},  f_v(c) = ln[(E₁ E^{c_v} + Σ_{m≠v} E^{c_m}) / (E₁+k-1)]

where f_v is convex and f_v(0) = 0. For every y the maximum splits into a maximum over x and a minimum over x'.

1. The best x is y itself: max_x ln P(y|x) = Σ_m φ(n_m), φ(n) = ln[(E₁ E^n + k-1)/(E₁+k-1)]. Proof: the indicators of
   the memo's symbols are negatively associated, so f_v(c) <= Σ_m f_v(c_m e_m) <= Σ_m φ(c_m). φ is convex with φ(0) = 0,
   hence superadditive.
2. Hence eps_sequence(t) = max_C F(C) over matrices of counts C_vm = #{j: x'_j = v, x_j = y_j = m} with sum t, where

       F(C) = Σ_m φ(Σ_v C_vm) - Σ_v f_v(C_v)

3. f_v is L♮-convex: a log-sum-exp is submodular, and linear along (1,…,1). The best R rows with the same f_v are therefore
   nested and as equal as integers allow: row i has ⌈(n_m - i)/R⌉ reports of symbol m, i = 0 … R-1. These are the rows of all
   values that are never reported. Dynamic programming over the other rows is exact for small t (`_exact`).
4. For larger t, linear lower bounds of f_v bound the loss. The coefficients π_m of the linear bounds are called *prices*. If
   Σ_m π_m c_m <= f_v(c) + κ_v for all counts c and all v, and π_1 >= π_2 >= …, then

       eps_sequence(t) <= Σ_v κ_v + max_n [Σ_m φ(n_m) - Σ_m π_m n_m],   n_1 >= n_2 >= … integers with sum t

   with the symbols numbered by n_m. The bracket is convex in n, so the maximum is at a vertex of a polytope that contains these
   n. A vertex has M equal counts t/M and the value M φ(t/M) - (t/M)(π_1+…+π_M). For t = qk + r, 0 < r < k, other vertices
   replace the vertex with M = k: M < k symbols have the count q + r/M, and the other symbols have the count q. There are three
   choices of prices:
   - π_1+…+π_M = ln(1+MX), X = (E-1)/(E₁+k-1): slopes of f_v at 0, with κ = 0 (`_free_rows`). The bound is exact if the best M
     divides t and M + t/M <= k. Then x has M values, each at t/M steps; x' has t/M other values, each at one step with each
     value of x.
   - The smallest prices that keep the bracket at most a given V. All v have the same κ, computed from f_v without the symbol
     v. The bound is convex in V, and the best V is used (`_best_bracket`).
   - For k <= 16, the prices that minimise the bound. Linear programming finds them (`_programme`).

No single pair, such as 'constant against all-distinct', is the worst for all parameters and all t. For small t and large k the
worst x has few values. For large t the worst x has all k values. The loss then grows by ε₂(1-1/k) a step, although the loss
about a value from one memo is at most ε∞.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from mechanisms.arguments import MAX_EPS, MAX_K, FloatArray, IntArray, integer, real

MAX_T = 2**50
MAX_LOG_RATIO = 3 * MAX_EPS  # ε₂ exceeds ε∞ when ε₁ is close to ε∞
TINY = 5e-324  # the smallest positive double
_EXACT_LOG2_STATES = 8  # log2 of the largest number of states of the dynamic programme: t <= 8 for all k, larger t for k <= 6
_PROGRAMME_K = 16
_DENSE = 4096  # up to this many symbols, every number of symbols is tried
_MAX_CELLS = 200_000
_MAX_WORDS = 24  # a witness lists at most this many combinations of values one by one
_FLOOR = 1e-3  # the lowest price of the linear programme, relative to the mean price
_TOLERANCE = 1e-9  # relative difference; a bound is exact if the loss of a pair is this close to the bound


@dataclass(frozen=True, slots=True)
class SequenceLoss:
    """Privacy loss of t reports between the worst two value sequences.

    Attributes:
        value: the loss in nats if `exact`, else a proven upper bound of the loss.
        exact: true if a known pair of sequences reaches `value` (to nine digits).
        witness: a description of the pair that reaches `value`; if not `exact`, of the worst known pair.
        gap: `value` minus the loss of the pair in `witness`, in nats. The true loss is in [value - gap, value].
    """

    value: float
    exact: bool
    witness: str
    gap: float = 0.0


def between(reached: float, bound: float, witness: str) -> SequenceLoss:
    """Returns the `SequenceLoss` of a loss that is in [reached, bound]."""
    assert bound >= reached * (1 - 1e-6), (reached, bound)
    if bound <= reached * (1 + _TOLERANCE):
        return SequenceLoss(max(reached, bound), True, witness)
    return SequenceLoss(bound, False, witness, bound - reached)


def partitions(total: int, parts: int, largest: int | None = None) -> Iterator[tuple[int, ...]]:
    """All ways to write `total` as a sum of at most `parts` positive integers, the largest first."""
    if total == 0:
        yield ()
    elif parts:
        for first in range(min(total, largest or total), 0, -1):
            for rest in partitions(total - first, parts - 1, first):
                yield (first, *rest)


def eps_sequence_grr(t: int, *, k: int, log_e1: float, log_e2: float) -> SequenceLoss:
    """Loss of t reports of GRR∘GRR between any two value sequences, in nats; for L-LH with k := g.

    The result is exact for t <= 8, and if a known pair of sequences reaches the bound (see the module's docstring). Otherwise
    the result is a proven upper bound. The result is ε₁ at t = 1, never below ε_t, and grows with t without limit.

    For L-LH, the device's hash function is public, and only the hashed symbols of the values matter. If the function maps the
    k values onto all g symbols, every pair of symbol sequences is possible. If k >= g, the linear form H_a(v) = v_0 is such a
    function. The result for k := g is then the worst loss over functions and values. If k < g, see
    `mechanisms.ledger.sequence_hashed`.

    Args:
        t: number of reports, in [1, 2^50].
        k: number of symbols, in [2, 2^31).
        log_e1: ε∞ = ln(p₁/q₁), in (0, 700] nats.
        log_e2: ε₂ = ln(p₂/q₂), in (0, 2100] nats.

    Raises:
        ValueError: if an argument is outside its range.

    >>> loss = eps_sequence_grr(2, k=4, log_e1=2.0, log_e2=1.5731722)
    >>> round(loss.value, 3), loss.exact, loss.witness
    (2.196, True, "steps (x, x'): 1 x (0, 1), 1 x (0, 2); every report equals x")
    """
    rounds = GRRRounds(
        integer("k", k, 2, MAX_K),
        real("log_e1", log_e1, TINY, MAX_EPS),
        real("log_e2", log_e2, TINY, MAX_LOG_RATIO),
    )
    return _loss(integer("t", t, 1, MAX_T), rounds)


def log_expm1(y: npt.ArrayLike) -> FloatArray:
    """ln(e^y - 1) for y >= 0, elementwise, accurate at both ends; -inf at 0."""
    y = np.asarray(y, np.float64)
    with np.errstate(divide="ignore"):
        small = np.log(np.expm1(np.clip(y, 0.0, 1.0)))
    return np.asarray(np.where(y < 0.5, small, y + np.log1p(-np.exp(-np.maximum(y, 0.5)))))


@dataclass(frozen=True, slots=True)
class GRRRounds:
    """GRR∘GRR on k symbols, with the functions of the module's docstring."""

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
        """φ(n)."""
        return np.asarray(np.logaddexp(0.0, self.e1 - self.log_total + log_expm1(self.e2 * np.asarray(n))))

    def omega(self, n: FloatArray) -> FloatArray:
        """φ(n) - ε₂n, without cancellation."""
        others = math.log(self.k - 1) - self.log_total - self.e2 * n
        return np.asarray(np.logaddexp(self.e1 - self.log_total, others))

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


@lru_cache(maxsize=4096)
def _loss(t: int, rounds: GRRRounds) -> SequenceLoss:
    symbols = min(rounds.k, t)
    each, more = divmod(t, symbols)
    if (symbols - more) * math.log2(1 + each) + more * math.log2(2 + each) <= _EXACT_LOG2_STATES:
        return _exact(t, rounds)
    reached, witness = _near_rectangles(t, rounds)
    bound = min(_free_rows(t, rounds), t * rounds.e2)  # t ε₂ is the loss of the second round alone
    if bound > reached * (1 + _TOLERANCE) and rounds.k <= _DENSE:
        bound = min(bound, _best_bracket(t, rounds))
    if rounds.k <= _PROGRAMME_K:
        programme, starts = _programme(t, rounds)
        bound = min(bound, programme)
        for start in starts:
            if bound <= reached * (1 + _TOLERANCE):
                break
            loss, other = _ascent(start, t, rounds)
            if loss > reached:
                reached, witness = loss, other
    return between(reached, bound, witness)


# ---- exact loss for small t


def _exact(t: int, rounds: GRRRounds) -> SequenceLoss:
    """The maximum of F over all count matrices with sum t. Tries all column sums n, the most promising first."""
    promising = []
    turn = np.arange(min(rounds.k, t))[:, None]
    for parts in partitions(t, rounds.k):
        gain = float(rounds.phi(parts).sum())
        equal_rows = -((turn - np.array(parts)) // rounds.k)
        promising.append((gain - float(rounds.row(equal_rows).sum()), gain, parts))
    best, best_matrix = -math.inf, np.zeros((0, 0), np.int64)
    for at_most, gain, parts in sorted(promising, reverse=True):
        if at_most <= best * (1 + 1e-12):
            break
        denominator, matrix = _least_likely(np.array(parts), rounds)
        if gain - denominator > best:
            best, best_matrix = gain - denominator, matrix
    return SequenceLoss(best, True, _describe(best_matrix))


def _least_likely(n: IntArray, rounds: GRRRounds) -> tuple[float, IntArray]:
    """min_x' ln P(y|x') for counts n of the reported symbols, and the matrix that reaches this minimum.

    The matrix has the rows of the reported symbols, then the rows of other symbols. A state of the dynamic programme holds the
    counts already divided among rows. The programme begins with the rows of unreported symbols, then adds the row of each
    reported symbol.
    """
    used, shape = len(n), tuple(int(x) + 1 for x in n)
    states = np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), axis=1)
    unused = rounds.k - used
    turn = np.arange(min(unused, int(n.max())))[:, None, None]
    free = -((turn - states) // max(unused, 1))
    cost = np.where(states.any(axis=1) & (unused == 0), np.inf, rounds.row(free).sum(axis=0))
    place = np.array([math.prod(shape[symbol + 1 :]) for symbol in range(used)])
    below = np.asarray((states[:, None, :] >= states[None, :, :]).all(axis=2))
    rest = np.where(below, (states @ place)[:, None] - (states @ place)[None, :], 0)
    choices = []
    for symbol in range(used):
        total = np.where(below, cost[rest] + rounds.row(states, symbol)[None, :], np.inf)
        choices.append(total.argmin(axis=1))
        cost = total.min(axis=1)
    state, rows = len(states) - 1, []
    for choice in reversed(choices):
        rows.append(states[choice[state]])
        state = int(rest[state, choice[state]])
    return float(cost[-1]), np.stack([*reversed(rows), *free[:, state]])


def _describe(matrix: IntArray) -> str:
    """Describes a count matrix in words."""
    if np.count_nonzero(matrix) > _MAX_WORDS:
        values, others = (int(matrix.any(axis=axis).sum()) for axis in (0, 1))
        return f"x has {values} values and every report equals x; x' has {others}, mixed with all of x's"
    pairs = ", ".join(f"{count} x ({m}, {v})" for (v, m), count in np.ndenumerate(matrix) if count)
    return f"steps (x, x'): {pairs}; every report equals x"


# ---- upper bounds for any t


def _widths(t: int, k: int) -> IntArray:
    """Numbers of symbols M for which bounds are computed: all up to 4096, then 2048 numbers for every factor e."""
    top = min(t, k)
    dense = np.arange(1, min(top, _DENSE) + 1)
    sparse = np.exp(np.arange(math.log(_DENSE), math.log(top), 1 / 2048)) if top > _DENSE else np.zeros(0)
    return np.unique(np.concatenate((dense, sparse.astype(np.int64), [top])))


def _free_rows(t: int, rounds: GRRRounds) -> float:
    """The bound from the slopes of f_v at 0. In this bound x' may have any number of values that are never reported.

    M φ(t/M) and ln(1+MX)/M are both convex in M. Between two computed widths, M φ(t/M) therefore lies below the chord, and
    ln(1+MX)/M lies above the tangents. The point where the tangents meet gives a bound for all widths between these two.
    """
    m = _widths(t, rounds.k)
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


def _best_bracket(t: int, rounds: GRRRounds) -> float:
    """The bound for the best V. For a given V, the prices are the smallest that keep the bracket at most V."""
    k = rounds.k
    m = np.arange(1, min(t, k) + 1)
    gain = m * rounds.phi(t / m)

    def bound(bracket: float) -> float:
        slopes = np.diff(np.maximum(m / t * (gain - bracket), 0.0), prepend=0.0)
        prices = np.maximum(np.maximum.accumulate(slopes[::-1])[::-1], 0.0)  # sorted; every partial sum is large enough
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
    """The largest count of one symbol in a maximiser of `_dearest_row` and `_dearest_rows`."""
    return min(t, int((rounds.e1 + math.log(rounds.k) - math.log(_FLOOR)) / rounds.e2) + 2)


def _dearest_row(prices: FloatArray, t: int, rounds: GRRRounds) -> float:
    """κ = max_c Σ π_m c_m - f_v(c) over counts c without reports of symbol v; see `_dearest_rows`."""
    if not len(prices):
        return 0.0
    depth = _depth(t, rounds)
    level = rounds.e2 * np.arange(depth)
    order = np.argsort((level - np.log(prices)[:, None]).ravel(), kind="stable")
    height = np.logaddexp.accumulate(np.concatenate(([rounds.log_total], level[order % depth] + rounds.log_step)))
    value = np.concatenate(([0.0], np.cumsum(prices[order // depth]))) - (height - rounds.log_total)
    best = int(value.argmax())
    return math.inf if (order[:best] == depth - 1).any() and depth < t else float(value[best])


def _dearest_rows(prices: FloatArray, t: int, rounds: GRRRounds) -> tuple[FloatArray, FloatArray]:
    """κ_v = max_c Σ π_m c_m - f_v(c) for every symbol v, and the counts c. The prices are positive, with sum at most ε₂.

    Since -ln H = max_h [1 - ln h - H/h], the best counts for a given h include exactly those increments E^c → E^{c+1} of symbol
    m for which w_m E^c (E-1)/π_m <= h. The candidates are therefore a chain, ordered by this threshold. Counts without a zero
    are not needed: lowering all counts by one is at least as good. κ is infinite if `_depth` is too small.
    """
    k, depth = rounds.k, _depth(t, rounds)
    weight = rounds.e1 * np.eye(k)[:, :, None] + rounds.e2 * np.arange(depth)  # (v, m, c): ln of w_m E^c
    order = np.argsort((weight - np.log(prices)[:, None]).reshape(k, -1), axis=1, kind="stable")
    step = np.take_along_axis(weight.reshape(k, -1), order, axis=1) + rounds.log_step
    start = np.full((k, 1), rounds.log_total)
    height = np.logaddexp.accumulate(np.concatenate((start, step), axis=1), axis=1) - rounds.log_total
    value = np.concatenate((np.zeros((k, 1)), np.cumsum(prices[order // depth], axis=1)), axis=1) - height
    last = np.where(order % depth == 0, np.arange(k * depth), 0).max(axis=1)  # from here on no count is zero
    best = np.where(np.arange(k * depth + 1) <= last[:, None], value, -np.inf).argmax(axis=1)
    counts = np.stack([np.bincount(order[v, : best[v]] // depth, minlength=k) for v in range(k)])
    kappa = np.where((counts.max(axis=1) < depth) | (depth == t), value[np.arange(k), best], np.inf)
    return kappa, counts.astype(np.float64)


def _vertices(t: int, k: int) -> FloatArray:
    """Vertices of the polytope of sorted counts n with sum t; see the module's docstring."""
    whole, left = divmod(t, k)
    few = np.arange(1, min(t, k - (t >= k)) + 1)[:, None]
    first = np.arange(k) < few
    points = [first * (t / few)]
    if t >= k:
        points.append(whole + first * (left / few) if left else np.full((1, k), float(whole)))
    return np.concatenate(points)


def _programme(t: int, rounds: GRRRounds) -> tuple[float, list[IntArray]]:
    """The bound from the best prices, and count matrices near the worst matrix.

    The linear programme uses cutting planes: it adds the rows c with the largest Σ π_m c_m - f_v(c) until no such sum exceeds
    κ_v. The bound is computed anew from the programme's prices, so it is valid even if the programme's solution is inaccurate.
    The variables are d, with π = ε₂/k + d k/t, then κ, then the bracket minus ε₂ t (1-1/k).
    """
    k, e2 = rounds.k, rounds.e2
    if k * k * _depth(t, rounds) > _MAX_CELLS:
        return math.inf, []
    points = _vertices(t, k)
    offsets = rounds.omega(points).sum(axis=1)
    scale, floor, eye = k / t, _FLOOR * e2 / k, np.eye(k)
    sorted_prices = np.concatenate((eye[1:] - eye[:-1], np.ones((1, k))))  # also Σ π <= ε₂, else κ would be infinite
    rows = [
        np.concatenate((-points * scale, np.zeros_like(points), -np.ones((len(points), 1))), axis=1),
        np.concatenate((sorted_prices, np.zeros((k, k + 1))), axis=1),
    ]
    limits = [-offsets, np.zeros(k)]

    def cut(own: int, counts: FloatArray) -> None:
        kappa = -np.broadcast_to(eye[own], counts.shape)
        rows.append(np.concatenate((counts * scale, kappa, np.zeros((len(counts), 1))), axis=1))
        limits.append(rounds.row(counts, own) - counts.sum(axis=1) * e2 / k)

    for own in range(k):
        cut(own, np.concatenate((np.zeros((1, k)), np.tri(k)[:-1], np.tri(k) * (1 - eye[own]))))
    grown = t * e2 * (1 - 1 / k)
    best, dearest = math.inf, np.zeros((k, k))
    for _ in range(30):
        solution = linprog(
            np.concatenate((np.zeros(k), np.ones(k + 1))),
            A_ub=np.concatenate(rows),
            b_ub=np.concatenate(limits),
            bounds=[((floor - e2 / k) / scale, None)] * k + [(None, None)] * (k + 1),
            method="highs",
        )
        if solution.status != 0:
            break
        prices = np.sort(np.maximum(e2 / k + solution.x[:k] * scale, floor))[::-1]
        prices *= min(1.0, e2 / prices.sum())
        kappa, counts = _dearest_rows(prices, t, rounds)
        bound = grown + float((offsets - points @ (prices - e2 / k)).max()) + float(kappa.sum())
        if bound < best:
            best, dearest = bound, counts
        violated = np.flatnonzero(kappa > solution.x[k : 2 * k] + 1e-12)
        if bound - grown - solution.fun <= _TOLERANCE * bound / 10 or not len(violated):
            break
        for own in violated.tolist():
            cut(own, counts[own][None, :])
    return best, [dearest.astype(np.int64), np.zeros((k, k), np.int64), (1 - eye).astype(np.int64)]


# ---- lower bounds for any t


def _near_rectangles(t: int, rounds: GRRRounds) -> tuple[float, str]:
    """The best pair of this kind: x has M values, x' has R other values, and all M·R combinations occur about equally often."""
    m = _widths(t, rounds.k)
    m = m[m < rounds.k]
    values = np.minimum(-(-t // m), rounds.k - m)
    level, left = np.divmod(t, m * values)
    full, part = np.divmod(left, m)  # rows with level + 1 for all symbols; symbols with level + 1 in the next row
    more = t % m
    gain = more * rounds.phi(t // m + 1) + (m - more) * rounds.phi(t // m)

    def row(high: IntArray) -> FloatArray:
        """f_v of level + 1 reports of each of `high` symbols, and `level` reports of each of the other m - high symbols."""
        with np.errstate(divide="ignore"):
            one = log_expm1(rounds.e2 * (level + 1)) + np.log(high)
            other = log_expm1(rounds.e2 * level) + np.log(m - high)
        return np.asarray(np.logaddexp(0.0, np.logaddexp(one, other) - rounds.log_total))

    loss = gain - full * row(m) - (values > full) * row(part) - np.maximum(values - full - 1, 0) * row(0 * m)
    best = int(loss.argmax())
    own = f"{m[best]} values, each about equally often," if m[best] > 1 else "one value"
    others = f"{values[best]} other values" if values[best] > 1 else "one other value"
    witness = f"x has {own} and every report equals x; x' has {others}, each about equally often with each of x's"
    return float(loss[best]), witness


def _ascent(start: IntArray, t: int, rounds: GRRRounds) -> tuple[float, str]:
    """The loss of a locally best count matrix with sum t, and a description of this matrix.

    The search adds or removes steps at the cell with the largest gain, then moves single steps.
    """
    k, counts = rounds.k, start.copy()
    share, extra = divmod(max(t - int(counts.sum()), 0), k * k)
    counts += share
    counts[: extra // k] += 1
    cells = counts.reshape(-1)
    own = rounds.e1 * np.eye(k)

    def change(sign: int) -> FloatArray:
        """The change of F if one step is added to (sign 1) or removed from (sign -1) each cell."""
        n, weight = counts.sum(axis=0), own + rounds.e2 * counts
        log_share = weight - np.logaddexp.reduce(weight, axis=1, keepdims=True)
        if sign > 0:
            return (rounds.phi(n + 1) - rounds.phi(n) - np.logaddexp(0.0, log_share + rounds.log_step)).ravel()
        with np.errstate(divide="ignore"):
            row = np.log1p(np.exp(log_share) * math.expm1(-rounds.e2))
        gain = rounds.phi(np.maximum(n - 1, 0)) - rounds.phi(n) - row
        return np.where(counts > 0, gain, -np.inf).ravel()

    while (missing := t - int(counts.sum())) != 0:
        sign = 1 if missing > 0 else -1
        cells[change(sign).argmax()] += sign
    for _ in range(4 * k):
        out = change(-1)
        for cell in np.argsort(-out)[:k]:
            cells[cell] -= 1
            back = change(1)
            cells[back.argmax()] += 1
            if out[cell] + back.max() > 1e-12 * t:
                break
            cells[back.argmax()] -= 1
            cells[cell] += 1
        else:
            break
    loss = float(rounds.phi(counts.sum(axis=0)).sum()) - sum(float(rounds.row(counts[v], v)) for v in range(k))
    return loss, _describe(counts)
