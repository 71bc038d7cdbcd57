"""The posterior distribution of a histogram, as random draws."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from ldpstream.mechanisms.arguments import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Unbiased:
    """The unbiased shares, without the effect of a prior.

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

    @classmethod
    def given_the_sum(cls, z: FloatArray, variance: FloatArray) -> "Unbiased":
        """Returns the best linear unbiased shares, given that their sum is 1.

        Args:
            z: (k,) unbiased shares with independent errors.
            variance: (k,) their variances.
        """
        total = float(variance.sum())
        shares = z + (1 - z.sum()) * variance / total
        reached, below = (np.concatenate([[0.0], np.cumsum(x)]) for x in (shares, variance))
        error = np.sqrt(np.maximum(below * (1 - below / total), 0))
        reached[-1], error[-1] = 1.0, 0.0  # without rounding

        def error_of_mean(numbers: FloatArray) -> float:
            return float(np.sqrt(variance @ (numbers - variance @ numbers / total) ** 2))

        def bounds(reach: float) -> tuple[FloatArray, FloatArray]:
            return reached - reach * error, reached + reach * error

        return cls(shares, np.arange(z.size + 1), bounds, error_of_mean)


@dataclass(frozen=True, slots=True)
class Draws:
    """Equally likely shares from the posterior distribution of ordered shares.

    Attributes:
        shares: (m, k); each column has draws from the posterior of one share. A row need not be a distribution.
        central: (k,) histogram with the means, quantiles and other numbers that depend on many shares.
        below, above: (k,) each; an interval's lower and upper ends move outwards by these numbers.
        unbiased: the unbiased shares, for the intervals of such numbers.
    """

    shares: FloatArray
    central: FloatArray
    below: FloatArray
    above: FloatArray
    unbiased: Unbiased

    def interval(self, level: float) -> tuple[FloatArray, FloatArray]:
        """Returns the lower and upper ends of the shares' intervals, (k,) each, in [0, 1]."""
        outside = (1 - level) / 2
        reached = max(outside, 1 / (len(self.shares) + 1))
        ends = np.quantile(self.shares, [reached, 1 - reached], axis=0, method="weibull")
        mean = self.shares.mean(axis=0)
        ends = mean + (ends - mean) * ndtri(outside) / ndtri(reached)
        return np.clip(ends[0] - self.below, 0, 1), np.clip(ends[1] + self.above, 0, 1)
