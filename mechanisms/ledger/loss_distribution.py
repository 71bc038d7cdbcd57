"""Distributions of privacy losses, and their composition.

The loss of an observation y between two values v and v' is ln P(y|v)/P(y|v'). Its distribution under v, or a distribution that
reveals more, bounds what the observation reveals:

    δ(ε) = max_S Pr[y in S | v] - e^ε Pr[y in S | v'] = E[(1 - e^{ε - loss})₊]

The power of every test between v and v' with the false-alarm rate α is therefore at most δ(ε) + e^ε α, for every ε (f-DP: Dong,
Roth and Su 2022, Gaussian Differential Privacy).

The losses of independent observations add up. `joined_loss` replaces each of them by one on a grid: the lower convex hull of
bounds of δ at some ε is the exact curve of a pair of distributions whose losses are on a grid (Doroshenko, Ghazi, Kamath, Kumar
and Manurangsi 2022).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Self

from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.mechanisms.arrays import np

FAR = 60.0  # nats: a larger loss of one observation counts as certainty
POINTS, JOINED_POINTS = 64, 8192  # least number of points of each curve of `joined_loss`, and the number that they share
ROUNDING = 1e-14  # bound of the rounding error of a curve; the errors of the slopes are larger, but cancel in the sum
SLACK = 1e-9  # covers rounding errors of the sums of `LossDistribution.guess`


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """Upper bound of the privacy loss from some observations, as a distribution of losses.

    Attributes:
        losses: (m,) possible privacy losses in nats, ascending.
        chances: (m,) their probabilities.
        infinite: probability of a larger loss.
    """

    losses: FloatArray
    chances: FloatArray
    infinite: float

    def or_certain(self, chance: float) -> Self:
        """The bound if an event, whose chance depends on no value, may reveal everything."""
        return replace(self, infinite=self.infinite + chance)

    @cached_property
    def _tails(self) -> tuple[FloatArray, FloatArray]:
        rare = self.chances * np.exp(-np.maximum(self.losses, 0.0))  # Σ of all positive losses above ε: Pr under v'
        power, alarms = (np.append(np.cumsum(x[::-1])[::-1], 0.0) for x in (self.chances, rare))
        return power, alarms

    def deltas(self, eps: FloatArray) -> FloatArray:
        """Upper bounds of δ at each of these ε, at least 0."""
        beyond = np.searchsorted(self.losses, eps, side="right")
        power, alarms = self._tails
        return np.asarray(self.infinite + np.maximum(power[beyond] - np.exp(np.minimum(eps, 700)) * alarms[beyond], 0.0))

    def delta(self, eps: float) -> float:
        return float(self.deltas(np.array([eps]))[0])

    def eps(self, delta: float) -> float:
        """The smallest ε >= 0, in nats, for which `delta` of ε is at most delta; infinite if no ε up to the largest of `losses`
        suffices. The rounding error of `deltas` counts as a part of delta."""
        low, high, most = 0.0, max(float(self.losses[-1]), 0.0), delta - ROUNDING
        if self.delta(high) > most:
            return math.inf
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if self.delta(middle) <= most else (middle, high)
        return high

    def guess(self, k: int, members: int = 1) -> float:
        """Upper bound of the chance of a right guess of one of k equally likely values.

        With `members` m, up to k/2, the guesser names a member of a uniform set of m values, and the losses are between two
        sets that differ in one member. Given that v is a member, let it be named with probability α, else with probability β.
        Then s = m α = 1 - (k-m) β, and α <= δ(ε) + e^ε β, so

            s <= m (e^ε + (k-m) δ(ε)) / (m e^ε + k - m)
        """
        at = np.clip(self.losses, 0.0, 700.0)
        odds, others = np.exp(at), k - members
        return min(float((members * (odds + others * self.deltas(at)) / (members * odds + others)).min()) + SLACK, 1.0)


@lru_cache(maxsize=64)
def joined_loss(observations: tuple[tuple[LossDistribution, ...], ...]) -> LossDistribution:
    """Upper bound of the privacy loss from independent observations together.

    Args:
        observations: for each observation, bounds of its possible loss distributions; the result holds for any one of them.
    """
    if len(observations) == 1 == len(observations[0]):
        return observations[0][0]
    points = max(POINTS, JOINED_POINTS // len(observations))
    largest = max(float(one.losses[-1]) for several in observations for one in several)
    unit = min(max(1e-9, largest), FAR) / points  # e^largest may overflow
    grid = np.arange(points + 1, dtype=np.float64) * unit
    total, finite = np.ones(1), 1.0
    for several in observations:
        over = np.max([one.deltas(grid) for one in several], axis=0)
        places, chances = of_curve(grid, over)
        total = np.convolve(total, np.bincount(places + points, chances, 2 * points + 1))
        finite *= 1 - min(float(over[-1]) + ROUNDING, 1.0)
    losses = np.asarray((np.arange(total.size) - points * len(observations)) * unit, np.float64)
    return LossDistribution(losses, total, 1 - finite)


def of_curve(grid: FloatArray, over: FloatArray) -> tuple[IntArray, FloatArray]:
    """Losses as places on the grid and their negatives, ascending, and their probabilities.

    Args:
        grid: (n,) equally spaced ε, from 0 on.
        over: (n,) upper bounds of δ at each ε, which never rise. The last one is the probability of a larger loss.
    """
    x = np.exp(np.concatenate([-grid[:0:-1], grid]))
    above = np.concatenate([(over * np.exp(-grid))[:0:-1], over])
    x, above = np.append(0.0, x), np.append(0.0, above)
    curve = above + np.maximum(1 - x, 0)
    hull: list[int] = []
    for i in range(x.size):
        while len(hull) > 1:
            a, b = hull[-2:]
            if (curve[b] - curve[a]) * (x[i] - x[b]) < (curve[i] - curve[b]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(i)
    kept, middle = np.array(hull), grid.size  # x = 1
    slopes = (np.diff(above[kept]) + np.diff(np.maximum(1 - x[kept], 0))) / np.diff(x[kept])
    return kept[1:] - middle, np.maximum(np.diff(np.append(slopes, 0.0)), 0) * x[kept[1:]]
