"""Upper bounds of the chance of a right guess, from evidence between two values.

The code replaces the reports by **evidence** that reveals at least as much: n independent rounds. If v is true, a round
multiplies the odds of v against v' by e^ε with probability h, by e^{-ε} with probability h e^{-ε}, and else by 1. Reports with
a loss of at most ε and a total variation distance δ reveal at most as much as a round with h = δ / (1 - e^{-ε}).

Source: Kairouz, Oh and Viswanath 2015 (a round with h = 1/(1+e^{-ε}) is the worst ε-DP pair).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.arrays import np
from ldpstream.mechanisms.ledger.loss_distribution import SLACK, LossDistribution, joined_loss

MAX_ROUNDS = 10**5  # with more rounds, a guess counts as certain


@dataclass(frozen=True, slots=True, order=True)
class Evidence:
    """A bound of the evidence between two values: `rounds` independent rounds, as in the module's docstring.

    Attributes:
        eps: ε, largest loss of a round, in nats.
        favours: h, at most 1/(1+e^{-ε}).
        rounds: n; infinite if there is no limit.
    """

    eps: float
    favours: float
    rounds: float = 1

    @classmethod
    def of_loss(cls, eps: float, distance: float = 1.0) -> Self:
        """The evidence of any reports with a loss of at most eps and at most this total variation distance."""
        certain = 1 / (1 + math.exp(-eps))
        return cls(eps, min(certain, distance / -math.expm1(-eps)))

    @property
    def distance(self) -> float:
        """Total variation distance of all rounds; the upper bound 1 for more than 10⁵ rounds."""
        return loss_of(self).delta(0.0)


@lru_cache(maxsize=64)
def loss_of(evidence: Evidence) -> LossDistribution:
    """The distribution of the loss of all rounds; certainty for more than 10⁵ rounds.

    >>> round(loss_of(Evidence(1.0, 0.47536689, 7)).guess(4), 3)  # seven reports of GRR, k = 4, ε = 1
    0.751
    """
    if evidence.rounds > MAX_ROUNDS or math.isinf(evidence.eps):
        return LossDistribution(np.zeros(1), np.zeros(1), 1.0)
    n, back = int(evidence.rounds), math.exp(-evidence.eps)
    once = np.array([evidence.favours * back, max(0.0, 1 - evidence.favours * (1 + back)), evidence.favours])
    size = 2 * n + 1
    chances = np.maximum(np.fft.irfft(np.fft.rfft(once, size) ** n, size), 0.0) if n > 1 else once
    return LossDistribution(evidence.eps * np.arange(-n, n + 1.0), np.asarray(chances, np.float64), 0.0)


def joined(observations: Iterable[Iterable[Evidence]]) -> LossDistribution:
    """The bound for independent observations together. Each observation reveals at most one of several pieces of evidence."""
    return joined_loss(tuple(tuple(map(loss_of, several)) for several in sorted(sorted(set(one)) for one in observations)))


def guess_bound_known(shares: FloatArray, loss: float, evidence: Evidence) -> float:
    """Upper bound of the chance of a right guess, if the guesser knows the share π_v of the people with each value v.

    Let values be in descending order of their shares, and let δ be that of the evidence (`ledger.loss_distribution`). The
    result is the smaller of

        max_m (π_1 + … + π_m) e^ε / (e^ε + m - 1)   and   π_1 + Σ_{v>1} π_v δ(ln π_1 - ln π_v)

    Proof of the first: let x_v be the chance that the guess is v if v is true. It is at least x_v e^{-ε} if another value is
    true, so x_u + e^{-ε} Σ_{v≠u} x_v <= 1 for every u. Under these conditions Σ π_v x_v is largest if x is e^ε / (e^ε + m - 1)
    for the m largest shares, and 0 for the others. GRR among these m values reaches it.
    Proof of the second: compared with a guesser who always says 1, saying v on the outputs D gains π_v P(D|v) - π_1 P(D|1). It
    is exact for one report of GRR.

    Args:
        shares: (k,) shares, at least 0, with the sum 1.
        loss: ε, loss of the reports in nats.
        evidence: evidence that reveals at least as much as the reports.
    """
    shares = np.sort(shares)[::-1]
    sums, others = np.cumsum(shares), np.arange(shares.size)
    found = float((sums / (1 + others * math.exp(-loss))).max())
    behind = np.log(shares[0] / np.maximum(shares[1:], 1e-300))
    known = float(shares[0] + shares[1:] @ loss_of(evidence).deltas(behind))
    return min(1.0, found + SLACK, known + SLACK)
