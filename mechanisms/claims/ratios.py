"""Exact likelihood ratios of the numbers of reports that support two values, for audits.

Of t reports of an unchanged value, i support a and j support b, two different values. The audit's tests between a and b use (i,
j):

    unary encodings   the bits are independent given the value, so all bits but those of a and b cancel:
                      L(i, j) = l(i) - l(j),  l(c) = ln Pr[c ones | the value's bit] - ln Pr[c ones | another bit]
    GRR, L-GRR,       s symbols (k, or g for hashing): the memo is a, b or one of the s-2 other symbols, so Pr[i, j | a] is a
    L-BLH, L-OLH      sum of three trinomial terms
    L-SS              given which of a and b are in the memo, the reports are independent, and contain a, b, both or neither
                      with four fixed chances
    BLH, OLH, SS, SW  L(i, j) = ε (i - j): a report that supports the value is e^ε times as likely as another report

A round is written (p₁, q₁), and a chain of two rounds (p₁, q₁, p₂, q₂).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.arrays import np
from ldpstream.mechanisms.ledger.sequence_loss import partitions
from ldpstream.mechanisms.ledger.subset import SubsetRounds, loss_of_counts

Chain = tuple[float, float, float, float]


class Ratios(ABC):
    """The likelihood ratios of the numbers of supporting reports, for an unchanged value."""

    @abstractmethod
    def table(self, t: int) -> FloatArray:
        """Returns ln Pr[i, j | a] - ln Pr[i, j | b] of t reports, (t+1, t+1); some finite number if (i, j) is impossible."""

    def loss(self, t: int) -> float:
        """Returns the largest |ln ratio| between two values for t reports of an unchanged value, in nats."""
        return float(self.table(t).max())


@dataclass(frozen=True, slots=True)
class BitRatios(Ratios):
    """Ratios of independent bits."""

    chain: Chain

    def table(self, t: int) -> FloatArray:
        p1, q1, p2, q2 = self.chain
        c = np.arange(t + 1)
        ones, zeros = p2**c * (1 - p2) ** (t - c), q2**c * (1 - q2) ** (t - c)
        bit = np.log(p1 * ones + (1 - p1) * zeros) - np.log(q1 * ones + (1 - q1) * zeros)
        return np.asarray(bit[:, None] - bit)


@dataclass(frozen=True, slots=True)
class SymbolRatios(Ratios):
    """Ratios of symbols 0 … n_symbols - 1."""

    n_symbols: int
    chain: Chain

    def table(self, t: int) -> FloatArray:
        p1, q1, p2, q2 = self.chain
        others = self.n_symbols - 2
        i, j = np.meshgrid(np.arange(t + 1), np.arange(t + 1), indexing="ij")
        rest = np.maximum(t - i - j, 0)
        memo_a, memo_b = (p2**x * q2**y * (others * q2) ** rest for x, y in ((i, j), (j, i)))
        memo_other = others * q2 ** (i + j) * (p2 + max(others - 1, 0) * q2) ** rest
        of_a, of_b = p1 * memo_a + q1 * (memo_b + memo_other), p1 * memo_b + q1 * (memo_a + memo_other)
        possible = (i + j <= t) & (of_a > 0)
        log_a, log_b = (np.log(x, where=possible, out=np.zeros(i.shape)) for x in (of_a, of_b))
        return np.asarray(log_a - log_b)

    def loss(self, t: int) -> float:
        p1, q1, p2, q2 = self.chain
        gain = math.log(p2) - math.log(q2)
        worst = 0.0
        for i in range(t + 1):
            for j in range(t - i + 1):
                for others in partitions(t - i - j, self.n_symbols - 2):
                    unseen = self.n_symbols - 2 - len(others)
                    rest = q1 * (sum(math.exp(c * gain) for c in others) + unseen)
                    high, low = math.exp(i * gain), math.exp(j * gain)
                    worst = max(worst, math.log((p1 * high + q1 * low + rest) / (p1 * low + q1 * high + rest)))
        return worst


@dataclass(frozen=True, slots=True)
class GainRatios(Ratios):
    """Ratios of a one-time mechanism whose report is `gain` times as likely if it supports the value."""

    gain: float

    def table(self, t: int) -> FloatArray:
        once = np.arange(t + 1) * math.log(self.gain)
        return np.asarray(once[:, None] - once)


@dataclass(frozen=True, slots=True)
class OverlapRatios(Ratios):
    """Ratios of L-SS."""

    rounds: SubsetRounds

    def table(self, t: int) -> FloatArray:
        k, m, w = self.rounds.k, self.rounds.m, self.rounds.w
        j = np.arange(self.rounds.overlaps.size)
        shares = [(j / m, (j - 1) / max(m - 1, 1)), ((w - j) / (k - m), (w - j - 1) / max(k - m - 1, 1))]
        with_value, without = (math.exp(x) for x in self.rounds.memo_chances)
        of_a, of_b = np.zeros((t + 1, t + 1)), np.zeros((t + 1, t + 1))
        for a_in, b_in in ((True, True), (True, False), (False, True), (False, False)):
            first, second = shares[not a_in], shares[not b_in]
            both = self.rounds.overlaps @ (first[0] * (second[1] if a_in == b_in else second[0]))
            one, other = self.rounds.overlaps @ first[0], self.rounds.overlaps @ second[0]
            once = np.array([[1 - one - other + both, other - both], [one - both, both]])
            counts = np.ones((1, 1))
            for n in range(1, t + 1):
                more = np.zeros((n + 1, n + 1))
                for i, k_ in ((0, 0), (0, 1), (1, 0), (1, 1)):
                    more[i : i + n, k_ : k_ + n] += once[i, k_] * counts
                counts = more
            ways = math.comb(k - 2, m - a_in - b_in) if m >= a_in + b_in else 0
            of_a += ways * (with_value if a_in else without) * counts
            of_b += ways * (with_value if b_in else without) * counts
        possible = (of_a > 0) & (of_b > 0)
        log_a, log_b = (np.log(x, where=possible, out=np.zeros(x.shape)) for x in (of_a, of_b))
        return np.asarray(log_a - log_b)

    def loss(self, t: int) -> float:
        worst = 0.0
        k, total = self.rounds.k, t * self.rounds.w
        for a in range(t + 1):
            for b in range(a + 1):
                others = [x + (0,) * (k - 2 - len(x)) for x in partitions(total - a - b, k - 2, t)] if total >= a + b else []
                if others:
                    worst = max(worst, float(loss_of_counts(self.rounds, a, b, np.array(others, np.int64)).max()))
        return worst
