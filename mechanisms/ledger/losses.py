"""Privacy loss of t reports of one device, for an unchanged value.

For memoizing mechanisms there are two losses, both in nats and both worst cases over outputs:

    eps_t         t reports of a value that did not change; ε₁ at t = 1, rises to ε∞
    eps_sequence  any two value sequences

Memoization does not hide *when* a value changed.
"""

import math

from ldpstream.mechanisms.arguments import MAX_COUNT, MAX_EPS, MAX_K, integer, log1mexp, logaddexp, real
from ldpstream.mechanisms.ledger.sequence_grr import MAX_LOG_RATIO, TINY
from ldpstream.mechanisms.ledger.unary_rounds import Round


def eps_t_grr(t: int, *, k: int, log_e1: float, log_e2: float) -> float:
    """Privacy loss of t reports of GRR∘GRR if the value did not change, in nats; for L-LH with k := g.

        ε_t = ln[(E₁ E^t + k-1) / (E^t + E₁ + k-2)],   E₁ = p₁/q₁ = e^{ε∞},   E = p₂/q₂ = e^{ε₂}

    Args:
        t: number of reports, in [1, 2^62].
        k: number of symbols, in [2, 2^31).
        log_e1: ε∞ = ln(p₁/q₁), in (0, 700] nats.
        log_e2: ε₂ = ln(p₂/q₂), in (0, 2100] nats.

    Returns:
        The exact maximum over all pairs of values and all outputs: ε₁ at t = 1, ε∞ in the limit.

    Raises:
        ValueError: if an argument is outside its range.

    Derivation: the memo's posterior depends on the counts n_m of the reported symbols, and P(y|v)/P(y|v') = (Σ_m E^{n_m} +
    (E₁-1) E^{n_v}) / (Σ_m E^{n_m} + (E₁-1) E^{n_v'}). The ratio rises with E^{n_v} and falls with every other term, so at the
    maximum all t reports are v. Equation 16 of ALLOMFREE uses ε₁ instead of ε₂ and 2 instead of k, which understates the loss.

    >>> [round(eps_t_grr(t, k=4, log_e1=2.0, log_e2=1.5731722), 4) for t in (1, 2, 3)]  # ε₁ = 1
    [1.0, 1.6781, 1.9232]
    """
    reports = integer("t", t, 1, MAX_COUNT)
    symbols = integer("k", k, 2, MAX_K)
    first, second = real("log_e1", log_e1, TINY, MAX_EPS), real("log_e2", log_e2, TINY, MAX_LOG_RATIO)
    # E₁E^t + k-1 exceeds the denominator by (E₁-1)(E^t-1)
    excess = first + log1mexp(first) + log1mexp(reports * second)
    others = logaddexp(first + log1mexp(first), math.log(symbols - 1))  # ln(E₁+k-2)
    return logaddexp(0.0, excess - logaddexp(0.0, others - reports * second))


def eps_t_unary(t: int, *, first: Round, second: Round) -> float:
    """Privacy loss of t reports of UE∘UE if the value did not change, in nats.

        ε_t = ln[(p₁r + 1-p₁) / (q₁r + 1-q₁)] + ln[((1-q₁)s + q₁) / ((1-p₁)s + p₁)],
        r = (p₂/q₂)^t,   s = ((1-q₂)/(1-p₂))^t

    Args:
        t: number of reports, in [1, 2^62].
        first, second: the rounds that give the memo's bits, and a report's bits from the memo's.

    Returns:
        The exact maximum over all pairs of values and all outputs: ε₁ at t = 1, ε∞ in the limit.

    Raises:
        ValueError: if t is outside its range.

    Derivation: only the bits of the two values differ in distribution, and the memos of these bits are independent.

    >>> from ldpstream.mechanisms.ledger import Round
    >>> first, second = Round(0.5, 0.5, 0.1192029, 0.8807971), Round(0.8033881, 0.1966119, 0.1966119, 0.8033881)
    >>> [round(eps_t_unary(t, first=first, second=second), 4) for t in (1, 2, 3, 5)]  # L-OSUE, ε∞ = 2, ε₁ = 1
    [1.0, 1.6417, 1.8992, 1.9937]
    """
    reports = integer("t", t, 1, MAX_COUNT)
    ones, zeros = reports * second.alpha, reports * second.beta
    p, not_p, q, not_q = (math.log(x) for x in (first.p, first.not_p, first.q, first.not_q))
    apart = p + log1mexp(first.alpha)  # ln(p₁-q₁)
    own = apart + log1mexp(ones) - logaddexp(q, not_q - ones)
    other = apart + log1mexp(zeros) - logaddexp(not_p, p - zeros)
    return logaddexp(0.0, own) + logaddexp(0.0, other)
