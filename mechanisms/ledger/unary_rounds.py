"""A round of a unary encoding."""

from __future__ import annotations

import math
from dataclasses import dataclass


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
