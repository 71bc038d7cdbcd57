"""Terms of a log-likelihood. A term is the log-likelihood of one mechanism's reports, a concave function of the frequencies.

A term is L(f) = Σ_z c_z ln γ_z. c_z is the number of reports with outcome z. γ_z is the probability of z under f, and is
linear in f. Therefore

    Σ_v f_v ∂L/∂f_v = Σ_z c_z    for every f     (1)

A step of expectation maximisation (EM) is f ← f ∂L/∂f, normalised. L is concave, so every distribution f' has L(f') <= L(f) +
max_v ∂L/∂f_v - Σ c. The duality gap max_v ∂L/∂f_v - Σ c is therefore an upper bound of the distance of L(f) from the maximum.
"""

from typing import Protocol

import numpy as np

from ldpstream.mechanisms import CountTable, Mechanism
from ldpstream.mechanisms.arguments import FloatArray

TINY = 1e-130  # smallest probability; a count divided by TINY² does not overflow


class Term(Protocol):
    """The log-likelihood of one group's reports, as a function of the frequencies.

    Attributes:
        k: domain size.
        n: number of reports; L / n is the normalised log-likelihood.
    """

    k: int
    n: int

    def __call__(self, f: FloatArray) -> tuple[float, FloatArray]:
        """Returns L(f) in nats and its gradient (k,), for all f >= 0. Equation (1) holds even if Σ f is not 1."""

    def curvature(self, f: FloatArray, direction: FloatArray) -> FloatArray:
        """Returns minus the Hessian at f, times a direction, (k,)."""


class SupportTerm:
    """Σ_v c_v ln γ_v with γ = q Σf + (p-q) f, for the support counts c. O(k).

    This term is the true log-likelihood for GRR and L-GRR. For unary encodings, subsets and local hashing this term is the
    papers' pseudo-likelihood, which treats every support as a separate report.

    Attributes:
        support: (k,) the counts c.
        q: probability that a report supports a given value that is not the person's; at least the smallest normal double.
        slope: p - q, at least 0.
    """

    def __init__(self, m: Mechanism, table: CountTable) -> None:
        self.k, self.n = m.k, table.n
        self.support = m.support(table).astype(np.float64)
        self.q, self.slope = max(m.q, float(np.finfo(np.float64).tiny)), max(m.p - m.q, 0.0)

    def _gamma(self, f: FloatArray) -> FloatArray:
        return np.asarray(np.maximum(self.q * f.sum() + self.slope * f, TINY))

    def __call__(self, f: FloatArray) -> tuple[float, FloatArray]:
        gamma = self._gamma(f)
        r = self.support / gamma
        return float((self.support * np.log(gamma)).sum()), self.q * r.sum() + self.slope * r

    def curvature(self, f: FloatArray, direction: FloatArray) -> FloatArray:
        r = self.support / self._gamma(f) ** 2 * (self.q * direction.sum() + self.slope * direction)
        return np.asarray(self.q * r.sum() + self.slope * r)
