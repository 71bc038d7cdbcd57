"""The rounds of unary encodings."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.arrays import np, npt


@dataclass(frozen=True, slots=True)
class Round:
    """Pr[one | one], Pr[zero | one], Pr[one | zero], Pr[zero | zero] of one bit."""

    p: float
    not_p: float
    q: float
    not_q: float

    def then(self, second: Round) -> Round:
        return Round(
            self.p * second.p + self.not_p * second.q,
            self.p * second.not_p + self.not_p * second.not_q,
            self.q * second.p + self.not_q * second.q,
            self.q * second.not_p + self.not_q * second.not_q,
        )

    @property
    def alpha(self) -> float:
        """α = ln(p/q), in nats: the loss about the bit from a one."""
        return math.log(self.p) - math.log(self.q)

    @property
    def beta(self) -> float:
        """β = ln((1-q)/(1-p)), in nats: the loss about the bit from a zero."""
        return math.log(self.not_q) - math.log(self.not_p)

    def eps(self) -> float:
        """Privacy loss between two different values, in nats: the sum of the worst losses of the two bits that differ."""
        return self.alpha + self.beta


@dataclass(frozen=True, slots=True)
class UnaryRounds:
    """Both rounds of a memoized unary encoding: `first` gives the memo's bits, `second` a report's bits from the memo's.

    Raises:
        ValueError: if a probability is not in (0, 1], if the probabilities of a pair do not sum to 1, or if q >= p.
    """

    first: Round
    second: Round

    def __post_init__(self) -> None:
        for r in (self.first, self.second):
            inside = all(0 < x <= 1 for x in (r.p, r.not_p, r.q, r.not_q))
            if not inside or max(abs(r.p + r.not_p - 1), abs(r.q + r.not_q - 1)) > 1e-9 or r.eps() <= 0:
                raise ValueError(f"a round must have q < p and pairs of probabilities in (0, 1] with the sum 1, got {r!r}")

    def u(self, hot: int, w: npt.ArrayLike) -> FloatArray:
        """u_h(w) of `sequence_unary`, elementwise."""
        one, zero = (self.first.p, self.first.not_p) if hot else (self.first.q, self.first.not_q)
        w = np.asarray(w, np.float64)
        near = np.log1p(one * np.expm1(np.clip(w, -1.0, 1.0)))
        return np.where(np.abs(w) < 1, near, np.logaddexp(math.log(one) + w, math.log(zero)))

    def weight(self, ones: npt.ArrayLike, zeros: npt.ArrayLike) -> FloatArray:
        """w = αa - βb, elementwise."""
        return self.second.alpha * np.asarray(ones, np.float64) - self.second.beta * np.asarray(zeros, np.float64)
