"""Terms of a log-likelihood: concave functions of the frequencies, each for the reports of one mechanism.

A term is L(f) = Σ_z c_z ln γ_z. c_z is the number of times that reports have outcome z. γ_z is the probability of z under f,
and is linear in f. Therefore

    Σ_v f_v ∂L/∂f_v = Σ_z c_z    for every f     (1)

A step of expectation maximisation (EM) is f ← f ∂L/∂f, normalised. L is concave, so every distribution f' has
L(f') <= L(f) + max_v ∂L/∂f_v - Σ c. The last two terms are the duality gap.

A group of reports with a channel A of shape (k, outputs) has

    L(f) = Σ_z c_z ln m_z,   m = Aᵀ f        gradient A (c/m)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Protocol

from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.mechanisms.arrays import np, npt

TINY = 1e-130  # smallest probability of a support; a count divided by TINY² does not overflow
FLOOR = 1e-140  # smallest m in the gradient of a channel, so that c/m cannot overflow


class Term(Protocol):
    """The log-likelihood of one group's reports, as a function of the frequencies.

    Attributes:
        k: domain size.
    """

    k: int
    n: int

    def __call__(self, f: FloatArray) -> tuple[float, FloatArray]:
        """Returns L(f) in nats and its gradient (k,), for all f >= 0."""


class SupportTerm:
    """Σ_v c_v ln γ_v with γ = q Σf + (p-q) f, for the support counts c.

    This term is the true log-likelihood for GRR, L-GRR and the mechanisms of sets, with one report of each person. For unary
    encodings, subsets and local hashing this term is the papers' pseudo-likelihood.

    Attributes:
        support: (k,) the counts c.
        q: probability that a report supports a given value that is not the person's; at least the smallest normal double.
        slope: p - q, at least 0.
    """

    def __init__(self, support: IntArray, n: int, p: float, q: float) -> None:
        self.k, self.n = support.size, n
        self.support = support.astype(np.float64)
        self.q, self.slope = max(q, float(np.finfo(np.float64).tiny)), max(p - q, 0.0)

    def __call__(self, f: FloatArray) -> tuple[float, FloatArray]:
        gamma = np.maximum(self.q * f.sum() + self.slope * f, TINY)
        r = self.support / gamma
        return float((self.support * np.log(gamma)).sum()), self.q * r.sum() + self.slope * r


class ChannelTerm(ABC):
    """Log-likelihood of the counts of a channel's outputs.

    A subclass computes the products with the channel, and may scale each column of the channel; `offset` corrects L for the
    scaling.

    Args:
        k: domain size.
        counts: (outputs,) number of reports of each output, at least 0.
        offset: constant added to Σ c ln m to give L, in nats.

    Attributes:
        n: number of reports, Σ c.
    """

    def __init__(self, k: int, counts: npt.NDArray[np.integer], offset: float = 0.0) -> None:
        self.k = k
        self.n = int(counts.sum())
        self._counts = counts.astype(np.float64)
        self._offset = offset

    @abstractmethod
    def _forward(self, f: FloatArray) -> FloatArray:
        """Returns Aᵀ f, linear in f: from (k,) to (outputs,)."""

    @abstractmethod
    def _adjoint(self, x: FloatArray) -> FloatArray:
        """Returns A x: from (outputs,) to (k,)."""

    def __call__(self, f: FloatArray) -> tuple[float, FloatArray]:
        """Returns L(f) in nats and its gradient, (k,).

        L is -inf if f makes a received report impossible. The gradient uses 1e-140 in place of a smaller m.
        """
        m = self._forward(f)
        gradient = self._adjoint(self._counts / np.maximum(m, FLOOR))
        never = m <= 0
        if (self._counts[never] > 0).any():
            return -math.inf, gradient
        m[never] = 1.0
        return float(self._counts @ np.log(m)) + self._offset, gradient


class FakeDataTerm:
    """A term under fake data: a device encodes its true value with probability 1/d, else a uniform value.

    L(f) = term((f + (d-1)/k Σf) / d)
    """

    def __init__(self, term: ChannelTerm, d: int) -> None:
        self.k, self.n = term.k, term.n
        self._term, self._d = term, d

    def __call__(self, f: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = self._term(self._mixed(f))
        return value, self._mixed(gradient)

    def _mixed(self, f: FloatArray) -> FloatArray:
        return np.asarray((f + (self._d - 1) / self.k * f.sum()) / self._d)
