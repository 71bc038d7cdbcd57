"""Privacy loss of reports between any two value sequences, for memos of bits: L-SUE, L-OSUE, L-SOUE and L-OUE.

Consider one bit position in the t reports. A sequence x divides the t steps into blocks, one block for each distinct value. A
block in which this bit is `a` times one and `b` times zero has the weight w = αa - βb, with α = ln(p₂/q₂) and
β = ln((1-q₂)/(1-p₂)). Without a term that does not depend on x, and cancels,

    ln P(y|x) = Σ_bits Σ_blocks u_h(w),   u_h(w) = ln(1 - π_h + π_h e^w),   π₁ = p₁,   π₀ = q₁

where h = 1 if the bit is the block's value (a *hot* bit, one for each block), else h = 0. u_h is convex, u_h(0) = 0 and
u_h(αa - βb) <= u_h(αa) + u_h(-βb).

1. For small t the loss is exact: the maximum over all pairs of partitions of the steps, and all reported bits.
2. For larger t the loss is at most the exact loss of the first T reports plus (t-T) k max(α, β). Given the first T reports, a
   further report's bit is 1 with a probability in [q₂, p₂], whatever the values are. One bit therefore loses at most max(α, β).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import permutations

from ldpstream.mechanisms.arguments import MAX_K, FloatArray, IntArray, integer
from ldpstream.mechanisms.arrays import np
from ldpstream.mechanisms.ledger.sequence_loss import MAX_T, SequenceLoss, partitions
from ldpstream.mechanisms.ledger.unary_rounds import UnaryRounds

_EXACT_T = {2: 12, 3: 8, 4: 7}  # maps the number of bits k to the largest t with an exact loss
_EXACT_T_OTHERS = 6


def eps_sequence_unary(t: int, *, k: int, rounds: UnaryRounds) -> SequenceLoss:
    """Loss of t reports of UE∘UE on k bits between any two value sequences, in nats.

    The result is exact for t <= 6 (k = 2: 12, k = 3: 8, k = 4: 7). Otherwise the result is a proven upper bound.

    Args:
        t: number of reports, in [1, 2^50].
        k: number of bits, in [2, 2^31).
        rounds: the probabilities of both rounds.

    Raises:
        ValueError: if an argument is outside its range.
    """
    return _loss(integer("t", t, 1, MAX_T), integer("k", k, 2, MAX_K), rounds)


@lru_cache(maxsize=4096)
def _loss(t: int, k: int, rounds: UnaryRounds) -> SequenceLoss:
    first = min(t, _EXACT_T.get(k, _EXACT_T_OTHERS))
    rest = (t - first) * k * max(rounds.second.alpha, rounds.second.beta)
    return SequenceLoss(_worst(first, k, rounds) + rest, exact=t == first)


# ---- pairs of sequences


@dataclass(frozen=True)
class _Pair:
    """(blocks of x, blocks of x') numbers of steps, and all numbers of ones that these steps can report: (reports, …)."""

    steps: IntArray
    ones: IntArray


def _worst(t: int, k: int, rounds: UnaryRounds) -> float:
    """The exact loss of t reports."""
    loss = -math.inf
    for pair in _pairs(t, min(t, k)):
        loss = max(loss, _pair_loss(pair, k, rounds, loss))
    return loss


def _pair_loss(pair: _Pair, k: int, rounds: UnaryRounds, known: float) -> float:
    """If the loss is not above `known`, the result may be any number from the loss to `known`."""
    left = rounds.weight(ones := pair.ones.sum(axis=2), pair.steps.sum(axis=1) - ones)
    right = rounds.weight(ones := pair.ones.sum(axis=1), pair.steps.sum(axis=0) - ones)
    cold_left, cold_right = rounds.u(0, left), rounds.u(0, right)
    gain = cold_left.sum(axis=1) - cold_right.sum(axis=1)
    more = rounds.u(1, left) - cold_left
    less = rounds.u(1, right) - cold_right
    cold = gain.max()
    hot_left = (gain[:, None] + more).max(axis=0)
    hot_right = (gain[:, None] - less).max(axis=0)
    hot_both = (gain[:, None, None] + more[:, :, None] - less[:, None, :]).max(axis=0)
    blocks, others = pair.steps.shape
    own = min(blocks, k - others)  # blocks of x that can have a value of no block of x'
    profit = np.append(hot_both - hot_right, (hot_left - cold)[:, None], axis=1)
    rest, partner = float(hot_right.sum() + (k - others) * cold), profit.argmax(axis=1)
    loss = rest + float(profit.max(axis=1).sum())
    if loss > known and (np.bincount(partner, minlength=others + 1) > [*[1] * others, own]).any():
        loss = rest + _best_total(profit, own)
    return loss


def _best_total(profit: FloatArray, own: int) -> float:
    """The largest total profit of partners for all blocks. The last kind has `own` partners, each other kind one."""
    sets = np.arange(2 ** len(profit))[:, None]
    without = sets & ~(2 ** np.arange(len(profit)))
    best, last = np.where(sets[:, 0] == 0, 0.0, -np.inf), profit.shape[1] - 1
    for kind in [*range(last), *[last] * own]:
        offers = np.where(without < sets, best[without] + profit[:, kind], -np.inf)
        best = np.maximum(offers.max(axis=1), best)
    return float(best[-1])


def _fillings(steps: IntArray) -> IntArray:
    grid = np.indices(tuple(steps.ravel() + 1)).reshape(steps.size, -1)
    return np.moveaxis(grid.reshape(*steps.shape, -1), -1, 0)


@cache
def _pairs(t: int, most: int) -> tuple[_Pair, ...]:
    found, same = {}, dict[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]()  # `same`: one name of each equal pair
    for sizes in partitions(t, most):
        x = np.repeat(np.arange(len(sizes)), sizes)
        for other in _growing(t, most):
            steps = np.zeros((len(sizes), max(other) + 1), np.int64)
            np.add.at(steps, (x, np.array(other)), 1)
            rows = steps.tolist()
            if (name := tuple(sorted(zip(*rows)))) not in same:
                orders = permutations(rows) if len(set(sizes)) < len(sizes) else [rows]
                names = [tuple(sorted(zip(*order))) for order in orders]
                same |= dict.fromkeys(names, min(names))
            found[same[name]] = steps
    return tuple(_Pair(s, _fillings(s)) for s in found.values())


def _growing(t: int, most: int) -> Iterator[tuple[int, ...]]:
    if t == 0:
        yield ()
        return
    for start in _growing(t - 1, most):
        for value in range(min(max(start, default=-1) + 2, most)):
            yield (*start, value)
