"""The posterior distribution of a histogram, as random draws."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from ldpstream.mechanisms.arguments import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Unshrunk:
    """The unbiased shares, without the effect of a prior.

    Attributes:
        weight: 1 minus the weight of the smooth model in the estimate, in [0, 1].
        shares: (k,) best linear unbiased shares, given the sum 1; may be negative.
        variance: (k,) variances of the unbiased shares without the condition that their sum is 1.
    """

    weight: float
    shares: FloatArray
    variance: FloatArray

    def cumulative(self) -> tuple[FloatArray, FloatArray]:
        """Returns the distribution function at all edges and its standard errors, (k + 1,) each."""
        reached, variance = (np.concatenate([[0.0], np.cumsum(x)]) for x in (self.shares, self.variance))
        return reached, np.sqrt(np.maximum(variance * (1 - variance / variance[-1]), 0))

    def error_of_mean(self, numbers: FloatArray) -> float:
        """Returns the standard error of the people's mean number, given the number that each value stands for, (k,)."""
        centred = numbers - self.variance @ numbers / self.variance.sum()
        return float(np.sqrt(self.variance @ centred**2))


@dataclass(frozen=True, slots=True)
class Unbiased:
    """The raw inversion of levels, if not all their mechanisms are pure.

    Attributes:
        shares: (k,) unbiased shares with sum 1; may be negative.
        places: (K + 1,) some of the edges of the bins, by their index, from 0 to k.
        bounds: returns a lower and an upper bound of the distribution function at these edges, (K + 1,) each, for a number of
            standard errors.
        error_of_mean: returns the standard error of the people's mean number, given the number that each value stands for,
            (k,).
    """

    shares: FloatArray
    places: IntArray
    bounds: Callable[[float], tuple[FloatArray, FloatArray]]
    error_of_mean: Callable[[FloatArray], float]


@dataclass(frozen=True, slots=True)
class Draws:
    """Equally likely shares and histograms from the posterior distribution of ordered shares.

    Attributes:
        shares: (m, k); each column has draws from the posterior of one share. A row need not be a distribution.
        smooth: (m, k) histograms; each row is a distribution. Use these for means, quantiles and other numbers that depend on
            many shares.
        below, above: (k,) each; an interval's lower and upper ends move outwards by these numbers.
        unshrunk: the unbiased shares; None if the estimate is the smooth model alone.
    """

    shares: FloatArray
    smooth: FloatArray
    below: FloatArray
    above: FloatArray
    unshrunk: Unshrunk | Unbiased | None = None

    def interval(self, level: float) -> tuple[FloatArray, FloatArray]:
        """Returns the lower and upper ends of the shares' intervals, (k,) each, in [0, 1]."""
        outside = (1 - level) / 2
        reached = max(outside, 1 / (len(self.shares) + 1))
        ends = np.quantile(self.shares, [reached, 1 - reached], axis=0, method="weibull")
        mean = self.shares.mean(axis=0)
        ends = mean + (ends - mean) * ndtri(outside) / ndtri(reached)
        return np.clip(ends[0] - self.below, 0, 1), np.clip(ends[1] + self.above, 0, 1)
