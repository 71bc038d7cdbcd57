"""Privacy loss of reports between any two value sequences, for memos of bits: L-SUE, L-OSUE, L-SOUE and L-OUE.

Consider one bit position in the t reports. A sequence x divides the t steps into blocks, one block for each distinct value. A
block in which this bit is `a` times one and `b` times zero has the weight w = αa - βb, with α = ln(p₂/q₂) and
β = ln((1-q₂)/(1-p₂)). Without a term that does not depend on x, and cancels,

    ln P(y|x) = Σ_bits Σ_blocks u_h(w),   u_h(w) = ln(1 - π_h + π_h e^w),   π₁ = p₁,   π₀ = q₁

where h = 1 if the bit is the block's value, else h = 0. u_h is convex with u_h(0) = 0, so it adds up at most to one block for
all ones and one block for all zeros, and at least (Jensen) to as many equal blocks as possible, B = min(t, k):

    B u₀((αa - βb) / B) <= Σ_blocks u₀(w) <= u₀(αa) + u₀(-βb)      for a bit that is `a` times one and `b` times zero

u₁ - u₀ rises from -βt to αt, and each of x and x' has at most B blocks, each with one bit that is the block's value. The
difference of u₁ - u₀ between αt and -βt is ε_t. So for two sequences

    eps_sequence(t) <= B ε_t + k max_a [u₀(αa) + u₀(-β(t-a)) - B u₀((αa - β(t-a)) / B)]

For few reports the loss is exact: the maximum over all overlaps of the blocks of x and x', with the best reports of every bit
for every pair of blocks whose value it can be. A further report adds at most k max(α, β): given all earlier reports, a bit is 1
with a probability in [q₂, p₂].
"""

import math
from functools import cache, lru_cache

from ldpstream.mechanisms.arguments import MAX_K, FloatArray, integer
from ldpstream.mechanisms.arrays import np
from ldpstream.mechanisms.ledger.losses import eps_t_unary
from ldpstream.mechanisms.ledger.sequence_loss import MAX_T, SequenceLoss
from ldpstream.mechanisms.ledger.unary_rounds import Round

MOST_REPORTS = 2**16  # for more reports, the bound is that of the second round alone
MOST_EXACT = 6  # the largest number of reports with an exact loss


def eps_sequence_unary(t: int, *, k: int, first: Round, second: Round) -> SequenceLoss:
    """Loss of t reports of UE∘UE on k bits between any two value sequences, in nats.

    The result is exact for t <= 6, else a proven upper bound.

    Args:
        t: number of reports, in [1, 2^50].
        k: number of bits, in [2, 2^31).
        first, second: as in `eps_t_unary`.

    Raises:
        ValueError: if an argument is outside its range.
    """
    alpha, beta, blocks = second.alpha, second.beta, min(integer("t", t, 1, MAX_T), integer("k", k, 2, MAX_K))
    known = min(t, MOST_EXACT) if t <= 2 * MOST_EXACT else 0  # exact for the first reports, if it helps
    further = (t - known) * k * max(alpha, beta) + (_exact(known, k, first, second) if known else 0)
    if t == known or t > MOST_REPORTS:
        return SequenceLoss(further, exact=t == known)
    ones, zeros = alpha * np.arange(t + 1.0), beta * np.arange(float(t), -1.0, -1.0)
    bits = _u(0, ones, first) + _u(0, -zeros, first) - blocks * _u(0, (ones - zeros) / blocks, first)
    of_values = blocks * eps_t_unary(t, first=first, second=second)
    return SequenceLoss(min(further, of_values + k * float(bits.max())), exact=False)


@lru_cache(maxsize=4096)
def _exact(t: int, k: int, first: Round, second: Round) -> float:
    from scipy.optimize import linear_sum_assignment  # slow to load; a device needs it only for `spent`

    best = 0.0
    for overlap in _overlaps(t, min(t, k)):
        steps = np.array(overlap)[:, :, None]  # (blocks of x, blocks of x', 1)
        ones = np.indices([n + 1 for n in steps.ravel()]).reshape(*steps.shape[:2], -1)  # all reports of one bit
        weights = [second.alpha * ones.sum(axis=i) - second.beta * (steps - ones).sum(axis=i) for i in (1, 0)]
        cold = [_u(0, w, first) for w in weights]
        gain, named = cold[0].sum(axis=0) - cold[1].sum(axis=0), min(k, sum(steps.shape[:2]))
        hot = [_u(1, w, first) - low for w, low in zip(weights, cold, strict=True)]
        of_x, of_other = np.zeros((2, named, gain.size))
        of_x[: len(hot[0])], of_other[: len(hot[1])] = hot
        losses = (gain + of_x[:, None] - of_other).max(axis=2)  # a bit is the value of at most one block of x, and one of x'
        best = max(best, float(losses[linear_sum_assignment(losses, maximize=True)].sum() + (k - named) * gain.max()))
    return best


@cache
def _overlaps(t: int, most: int) -> frozenset[tuple[tuple[int, ...], ...]]:
    """The numbers of steps that the blocks of x and x' have in common, each table at least once up to the order of blocks."""
    found = set()
    for table in _overlaps(t - 1, most) if t > 1 else [((),)]:
        wider = np.pad(np.array(table, np.int64), (0, 1))
        for cell in np.ndindex(wider.shape):
            more = wider.copy()
            more[cell] += 1
            more = more[more.any(axis=1)][:, more.any(axis=0)]
            if max(more.shape) <= most:
                rows = [tuple(row) for row in more.tolist()]
                for _ in range(6):  # an even number: transposed and sorted, so that most orders of the blocks give one table
                    rows = sorted(zip(*rows), key=lambda row: (sorted(row), row))
                found.add(tuple(rows))
    return frozenset(found)


def _u(hot: int, w: FloatArray, first: Round) -> FloatArray:
    """u_h(w), elementwise."""
    one, zero = (first.p, first.not_p) if hot else (first.q, first.not_q)
    near = np.log1p(one * np.expm1(np.clip(w, -1.0, 1.0)))
    return np.where(np.abs(w) < 1, near, np.logaddexp(math.log(one) + w, math.log(zero)))
