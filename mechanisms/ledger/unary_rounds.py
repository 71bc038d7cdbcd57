"""The two rounds of a memoized unary encoding, in logarithms."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms.arguments import FloatArray


@dataclass(frozen=True, slots=True)
class UnaryRounds:
    """Both rounds of a memoized unary encoding, as natural logarithms.

    Attributes:
        log_p1, log_not_p1: ln p₁ and ln(1-p₁), p₁ = Pr[memo bit is 1 | the bit is 1].
        log_q1, log_not_q1: ln q₁ and ln(1-q₁), q₁ = Pr[memo bit is 1 | the bit is 0] < p₁.
        log_p2, log_not_p2: ln p₂ and ln(1-p₂), p₂ = Pr[report bit is 1 | memo bit is 1].
        log_q2, log_not_q2: ln q₂ and ln(1-q₂), q₂ = Pr[report bit is 1 | memo bit is 0] < p₂.

    Raises:
        ValueError: if a logarithm is positive or infinite, if the probabilities of a pair do not sum to 1, or if q >= p.
    """

    log_p1: float
    log_not_p1: float
    log_q1: float
    log_not_q1: float
    log_p2: float
    log_not_p2: float
    log_q2: float
    log_not_q2: float

    def __post_init__(self) -> None:
        for name in ("p1", "q1", "p2", "q2"):
            pair = getattr(self, f"log_{name}"), getattr(self, f"log_not_{name}")
            inside = all(math.isfinite(x) and x <= 0 for x in pair)
            if not inside or abs(math.exp(pair[0]) + math.exp(pair[1]) - 1) > 1e-9:
                raise ValueError(f"log_{name} and log_not_{name} must be the logarithms of x and 1-x, got {pair!r}")
        for p, q in (("p1", "q1"), ("p2", "q2")):
            if self.odds(p) <= self.odds(q):
                raise ValueError(f"{q} must be less than {p}, got {self!r}")

    def odds(self, name: str) -> float:
        """ln(x/(1-x)) for x = p1, q1, p2 or q2."""
        return float(getattr(self, f"log_{name}") - getattr(self, f"log_not_{name}"))

    @property
    def alpha(self) -> float:
        """α = ln(p₂/q₂), in nats: the loss about the memo's bit from a reported bit 1."""
        return self.log_p2 - self.log_q2

    @property
    def beta(self) -> float:
        """β = ln((1-q₂)/(1-p₂)), in nats: the loss about the memo's bit from a reported bit 0."""
        return self.log_not_q2 - self.log_not_p2

    def u(self, hot: int, w: npt.ArrayLike) -> FloatArray:
        """u_h(w) of `sequence_unary`, elementwise."""
        one, zero = (self.log_p1, self.log_not_p1) if hot else (self.log_q1, self.log_not_q1)
        w = np.asarray(w, np.float64)
        near = np.log1p(math.exp(one) * np.expm1(np.clip(w, -1.0, 1.0)))
        return np.where(np.abs(w) < 1, near, np.logaddexp(one + w, zero))

    def weight(self, ones: npt.ArrayLike, zeros: npt.ArrayLike) -> FloatArray:
        """w = αa - βb, elementwise."""
        return self.alpha * np.asarray(ones, np.float64) - self.beta * np.asarray(zeros, np.float64)
