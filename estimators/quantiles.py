"""Means and quantiles of an ordered attribute's numbers, with intervals.

A value counts the numbers of a bin as spread evenly over the bin: the distribution function F is linear within each bin. The
q-quantile is the smallest x with F(x) >= q.

An interval holds for numbers that are spread evenly. With `anywhere`, it holds wherever the numbers lie in their bins. The
mean's interval then goes from the lower end for numbers at the lower edges to the upper end for numbers at the upper edges. The
interval of a quantile then consists of whole bins, since the quantile's bin follows from F at the edges.

For pure mechanisms, values and intervals come from the posterior draws of the smooth histogram (`Draws.smooth`). An interval
comes from percentiles of the draws' means or quantiles, stretched against the bias of smoothing.

If an end then lies inside the interval from the unbiased shares alone (`Unshrunk`), it moves outwards by a part of the
distance.

For mechanisms that are not pure, the mean's interval comes from the unbiased mean (`Unbiased`). The intervals of quantiles come
from bounds of F (`Unbiased.bounds`), and end at edges of bins.

All numbers are taken to lie between the first and the last edge. Quantiles and the ends of their intervals ascend with the
probability.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from ldpstream.estimators.estimate import Estimate
from ldpstream.estimators.smooth.draws import Draws, Unbiased, Unshrunk
from ldpstream.mechanisms.arguments import FloatArray, real

PERCENTILES = (0.5, 0.9, 0.99)
CAUTION = 1.08  # factor of the distance of an interval's ends from the value: smoothing adds a bias
TAIL_CAUTION = 0.7  # for extreme quantiles, the factor of the end towards the median grows up to 1 + this number


@dataclass(frozen=True, slots=True)
class Number:
    """A number of the population, in the attribute's unit, with its interval: low <= value <= high."""

    value: float
    low: float
    high: float


def mean(estimate: Estimate, edges: npt.ArrayLike, level: float = 0.95, anywhere: bool = False) -> Number | None:
    """Mean of the numbers.

    Args:
        estimate: an estimate whose posterior is `Draws`.
        edges: (k + 1,) edges of the bins, ascending and finite.
        level: level of the interval, in [1e-9, 1 - 1e-9].
        anywhere: true for an interval that holds wherever the numbers lie in their bins; false if the numbers of each bin lie
            on average in the bin's middle.

    Returns:
        None for an estimate without draws.

    Raises:
        ValueError: if an argument is out of range.
    """
    at, posterior, level = _edges(estimate, edges), _posterior(estimate), real("level", level, 1e-9, 1 - 1e-9)
    if posterior is None:
        return None
    found = _mean_of(estimate, posterior, (at[1:] + at[:-1]) / 2, level, at)
    if not anywhere:
        return found
    low, high = (_mean_of(estimate, posterior, ends, level, at) for ends in (at[:-1], at[1:]))
    return Number(found.value, min(low.low, found.low), max(high.high, found.high))


def quantiles(
    estimate: Estimate,
    edges: npt.ArrayLike,
    probabilities: Sequence[float] = PERCENTILES,
    level: float = 0.95,
    anywhere: bool = False,
) -> tuple[Number, ...] | None:
    """Quantiles of the numbers, in the order of the probabilities; None as in `mean`.

    Args:
        estimate, edges, level: as in `mean`.
        anywhere: true for intervals of whole bins; those of mechanisms that are not pure always consist of whole bins.
        probabilities: probabilities of the quantiles, each in [1e-9, 1 - 1e-9]: 0.5 for the median.

    >>> draws = np.array([[0.5, 0.5], [0.25, 0.75]])
    >>> posterior = Draws(draws, draws, below=np.zeros(2), above=np.zeros(2))
    >>> two_bins = Estimate(np.array([0.375, 0.625]), np.full(2, 0.1), 100, posterior=posterior)
    >>> [median] = quantiles(two_bins, [0, 10, 20], [0.5])
    >>> round(median.value, 2), round(median.low, 2), round(median.high, 2)
    (12.0, 9.84, 13.44)
    """
    at, posterior, level = _edges(estimate, edges), _posterior(estimate), real("level", level, 1e-9, 1 - 1e-9)
    wanted = [real("probabilities", q, 1e-9, 1 - 1e-9) for q in probabilities]
    if posterior is None:
        return None
    draws, unshrunk = posterior.smooth, posterior.unshrunk
    exact = isinstance(unshrunk, Unbiased)
    own = _distributions((estimate.frequencies if exact else draws.mean(axis=0))[None])
    values = np.array([_quantiles(own, at, q)[0] for q in wanted])
    if isinstance(unshrunk, Unbiased):
        ends = _unbiased_ends(unshrunk, at, wanted, level)
        ends[0] = np.minimum(ends[0], at[np.searchsorted(at, values, side="right") - 1])
        ends[1] = np.maximum(ends[1], at[np.searchsorted(at, values)])
    else:
        reached, ends = _distributions(draws), np.empty((2, values.size))
        for i, q in enumerate(wanted):
            tail = 1 + TAIL_CAUTION * (2 * q - 1) ** 8
            ends[:, i] = _ends(values[i], _quantiles(reached, at, q), level, (tail, 1.0) if q > 0.5 else (1.0, tail), at)
            if unshrunk is not None:
                ends[:, i] = _joined(ends[:, i].tolist(), _unshrunk_ends(unshrunk, at, q, level), unshrunk.weight, at)
    if anywhere:
        ends[0] = at[np.searchsorted(at, ends[0], side="right") - 1]
        ends[1] = at[np.searchsorted(at, ends[1])]
    order = np.argsort(wanted)
    ends[0, order] = np.minimum.accumulate(ends[0, order[::-1]])[::-1]
    ends[1, order] = np.maximum.accumulate(ends[1, order])
    return tuple(Number(float(value), float(low), float(high)) for value, low, high in zip(values, *ends, strict=True))


def _mean_of(estimate: Estimate, posterior: Draws, numbers: FloatArray, level: float, edges: FloatArray) -> Number:
    draws, unshrunk = posterior.smooth, posterior.unshrunk
    if isinstance(unshrunk, Unbiased):
        return _unbiased_mean(estimate, unshrunk, numbers, level, edges)
    value = float(draws.mean(axis=0) @ numbers)
    low, high = _ends(value, draws @ numbers, level, (1.0, 1.0), edges)
    if unshrunk is not None:
        centre, reach = float(unshrunk.shares @ numbers), -ndtri((1 - level) / 2) * unshrunk.error_of_mean(numbers)
        low, high = _joined((low, high), (centre - reach, centre + reach), unshrunk.weight, edges)
    return Number(value, low, high)


def _edges(estimate: Estimate, edges: npt.ArrayLike) -> FloatArray:
    at = np.asarray(edges, np.float64)
    k = estimate.frequencies.size
    if at.shape != (k + 1,) or not np.isfinite(at).all() or any(b <= a for a, b in pairwise(at.tolist())):
        raise ValueError(f"edges must be {k + 1} finite numbers in ascending order, got {at.size} in shape {at.shape}")
    return at


def _posterior(estimate: Estimate) -> Draws | None:
    return estimate.posterior if isinstance(estimate.posterior, Draws) else None


def _distributions(histograms: FloatArray) -> FloatArray:
    sums = np.cumsum(histograms, axis=1)
    return np.pad(sums / sums[:, -1:], ((0, 0), (1, 0)))


def _quantiles(reached: FloatArray, edges: FloatArray, q: float) -> FloatArray:
    upper = np.maximum((reached < q).sum(axis=1), 1)
    rows = np.arange(len(reached))
    low, high = reached[rows, upper - 1], reached[rows, upper]
    return np.asarray(edges[upper - 1] + (q - low) / (high - low) * (edges[upper] - edges[upper - 1]))


def _ends(
    value: float, of_draws: FloatArray, level: float, stretch: tuple[float, float], edges: FloatArray
) -> tuple[float, float]:
    outside = (1 - level) / 2
    low, high = np.quantile(of_draws, [outside, 1 - outside], method="weibull")
    below, above = CAUTION * stretch[0] * max(value - low, 0.0), CAUTION * stretch[1] * max(high - value, 0.0)
    return max(value - below, float(edges[0])), min(value + above, float(edges[-1]))


def _joined(smooth: Sequence[float], unshrunk: tuple[float, float], weight: float, edges: FloatArray) -> tuple[float, float]:
    low, high = smooth
    low -= weight * max(low - unshrunk[0], 0.0)
    high += weight * max(unshrunk[1] - high, 0.0)
    return max(low, float(edges[0])), min(high, float(edges[-1]))


def _unbiased_mean(estimate: Estimate, unbiased: Unbiased, numbers: FloatArray, level: float, edges: FloatArray) -> Number:
    centre, error = float(unbiased.shares @ numbers), unbiased.error_of_mean(numbers)
    reach = -ndtri((1 - level) / 2) * error
    within = min(error, reach)
    value = min(max(float(estimate.frequencies @ numbers), centre - within), centre + within)
    value = min(max(value, float(numbers[0])), float(numbers[-1]))  # all means of histograms; noise may lead beyond
    low, high = np.clip([min(centre - reach, value), max(centre + reach, value)], edges[0], edges[-1]).tolist()
    return Number(value, low, high)


def _unbiased_ends(unbiased: Unbiased, edges: FloatArray, wanted: list[float], level: float) -> FloatArray:
    low, high = unbiased.bounds(-ndtri((1 - level) / 2))
    first = [int(np.argmax(high >= q)) - 1 for q in wanted]
    last = [int(np.flatnonzero(low <= q)[-1]) + 1 for q in wanted]
    return np.asarray(edges[unbiased.places[np.array([first, last])]])


def _unshrunk_ends(unshrunk: Unshrunk, edges: FloatArray, q: float, level: float) -> tuple[float, float]:
    reached, error = unshrunk.cumulative()
    reach = -ndtri((1 - level) / 2) * error
    first = int(np.argmax(reached + reach >= q))
    last = int(np.flatnonzero(reached - reach <= q)[-1])
    low = np.interp(q, (reached + reach)[first - 1 : first + 1], edges[first - 1 : first + 1])
    high = np.interp(q, (reached - reach)[last : last + 2], edges[last : last + 2])
    return float(low), float(high)
