"""The numbers of an estimate as they are published: shares with their intervals, and the mean and percentiles of numbers.

None stands for NaN, since JSON has no such number.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from scipy.special import ndtri

from ldpstream.estimators.estimate import NORMAL, PUBLISHED_LEVEL, Estimate
from ldpstream.estimators.quantiles import PERCENTILES, Number, mean, quantiles
from ldpstream.mechanisms.arguments import FloatArray

Withheld = Literal["bias", "levels"]


class Frequencies(msgspec.Struct, frozen=True, kw_only=True):
    """One estimator's result, as in `Estimate`.

    `low` and `high` are the ends of the 95 % intervals of "eb" and "filter". They are None for other estimators, whose interval
    is the frequency ± 1.96 standard errors, and if intervals are withheld. `gap` is an upper bound of the distance of the
    log-likelihood from the maximum, in nats per report ("ibu", "mle", "ems").

    `interval_withheld` is the reason why an estimate has no standard errors and intervals. "bias": the estimator has no
    intervals, or differs too much from the unbiased estimate (`estimators.diagnostics.MAX_BIAS`). "levels": the levels'
    histograms clearly differ, so every estimate over all levels can be biased (`estimators.levels`).
    """

    frequencies: list[float | None]
    standard_errors: list[float | None]
    iterations: int
    converged: bool
    gap: float | None = None
    low: list[float | None] | None = None
    high: list[float | None] | None = None
    interval_withheld: Withheld | None = None

    @classmethod
    def of(cls, estimate: Estimate, withheld: Withheld | None = None) -> "Frequencies":
        errors: list[float | None] = [None] * estimate.frequencies.size
        normal = estimate.posterior is None or withheld is not None
        low, high = (None, None) if normal else map(plain, estimate.interval(PUBLISHED_LEVEL))
        return cls(
            frequencies=plain(estimate.frequencies),
            standard_errors=errors if withheld else plain(estimate.standard_errors),
            iterations=estimate.iterations,
            converged=estimate.converged,
            gap=None if math.isnan(estimate.gap) else estimate.gap,
            low=low,
            high=high,
            interval_withheld=withheld,
        )

    @classmethod
    def nothing(cls, k: int) -> "Frequencies":
        return cls(frequencies=[None] * k, standard_errors=[None] * k, iterations=0, converged=False)

    def estimate(self) -> Estimate:
        gap = math.nan if self.gap is None else self.gap
        f, errors = with_nan(self.frequencies), with_nan(self.standard_errors)
        ends = None if self.low is None or self.high is None else Ends(f, with_nan(self.low), with_nan(self.high))
        return Estimate(f, errors, 0, self.iterations, self.converged, gap=gap, posterior=ends)


@dataclass(frozen=True, slots=True)
class Ends:
    """Shares with the ends of their 95 % intervals, (k,) each."""

    frequencies: FloatArray
    low: FloatArray
    high: FloatArray

    def interval(self, level: float) -> tuple[FloatArray, FloatArray]:
        """Returns intervals in [0, 1]. For a level other than 0.95, the ends are scaled as for a normal distribution."""
        if level == PUBLISHED_LEVEL:
            return self.low, self.high
        scale = ndtri(0.5 + level / 2) / NORMAL
        low, high = (self.frequencies + scale * (end - self.frequencies) for end in (self.low, self.high))
        return np.clip(low, 0, 1), np.clip(high, 0, 1)


NUMBERS = ("mean", *(f"p{100 * q:g}" for q in PERCENTILES))  # names of the published numbers: "p99" for the 0.99-quantile


class NumberEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """A number of the population, such as a percentile, with its 95 % interval. Without an interval, the ends are None."""

    value: float
    low: float | None
    high: float | None


class TrueAnswers(NamedTuple):
    """The true answers of simulated people in the span of a publication.

    Attributes:
        shares: (k,) true frequencies; None if nobody answered.
        numbers: the true value of each published number, by its name, from the numbers as people have them.
    """

    shares: list[float] | None
    numbers: dict[str, float]


UNKNOWN = TrueAnswers(None, {})


def true_numbers(numbers: FloatArray) -> dict[str, float]:
    """Returns the mean and the percentiles of people's numbers, by their names in `NUMBERS`; nothing without numbers.

    >>> true_numbers(np.array([1.0, 2.0, 6.0]))
    {'mean': 3.0, 'p50': 2.0, 'p90': 6.0, 'p99': 6.0}
    """
    if not numbers.size:
        return {}
    found = [numbers.mean(), *np.quantile(numbers, PERCENTILES, method="inverted_cdf")]
    return {name: float(x) for name, x in zip(NUMBERS, found, strict=True)}


def of_sets(found: Number | None, withheld: Withheld | None) -> dict[str, NumberEstimate]:
    return {} if found is None else {"mean": _number(found, withheld)}


def _number(x: Number, withheld: Withheld | None) -> NumberEstimate:
    low, high = (None, None) if withheld else (float(x.low), float(x.high))
    return NumberEstimate(value=float(x.value), low=low, high=high)


def numbers_of(
    estimate: Estimate, edges: Sequence[float] | None, bins: bool, withheld: Withheld | None = None
) -> dict[str, NumberEstimate]:
    """Returns the mean and the percentiles of an attribute's numbers, by their names in `NUMBERS`.

    Args:
        bins: true if a number may lie anywhere in its bin; false for integers, each in the middle between two edges.

    Returns:
        No numbers without edges, or if `quantiles.mean` or `quantiles.quantiles` returns None for the estimate.
    """
    if edges is None or (average := mean(estimate, edges, anywhere=bins)) is None:
        return {}
    percentiles = quantiles(estimate, edges)
    assert percentiles is not None
    return {name: _number(x, withheld) for name, x in zip(NUMBERS, (average, *percentiles), strict=True)}


def plain(numbers: FloatArray) -> list[float | None]:
    found: list[Any] = numbers.tolist()
    return [None if math.isnan(x) else x for x in found] if np.isnan(numbers).any() else found


def plain_number(x: float) -> float | None:
    return None if math.isnan(x) else float(x)


def with_nan(numbers: list[float | None]) -> FloatArray:
    return np.array(numbers, np.float64)
