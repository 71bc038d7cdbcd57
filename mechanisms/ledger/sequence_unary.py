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

One report reaches the bound. For 100 bits and up to six reports it exceeds the exact loss by 8 % at most, and for few bits by a
factor of 4.
"""

import math

from ldpstream.mechanisms.arguments import MAX_K, FloatArray, integer
from ldpstream.mechanisms.arrays import np
from ldpstream.mechanisms.ledger.losses import eps_t_unary
from ldpstream.mechanisms.ledger.sequence_loss import MAX_T, SequenceLoss
from ldpstream.mechanisms.ledger.unary_rounds import Round

MOST_REPORTS = 2**16  # for more reports, the bound is that of the second round alone


def eps_sequence_unary(t: int, *, k: int, first: Round, second: Round) -> SequenceLoss:
    """Loss of t reports of UE∘UE on k bits between any two value sequences, in nats: exact for t = 1, else an upper bound.

    Args:
        t: number of reports, in [1, 2^50].
        k: number of bits, in [2, 2^31).
        first, second: as in `eps_t_unary`.

    Raises:
        ValueError: if an argument is outside its range.
    """
    alpha, beta, blocks = second.alpha, second.beta, min(integer("t", t, 1, MAX_T), integer("k", k, 2, MAX_K))
    alone = t * k * max(alpha, beta)  # given all earlier reports, a bit is 1 with a probability in [q₂, p₂]
    if t > MOST_REPORTS:
        return SequenceLoss(alone, exact=False)
    ones, zeros = alpha * np.arange(t + 1.0), beta * np.arange(float(t), -1.0, -1.0)
    bits = _u(first, ones) + _u(first, -zeros) - blocks * _u(first, (ones - zeros) / blocks)
    of_values = blocks * eps_t_unary(t, first=first, second=second)
    return SequenceLoss(min(alone, of_values + k * float(bits.max())), exact=t == 1)


def _u(first: Round, w: FloatArray) -> FloatArray:
    """u₀(w), elementwise."""
    near = np.log1p(first.q * np.expm1(np.clip(w, -1.0, 1.0)))
    return np.where(np.abs(w) < 1, near, np.logaddexp(math.log(first.q) + w, math.log(first.not_q)))
