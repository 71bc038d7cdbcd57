"""Posterior of the shares: means and intervals.

Standard errors and intervals are for the population, of which the people are a random sample. They include the variance of this
sample, f (c - f) / people, where c is 1, or less for several reports of a set (`Reading.concentration`). For a prior that is
fitted to k values, distances from the value's mean are multiplied by

    √(1 + 2 (1 - w) 8 / (8 + k))        w: posterior variance, divided by the variance of the noise given the sum; at most 1

The quantiles for the level 95 % leave out 1.25 % to 2.5 % of the posterior below, and the rest of 5 % above.

For a named value, or one far above the noise, the interval also contains the best linear unbiased interval, given that the
shares sum to 1.

    z_v + (1 - Σ z) N_v / Σ N ± quantile · √(N_v (1 - N_v / Σ N) + sampling)         z: unbiased shares, N: their variances
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from ldpstream.estimators.bayes.value_likelihood import LARGE, ValueLikelihood
from ldpstream.mechanisms.arguments import FloatArray, IntArray

UNSURE, FEW = 2.0, 8.0  # the intervals are wider by √(1 + UNSURE (1 - w) FEW / (FEW + k))
PARTS_BELOW = np.linspace(0.25, 0.5, 6)  # candidates: the part below the interval, divided by the whole part outside it
SHARP = 0.03  # an interval is extended at both ends by this part of a standard error or of 1/k, whichever is smaller
CHOSEN_AT = 0.95  # the part below gives the shortest interval at this level, and is used for all levels


@dataclass(frozen=True)
class Posterior:
    """Posterior distribution of each value's share, on a grid.

    Attributes:
        people: number of people who reported; infinite to leave out their random choice.
        concentration: c, as `value_likelihood.people_of` returns it.
        mean: (k,) estimated shares.
        standard_errors: (k,) posterior standard deviations times `widening`, with the random choice of the people added.
        widening: (k,) factors for the uncertainty of a fitted prior; 1 for a fixed prior.
        kind: (k,) kind of each value.
        ends: upper ends of the cells of all kinds, kind after kind.
        below: for each cell, the probability of a share below its upper end.
        start: (kinds + 1,) position of each kind's first cell.
        lowest: (kinds,) lower end of each kind's first cell.
        resolution: added to both sides of an interval.
        large: indices of the values whose intervals contain the unshrunk intervals.
        unshrunk, unshrunk_errors: the best linear unbiased estimates of the `large` values, given the sum, and their standard
            errors.
    """

    people: float
    concentration: float
    mean: FloatArray
    standard_errors: FloatArray
    widening: FloatArray
    kind: IntArray
    ends: FloatArray
    below: FloatArray
    start: IntArray
    lowest: FloatArray
    resolution: float
    large: IntArray
    unshrunk: FloatArray
    unshrunk_errors: FloatArray

    @classmethod
    def of(
        cls, values: ValueLikelihood, mean: FloatArray, posterior: FloatArray, people: float, concentration: float = 1.0,
        named: npt.NDArray[np.bool_] | bool = False,
    ) -> "Posterior":  # fmt: skip
        """Returns the posterior on a grid.

        Args:
            mean: estimated share of each kind.
            posterior: probabilities of each kind's points, one for each entry of the grid.
            people, concentration: as for `Posterior`.
            named: (k,) true for the values whose intervals contain the unshrunk ones, beside values far above the noise.
        """
        low, high = values.edges
        before = np.append(0.0, np.cumsum(posterior))
        below = before[1:] - np.repeat(before[values.start[:-1]], np.diff(values.start))
        f = np.minimum(mean[values.kind], 1)
        excess, total = values.times @ values.unbiased - 1, values.times @ values.noise
        variance = values.moments(posterior)[1]
        unsure = 1 - np.minimum(variance / (values.noise * (1 - values.noise / total)), 1)
        widening = np.sqrt(1 + UNSURE * unsure * FEW / (FEW + f.size))[values.kind]
        error = np.sqrt(widening**2 * variance[values.kind] + chosen_variance(f, people, concentration))
        resolution = SHARP * min(values.error, 1 / f.size)
        unshrunk = (values.unbiased - values.noise * excess / total)[values.kind]
        large = np.flatnonzero(named | (unshrunk > LARGE * values.error))
        unshrunk, noise = unshrunk[large], values.noise[values.kind][large]
        chosen = chosen_variance(unshrunk, people, concentration)
        return cls(
            people, concentration, f, error, widening, values.kind, high[values.places], below, values.start, low[values.first],
            resolution, large, unshrunk, np.sqrt(noise * (1 - noise / total) + chosen),
        )  # fmt: skip

    def interval(self, level: float) -> tuple[FloatArray, FloatArray]:
        """Returns the lower and upper ends, (k,) each, of intervals at this level for the shares of the population."""
        below = (1 - level) * self._part_below
        low, high = self._quantiles(np.array([below, below + level]))[:, self.kind]
        z = ndtri(0.5 + level / 2)
        chosen = z * np.sqrt(chosen_variance(self.mean, self.people, self.concentration))
        low, high = self.mean + self.widening * (low - self.mean), self.mean + self.widening * (high - self.mean)
        below, above = np.abs(self.mean - low), np.abs(high - self.mean)
        low = low + below - np.hypot(below, chosen)
        high = high - above + np.hypot(above, np.hypot(chosen, z**2 * self.concentration / self.people))
        low, high = low - self.resolution, high + self.resolution
        low[self.large] = np.minimum(low[self.large], self.unshrunk - z * self.unshrunk_errors)
        high[self.large] = np.maximum(high[self.large], self.unshrunk + z * self.unshrunk_errors)
        if self.mean.size == 2:  # one share determines the other
            low, high = np.minimum(low, 1 - high[::-1]), np.maximum(high, 1 - low[::-1])
        return np.maximum(low, 0), np.minimum(high, 1)

    @cached_property
    def _part_below(self) -> FloatArray:
        below = np.repeat((1 - CHOSEN_AT) * PARTS_BELOW[:, None], self.lowest.size, axis=1)
        low, high = self._quantiles(below), self._quantiles(below + CHOSEN_AT)
        return np.asarray(PARTS_BELOW[(high - low).argmin(axis=0)])

    def _quantiles(self, chances: FloatArray) -> FloatArray:
        from ldpstream.estimators.bayes.posterior_kernels import quantiles

        found = np.empty(chances.shape)
        quantiles(self.below, self.ends, self.lowest, self.start, chances, found)
        return found


def chosen_variance(f: FloatArray, people: float, concentration: float) -> FloatArray:
    """Returns the variance of the shares of randomly chosen people at the shares f: f (c - f) / people, at least 0."""
    return np.asarray(np.maximum(f * (concentration - f), 0) / people)
