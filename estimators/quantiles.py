"""Means and quantiles of an ordered attribute's numbers, with intervals.

A histogram does not say where in a bin a person's number lies. Here the numbers of a bin are spread evenly over the bin: the
distribution function F is linear within each bin. The q-quantile is the smallest x with F(x) >= q. It is therefore as precise
as the bins are narrow: a quantile inside a wide bin is an interpolation. For the same reason the mean uses the bins' middles.

Values and intervals come from the posterior draws of the smooth histogram (`Draws.smooth`). A value is that of the draws' mean.
Each draw is a distribution and has its own quantile. An interval comes from percentiles of these quantiles. Smoothing adds a
bias, above all to the tails. The intervals are therefore stretched by fixed factors. With these factors, on average about 95 %
of the intervals hold the truth for the three shapes in `tests/estimators/test_quantiles.py`; other shapes can have another
coverage. All numbers lie between the first and the last edge. A higher quantile is never below a lower one, and neither are the
ends of its interval: an end that would cross that of another requested quantile moves outwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from estimators.draws import Draws
from estimators.estimate import Estimate
from mechanisms.arguments import FloatArray, real

PERCENTILES = (0.5, 0.9, 0.99)
CAUTION = 1.08  # factor of the distance of an interval's ends from the value: smoothing adds a bias
TAIL_CAUTION = 0.7  # further part of the factor for the end towards the median of an extreme quantile


@dataclass(frozen=True, slots=True)
class Number:
    """A number of the population, in the attribute's unit, with its interval: low <= value <= high."""

    value: float
    low: float
    high: float


def mean(estimate: Estimate, edges: npt.ArrayLike, level: float = 0.95) -> Number | None:
    """Mean of the numbers, if the numbers of each bin lie on average in the bin's middle.

    Args:
        estimate: an estimate with draws (`estimators.ordered`).
        edges: (k + 1,) edges of the bins, ascending and finite.
        level: of the interval, in (0, 1).

    Returns:
        None for an estimate without draws: the counts carry no information, or there are too many values.

    Raises:
        ValueError: if an argument is out of range.
    """
    at, draws = _edges(estimate, edges), _draws(estimate)
    if draws is None:
        return None
    middles = (at[1:] + at[:-1]) / 2
    value = float(draws.mean(axis=0) @ middles)
    return Number(value, *_ends(value, draws @ middles, level, (1.0, 1.0), at))


def quantiles(
    estimate: Estimate, edges: npt.ArrayLike, probabilities: Sequence[float] = PERCENTILES, level: float = 0.95
) -> tuple[Number, ...] | None:
    """Quantiles of the numbers, in the order of the probabilities; arguments and errors as in `mean`.

    Args:
        estimate: an estimate with draws (`estimators.ordered`).
        edges: (k + 1,) edges of the bins, ascending and finite.
        probabilities: of the quantiles, each in (0, 1): 0.5 for the median.
        level: of the intervals, in (0, 1).

    >>> draws = np.array([[0.5, 0.5], [0.25, 0.75]])
    >>> posterior = Draws(draws, draws, below=np.zeros(2), above=np.zeros(2))
    >>> two_bins = Estimate(np.array([0.375, 0.625]), np.full(2, 0.1), 100, posterior=posterior)
    >>> [median] = quantiles(two_bins, [0, 10, 20], [0.5])
    >>> round(median.value, 2), round(median.low, 2), round(median.high, 2)
    (12.0, 9.84, 13.44)
    """
    at, draws = _edges(estimate, edges), _draws(estimate)
    wanted = [real("probabilities", q, 1e-9, 1 - 1e-9) for q in probabilities]
    if draws is None:
        return None
    reached = _distributions(draws)
    own = _distributions(draws.mean(axis=0)[None])
    values = np.array([_quantiles(own, at, q)[0] for q in wanted])
    ends = np.empty((2, values.size))
    for i, q in enumerate(wanted):
        tail = 1 + TAIL_CAUTION * (2 * q - 1) ** 8
        ends[:, i] = _ends(values[i], _quantiles(reached, at, q), level, (tail, 1.0) if q > 0.5 else (1.0, tail), at)
    order = np.argsort(wanted)
    ends[0, order] = np.minimum.accumulate(ends[0, order[::-1]])[::-1]
    ends[1, order] = np.maximum.accumulate(ends[1, order])
    return tuple(Number(float(value), float(low), float(high)) for value, low, high in zip(values, *ends, strict=True))


def _edges(estimate: Estimate, edges: npt.ArrayLike) -> FloatArray:
    at = np.asarray(edges, np.float64)
    k = estimate.frequencies.size
    if at.shape != (k + 1,) or not np.isfinite(at).all() or any(b <= a for a, b in pairwise(at.tolist())):
        raise ValueError(f"edges must be {k + 1} finite numbers in ascending order, got {at.size} in shape {at.shape}")
    return at


def _draws(estimate: Estimate) -> FloatArray | None:
    """Returns the draws, or None if there are none."""
    return estimate.posterior.smooth if isinstance(estimate.posterior, Draws) else None


def _distributions(histograms: FloatArray) -> FloatArray:
    """Returns the distribution functions at all edges, (m, k + 1); the last number is exactly 1."""
    sums = np.cumsum(histograms, axis=1)
    return np.pad(sums / sums[:, -1:], ((0, 0), (1, 0)))


def _quantiles(reached: FloatArray, edges: FloatArray, q: float) -> FloatArray:
    """Returns the q-quantile of each distribution, (m,)."""
    upper = np.maximum((reached < q).sum(axis=1), 1)
    rows = np.arange(len(reached))
    low, high = reached[rows, upper - 1], reached[rows, upper]
    return np.asarray(edges[upper - 1] + (q - low) / (high - low) * (edges[upper] - edges[upper - 1]))


def _ends(
    value: float, of_draws: FloatArray, level: float, stretch: tuple[float, float], edges: FloatArray
) -> tuple[float, float]:
    """Returns the ends of the interval: percentiles of the draws, stretched from the value, within the edges."""
    outside = (1 - real("level", level, 1e-9, 1 - 1e-9)) / 2
    low, high = np.quantile(of_draws, [outside, 1 - outside], method="weibull")
    below, above = CAUTION * stretch[0] * max(value - low, 0.0), CAUTION * stretch[1] * max(high - value, 0.0)
    return max(value - below, float(edges[0])), min(value + above, float(edges[-1]))
