"""Means and quantiles of an ordered attribute's numbers, with intervals.

A value counts the numbers of a bin as spread evenly over the bin: the distribution function F is linear within each bin. The
q-quantile is the smallest x with F(x) >= q.

The interval of the mean comes from the mean of the unbiased shares (`Unbiased`). It holds for numbers that are spread evenly.
With `anywhere`, it goes from the lower end for numbers at the lower edges to the upper end for numbers at the upper edges.

The intervals of quantiles come from bounds of F at the edges (`Unbiased.bounds`). They consist of whole bins, so they hold
wherever the numbers lie in their bins.

All numbers are taken to lie between the first and the last edge. Quantiles and the ends of their intervals ascend with the
probability.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ldpstream.estimators.estimate import NORMAL, Estimate
from ldpstream.estimators.smooth.draws import Draws
from ldpstream.mechanisms.arguments import FloatArray, real

PERCENTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class Number:
    """A number of the population, in the attribute's unit, with its interval: low <= value <= high."""

    value: float
    low: float
    high: float


def mean(estimate: Estimate, edges: npt.ArrayLike, anywhere: bool = False) -> Number | None:
    """Mean of the numbers, with its 95 % interval.

    Args:
        estimate: an estimate whose posterior is `Draws`.
        edges: (k + 1,) edges of the bins, ascending and finite.
        anywhere: true for an interval that holds wherever the numbers lie in their bins; false if the numbers of each bin lie
            on average in the bin's middle.

    Returns:
        None for an estimate without draws.

    Raises:
        ValueError: if the edges are not such numbers.
    """
    at, posterior = _edges(estimate, edges), estimate.posterior
    if not isinstance(posterior, Draws):
        return None
    found = _mean_of(posterior, (at[1:] + at[:-1]) / 2, at)
    if not anywhere:
        return found
    low, high = (_mean_of(posterior, ends, at) for ends in (at[:-1], at[1:]))
    return Number(found.value, min(low.low, found.low), max(high.high, found.high))


def quantiles(
    estimate: Estimate, edges: npt.ArrayLike, probabilities: Sequence[float] = PERCENTILES
) -> tuple[Number, ...] | None:
    """Quantiles of the numbers with their 95 % intervals, in the order of the probabilities; None as in `mean`.

    Args:
        estimate, edges: as in `mean`.
        probabilities: probabilities of the quantiles, each in [1e-9, 1 - 1e-9]: 0.5 for the median.

    >>> shares, variance = np.array([0.3, 0.7]), np.full(2, 0.0002)
    >>> from ldpstream.estimators.smooth.draws import Unbiased
    >>> posterior = Draws(shares[None], shares, np.zeros(2), np.zeros(2), Unbiased.given_the_sum(shares, variance))
    >>> two_bins = Estimate(shares, np.full(2, 0.01), 100, posterior=posterior)
    >>> [median] = quantiles(two_bins, [0, 10, 20], [0.5])
    >>> round(median.value, 2), median.low, median.high
    (12.86, 10.0, 20.0)
    """
    at, posterior = _edges(estimate, edges), estimate.posterior
    wanted = [real("probabilities", q, 1e-9, 1 - 1e-9) for q in probabilities]
    if not isinstance(posterior, Draws):
        return None
    reached = np.concatenate([[0.0], np.cumsum(posterior.central) / posterior.central.sum()])
    upper = np.maximum(np.searchsorted(reached, wanted), 1)
    part = (wanted - reached[upper - 1]) / (reached[upper] - reached[upper - 1])
    values = at[upper - 1] + part * (at[upper] - at[upper - 1])
    low, high = posterior.unbiased.bounds(NORMAL)
    first = [int(np.argmax(high >= q)) - 1 for q in wanted]
    last = [int(np.flatnonzero(low <= q)[-1]) + 1 for q in wanted]
    ends = at[posterior.unbiased.places[np.array([first, last], int)]]
    ends[0] = np.minimum(ends[0], at[np.searchsorted(at, values, side="right") - 1])
    ends[1] = np.maximum(ends[1], at[np.searchsorted(at, values)])
    order = np.argsort(wanted)
    ends[0, order] = np.minimum.accumulate(ends[0, order[::-1]])[::-1]
    ends[1, order] = np.maximum.accumulate(ends[1, order])
    return tuple(Number(float(value), float(low), float(high)) for value, low, high in zip(values, *ends, strict=True))


def _mean_of(posterior: Draws, numbers: FloatArray, edges: FloatArray) -> Number:
    unbiased, value = posterior.unbiased, float(posterior.central @ numbers)
    centre, reach = float(unbiased.shares @ numbers), NORMAL * unbiased.error_of_mean(numbers)
    low, high = np.clip([min(centre - reach, value), max(centre + reach, value)], edges[0], edges[-1]).tolist()
    return Number(value, low, high)


def _edges(estimate: Estimate, edges: npt.ArrayLike) -> FloatArray:
    at = np.asarray(edges, np.float64)
    k = estimate.frequencies.size
    if at.shape != (k + 1,) or not np.isfinite(at).all() or (np.diff(at) <= 0).any():
        raise ValueError(f"edges must be {k + 1} finite numbers in ascending order, got {at.size} in shape {at.shape}")
    return at
