"""Upper bounds of the chance of a right guess, from the trade-off between two values (f-DP).

Let a concave function G(α) bound the power of every test between two values with the false-alarm rate α. The mean chance s of a
right guess among k equally likely values then satisfies

    s <= G((1-s) / (k-1))

The code replaces the reports by **evidence** that reveals at least as much: n independent rounds. If v is true, a round
multiplies the odds of v against v' by e^ε with probability h, by e^{-ε} with probability h e^{-ε}, and else by 1. Reports with
a loss of at most ε and a total variation distance δ reveal at most as much as a round with h = δ / (1 - e^{-ε}).

Sources: Dong, Roth and Su 2022, Gaussian Differential Privacy (f-DP, composition); Kairouz, Oh and Viswanath 2015 (a round with
h = 1/(1+e^{-ε}) is the worst ε-DP pair).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Self

from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.arrays import np

MAX_ROUNDS = 10**5  # with more rounds, a guess counts as certain
GRID, FAR = 0.001, 30.0  # nats: grid of the losses of several attributes, and the loss that counts as certainty
CELLS = round(FAR / GRID)  # cells of the grid on either side of 0
FFT = 2 ** math.ceil(math.log2(4 * CELLS + 1))  # size of the transform; a power of two is fast
SLACK = 1e-9  # covers rounding errors of the sums


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

    @classmethod
    def worst(cls, several: Iterable[Self]) -> Self:
        """Evidence that reveals at least as much as each of several pieces of evidence."""
        all_evidence = list(several)
        eps = max(e.eps for e in all_evidence)
        favours = max(e.favours * -math.expm1(-e.eps) for e in all_evidence) / -math.expm1(-eps)
        return cls(eps, min(favours, 1 / (1 + math.exp(-eps))), max(e.rounds for e in all_evidence))

    @property
    def distance(self) -> float:
        """Total variation distance of all rounds; the upper bound 1 for more than 10⁵ rounds."""
        if self.rounds > MAX_ROUNDS:
            return 1.0
        losses, chances = self.losses()
        return float((chances * -np.expm1(-np.maximum(losses, 0.0))).sum())

    def losses(self) -> tuple[FloatArray, FloatArray]:
        """Losses in descending order, and their probabilities under v."""
        n = int(self.rounds)
        back = math.exp(-self.eps)
        once = np.array([self.favours, max(0.0, 1 - self.favours * (1 + back)), self.favours * back])
        size = 2 * n + 1
        chances = np.maximum(np.fft.irfft(np.fft.rfft(once, size) ** n, size), 0.0) if n > 1 else once
        return self.eps * np.arange(n, -n - 1, -1.0), np.asarray(chances, np.float64)


def guess_bound(k: int, *all_evidence: Evidence, members: int = 1) -> float:
    """Upper bound of the chance of a right guess among k equally likely values, from independent pieces of evidence.

    With `members` m, the guesser names a member of a uniform set of m values. Given that v is a member, let it be named with
    probability α, else with probability β. Then s = m α = 1 - (k-m) β, and s/m <= G((1-s) / (k-m)).

    Args:
        k: number of values.
        all_evidence: the evidence between two values; between two sets that differ in one member.
        members: m.

    >>> round(guess_bound(4, Evidence(1.0, 0.47536689, 7)), 3)  # seven reports of GRR, k = 4, ε = 1
    0.751
    """
    if any(e.rounds > MAX_ROUNDS or math.isinf(e.eps) for e in all_evidence):
        return 1.0
    losses, chances = all_evidence[0].losses() if len(all_evidence) == 1 else (_losses(), _joined(tuple(sorted(all_evidence))))
    power = np.append(0.0, np.cumsum(chances))
    alarms = np.append(0.0, np.cumsum(chances * np.exp(np.minimum(-losses, FAR))))
    low, high = members / k, 1.0
    while low < (s := (low + high) / 2) < high:
        if s / members <= np.interp((1 - s) / (k - members), alarms, power):
            low = s
        else:
            high = s
    return min(1.0, high + SLACK)


def guess_bound_known(shares: FloatArray, loss: float, evidence: Evidence) -> float:
    """Upper bound of the chance of a right guess, if the guesser knows the share π_v of the people with each value v.

    Let values be in descending order of their shares, and let a report multiply the odds by e^l with probability h_l (the
    evidence). The result is the smaller of

        max_m (π_1 + … + π_m) e^ε / (e^ε + m - 1)   and   π_1 + Σ_{v>1} Σ_l h_l max(0, π_v - π_1 e^{-l})

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
    if evidence.rounds <= MAX_ROUNDS and math.isfinite(evidence.eps):
        losses, chances = evidence.losses()
        power, alarms = (np.append(0.0, np.cumsum(x)) for x in (chances, chances * np.exp(-np.maximum(losses, 0.0))))
        with np.errstate(divide="ignore"):
            favour = np.searchsorted(-losses, np.log(shares[1:] / shares[0]))  # outputs whose loss exceeds ln(π_1/π_v)
        found = min(found, float(shares[0] + (shares[1:] * power[favour] - shares[0] * alarms[favour]).sum()))
    return min(1.0, found + SLACK)


@cache
def _losses() -> FloatArray:
    return np.append(math.inf, GRID * np.arange(CELLS, -CELLS - 1, -1))


@lru_cache(maxsize=4)  # a survey needs few combinations of evidence; an array takes half a megabyte
def _joined(all_evidence: tuple[Evidence, ...]) -> FloatArray:
    kinds = iter(sorted(set(all_evidence)))
    total = _repeated(first := next(kinds), all_evidence.count(first))
    for kind in kinds:
        total = total.join(_repeated(kind, all_evidence.count(kind)))
    return np.append(total.sure, total.chances)


@dataclass(frozen=True, slots=True, eq=False)
class _OnGrid:
    chances: FloatArray
    sure: float

    def join(self, other: _OnGrid) -> _OnGrid:
        mine = np.fft.rfft(self.chances, FFT)
        theirs = mine if other is self else np.fft.rfft(other.chances, FFT)
        both = np.maximum(np.fft.irfft(mine * theirs, FFT), 0.0)
        sure = 1 - (1 - self.sure) * (1 - other.sure) + float(both[:CELLS].sum())
        chances = both[CELLS : 3 * CELLS + 1].copy()
        chances[-1] += both[3 * CELLS + 1 : 4 * CELLS + 1].sum()
        return _OnGrid(chances, sure)


def _repeated(e: Evidence, n: int) -> _OnGrid:
    losses, chances = e.losses()
    cells = np.ceil(losses / GRID - 1e-9)
    far = cells > CELLS
    places = (CELLS - np.maximum(cells[~far], -CELLS)).astype(np.int64)
    square = _OnGrid(np.bincount(places, chances[~far], 2 * CELLS + 1).astype(np.float64), float(chances[far].sum()))
    total = square if n % 2 else None
    while n := n // 2:
        square = square.join(square)
        if n % 2:
            total = square if total is None else total.join(square)
    assert total is not None
    return total
