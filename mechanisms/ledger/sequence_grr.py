"""Privacy loss of reports between any two value sequences, with GRR memos: for L-GRR, and for L-LH on the hashed symbols.

A device with values x_1 … x_t draws one memo for every distinct value. At each step the device randomizes the memo of the
step's value:

    P(y|x) = Π_{v in x} Σ_m P₁(m|v) Π_{j: x_j = v} P₂(y_j|m)        eps_sequence(t) = max_{x, x', y} ln P(y|x)/P(y|x')

Write E = p₂/q₂ = e^{ε₂} and E₁ = p₁/q₁ = e^{ε∞}. Let n_m be the number of reports equal to m. Without the factor q₂^t, which
cancels,

    ln P(y|x) = Σ_v f_v(c_v),   c_vm = #{j: x_j = v, y_j = m},   f_v(c) = ln[(E₁ E^{c_v} + Σ_{m≠v} E^{c_m}) / (E₁+k-1)]

where f_v is convex and f_v(0) = 0.

1. The best x is y itself: max_x ln P(y|x) = Σ_m φ(n_m), φ(n) = ln[(E₁ E^n + k-1)/(E₁+k-1)].
2. Hence eps_sequence(t) = max_C F(C) over matrices of counts C_vm = #{j: x'_j = v, x_j = y_j = m} with sum t, where

       F(C) = Σ_m φ(Σ_v C_vm) - Σ_v f_v(C_v)

3. f_v is L♮-convex. The best R rows with the same f_v are therefore nested and as equal as integers allow: row i has
   ⌈(n_m - i)/R⌉ reports of symbol m, i = 0 … R-1. The rows of symbols that no report shows have the same f_v.
   Dynamic programming over the rows of all other symbols is exact for small t (`_exact`).
4. For larger t, `mechanisms.ledger.bound_grr` has upper bounds.
"""

from __future__ import annotations

import math
from functools import lru_cache

from ldpstream.mechanisms.arguments import MAX_EPS, MAX_K, FloatArray, IntArray, integer, real
from ldpstream.mechanisms.arrays import np
from ldpstream.mechanisms.ledger.bound_grr import (
    DENSE,
    PROGRAMME_K,
    GRRRounds,
    best_bracket,
    free_rows,
    log_expm1,
    programme,
    widths,
)
from ldpstream.mechanisms.ledger.sequence_loss import MAX_T, TOLERANCE, SequenceLoss, between, partitions
from ldpstream.mechanisms.wording import plural

MAX_LOG_RATIO = 3 * MAX_EPS  # ε₂ exceeds ε∞ when ε₁ is close to ε∞
TINY = 5e-324  # the smallest positive double
_EXACT_LOG2_STATES = 8  # log2 of the largest number of states of the dynamic programme: t <= 8 for all k, larger t for k <= 6
_MAX_WORDS = 24  # a witness lists at most this many combinations of values one by one


def eps_sequence_grr(t: int, *, k: int, log_e1: float, log_e2: float) -> SequenceLoss:
    """Loss of t reports of GRR∘GRR between any two value sequences, in nats; for L-LH with k := g.

    If L-LH has k >= g values, some function maps them onto all g symbols. With fewer values, this loss is only an upper bound.

    The result is exact for t <= 8, and wherever a known pair of sequences reaches the bound. Otherwise the result is a proven
    upper bound.

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


@lru_cache(maxsize=4096)
def _loss(t: int, rounds: GRRRounds) -> SequenceLoss:
    symbols = min(rounds.k, t)
    each, more = divmod(t, symbols)
    if (symbols - more) * math.log2(1 + each) + more * math.log2(2 + each) <= _EXACT_LOG2_STATES:
        return _exact(t, rounds)
    reached, witness = near_rectangles(t, rounds)
    bound = min(free_rows(t, rounds), t * rounds.e2)  # t ε₂ is the loss of the second round alone
    if bound > reached * (1 + TOLERANCE) and rounds.k <= DENSE:
        bound = min(bound, best_bracket(t, rounds))
    if rounds.k <= PROGRAMME_K:
        by_prices, starts = programme(t, rounds)
        bound = min(bound, by_prices)
        for start in starts:
            if bound <= reached * (1 + TOLERANCE):
                break
            loss, other = _ascent(start, t, rounds)
            if loss > reached:
                reached, witness = loss, other
    return between(reached, bound, witness)


# ---- exact loss for small t


def _exact(t: int, rounds: GRRRounds) -> SequenceLoss:
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
    """Returns the least Σ f_v for these reports, and its count matrix: the rows of the reported symbols, then of others."""
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
    if np.count_nonzero(matrix) > _MAX_WORDS:
        values, others = (int(matrix.any(axis=axis).sum()) for axis in (0, 1))
        return f"x has {plural(values, 'value')} and every report equals x; x' has {others}, mixed with all of x's"
    pairs = ", ".join(f"{count} x ({m}, {v})" for (v, m), count in np.ndenumerate(matrix) if count)
    return f"steps (x, x'): {pairs}; every report equals x"


# ---- lower bounds for any t


@lru_cache(maxsize=4096)
def near_rectangles(t: int, rounds: GRRRounds) -> tuple[float, str]:
    """The loss of a known pair of sequences, a lower bound of `eps_sequence_grr` without linear programmes; and the pair."""
    m = widths(t, rounds.k)
    m = m[m < rounds.k]
    values = np.minimum(-(-t // m), rounds.k - m)
    level, left = np.divmod(t, m * values)
    full, part = np.divmod(left, m)  # rows with level + 1 for all symbols; symbols with level + 1 in the next row
    more = t % m
    gain = more * rounds.phi(t // m + 1) + (m - more) * rounds.phi(t // m)

    def row(high: IntArray) -> FloatArray:
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
    k, counts = rounds.k, start.copy()
    share, extra = divmod(max(t - int(counts.sum()), 0), k * k)
    counts += share
    counts[: extra // k] += 1
    cells = counts.reshape(-1)
    own = rounds.e1 * np.eye(k)

    def change(sign: int) -> FloatArray:
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
