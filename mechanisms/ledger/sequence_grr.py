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

from ldpstream.mechanisms.arguments import MAX_EPS, MAX_K, IntArray, integer, real
from ldpstream.mechanisms.arrays import np
from ldpstream.mechanisms.ledger.bound_grr import DENSE, GRRRounds, best_bracket, free_rows
from ldpstream.mechanisms.ledger.sequence_loss import MAX_T, SequenceLoss, partitions

MAX_LOG_RATIO = 3 * MAX_EPS  # ε₂ exceeds ε∞ when ε₁ is close to ε∞
TINY = 5e-324  # the smallest positive double
_EXACT_LOG2_STATES = 8  # log2 of the largest number of states of the dynamic programme: t <= 8 for all k, larger t for k <= 6


def eps_sequence_grr(t: int, *, k: int, log_e1: float, log_e2: float) -> SequenceLoss:
    """Loss of t reports of GRR∘GRR between any two value sequences, in nats; for L-LH with k := g.

    If L-LH has k >= g values, some function maps them onto all g symbols. With fewer values, this loss is only an upper bound.

    The result is exact for t <= 8, and for larger t with few symbols. Otherwise it is a proven upper bound.

    Args:
        t: number of reports, in [1, 2^50].
        k: number of symbols, in [2, 2^31).
        log_e1: ε∞ = ln(p₁/q₁), in (0, 700] nats.
        log_e2: ε₂ = ln(p₂/q₂), in (0, 2100] nats.

    Raises:
        ValueError: if an argument is outside its range.

    >>> loss = eps_sequence_grr(2, k=4, log_e1=2.0, log_e2=1.5731722)
    >>> round(loss.value, 3), loss.exact
    (2.196, True)
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
        return SequenceLoss(_exact(t, rounds), exact=True)
    bound = min(free_rows(t, rounds), t * rounds.e2)  # t ε₂ is the loss of the second round alone
    if rounds.k <= DENSE:
        bound = min(bound, best_bracket(t, rounds))
    return SequenceLoss(bound, exact=False)


# ---- exact loss for small t


def _exact(t: int, rounds: GRRRounds) -> float:
    promising = []
    turn = np.arange(min(rounds.k, t))[:, None]
    for parts in partitions(t, rounds.k):
        gain = float(rounds.phi(parts).sum())
        equal_rows = -((turn - np.array(parts)) // rounds.k)
        promising.append((gain - float(rounds.row(equal_rows).sum()), gain, parts))
    best = -math.inf
    for at_most, gain, parts in sorted(promising, reverse=True):
        if at_most <= best * (1 + 1e-12):
            break
        best = max(best, gain - _least_likely(np.array(parts), rounds))
    return best


def _least_likely(n: IntArray, rounds: GRRRounds) -> float:
    """Returns the least Σ f_v for these reports."""
    used, shape = len(n), tuple(int(x) + 1 for x in n)
    states = np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), axis=1)
    unused = rounds.k - used
    turn = np.arange(min(unused, int(n.max())))[:, None, None]
    free = -((turn - states) // max(unused, 1))
    cost = np.where(states.any(axis=1) & (unused == 0), np.inf, rounds.row(free).sum(axis=0))
    place = np.array([math.prod(shape[symbol + 1 :]) for symbol in range(used)])
    below = np.asarray((states[:, None, :] >= states[None, :, :]).all(axis=2))
    rest = np.where(below, (states @ place)[:, None] - (states @ place)[None, :], 0)
    for symbol in range(used):
        cost = np.where(below, cost[rest] + rounds.row(states, symbol)[None, :], np.inf).min(axis=1)
    return float(cost[-1])
