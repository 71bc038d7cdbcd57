"""The table of the estimators that the service publishes, one row each.

To publish another estimator, add a row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from ldpstream.estimators.diagnostics import MAX_BIAS, bias, free_maximum
from ldpstream.estimators.empirical_bayes import empirical_bayes
from ldpstream.estimators.estimate import Estimate, Group
from ldpstream.estimators.matrix_inversion import matrix_inversion
from ldpstream.estimators.maximum.ems import ems
from ldpstream.estimators.maximum.likelihood import ibu, mle
from ldpstream.estimators.sets import shares_of_people
from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.publishing.estimates.frequencies import Withheld

INVERSION = "mi"  # the raw matrix inversion, which the filter observes and which requests may post-process
FILTER = "filter"  # the filtered curve
MAX_FILTERED = 10_000  # values; an attribute with more values has no filtered curve (a state of 1.2 kB per value)
MAX_LIKELIHOOD = 10_000  # values; for more, IBU and maximum likelihood are not published (time, and bytes of a publication)

For = Literal["any mechanism", "mechanisms of categories", "mechanisms of numbers"]
Intervals = Literal["always", "unless biased", "never"]


@dataclass(frozen=True)
class AttributeCounts:
    """The counts of an attribute over a span.

    Attributes:
        reports: largest number of reports of one person, for each level.
        in_order: true if neighbouring values are similar.
        edges: the k + 1 edges of the values' numbers; None if the values are not numbers.
    """

    groups: list[Group]
    reports: list[int]
    in_order: bool = False
    edges: Sequence[float] | None = None

    @property
    def k(self) -> int:
        return self.groups[0][0].k

    @property
    def n(self) -> int:
        """Number of reports."""
        return sum(table.n for _, table in self.groups)

    @cached_property
    def inversion(self) -> Estimate:
        """The raw matrix inversion."""
        return matrix_inversion(self.groups, steps=self.reports)

    @cached_property
    def free(self) -> FloatArray:
        """Approximate maximum of the likelihood if shares may be negative, (k,); without p and q, the raw inversion."""
        pure = all(m.pure for m, _ in self.groups)
        return free_maximum(self.groups, self.inversion) if pure else self.inversion.frequencies


@dataclass(frozen=True, kw_only=True)
class PublishedEstimator:
    """One row of the table.

    Attributes:
        mechanisms: the mechanisms for which it is published. An attribute with Square Wave has "mechanisms of numbers".
        max_k: largest number of values for which it is published; None for any number.
        intervals: "always", "never", or "unless biased": an estimate with a large bias is published without intervals.
        make: calculates the estimate. None for the filter, which needs earlier steps (`publishing.estimates.filtering`).
    """

    name: str
    label: str
    meaning: str
    mechanisms: For = "any mechanism"
    max_k: int | None = None
    intervals: Intervals = "always"
    make: Callable[[AttributeCounts], Estimate] | None

    def estimate(self, counts: AttributeCounts) -> Estimate:
        assert self.make is not None, f"{self.name} has no estimate from one span"
        return self.make(counts)

    def of_people(self, estimate: Estimate, most: int | None) -> Estimate:
        """Returns shares of people: for sets of at most `most` values, the shares of drawn members times this number."""
        return estimate.times(most) if most is None or self.name == INVERSION else shares_of_people(estimate, most)

    def withheld(self, estimate: Estimate, counts: AttributeCounts) -> Withheld | None:
        """Returns "bias" if the intervals must be withheld because of the estimate's bias, otherwise None."""
        if self.intervals == "always" or np.isnan(estimate.frequencies).any():
            return None
        if self.intervals == "never" or np.isnan(estimate.standard_errors).all():
            return "bias"
        return "bias" if bias(estimate, counts.inversion, counts.free) > MAX_BIAS else None


def _empirical_bayes(counts: AttributeCounts) -> Estimate:
    ordered = counts.in_order or is_numeric([m for m, _ in counts.groups])
    widths = np.diff(counts.edges) if ordered and counts.edges is not None else None
    return empirical_bayes(counts.groups, ordered=ordered, widths=widths, steps=counts.reports)


ESTIMATORS: tuple[PublishedEstimator, ...] = (
    PublishedEstimator(
        name="eb",
        label="empirical Bayes (default)",
        meaning="Empirical Bayes moves uncertain shares towards usual sizes. No share is negative.",
        make=_empirical_bayes,
    ),
    PublishedEstimator(
        name="ems",
        label="EMS (smoothed likelihood)",
        meaning="EMS is maximum likelihood with smoothing, from the literature of Square Wave. It is biased.",
        mechanisms="mechanisms of numbers",
        intervals="never",
        make=lambda counts: ems(counts.groups),
    ),
    PublishedEstimator(
        name=INVERSION,
        label="matrix inversion (unbiased)",
        meaning="Matrix inversion is unbiased, so the share of a rare value can be negative.",
        make=lambda counts: counts.inversion,
    ),
    PublishedEstimator(
        name="ibu",
        label="IBU (likelihood)",
        meaning="The iterative Bayesian update nears the maximum likelihood. It is biased if values are many and reports few.",
        mechanisms="mechanisms of categories",
        max_k=MAX_LIKELIHOOD,
        intervals="unless biased",
        make=lambda counts: ibu(counts.groups, steps=counts.reports, likelihood="support"),
    ),
    PublishedEstimator(
        name="mle",
        label="maximum likelihood",
        meaning="Maximum likelihood gives no negative shares. It is biased if values are many and reports few.",
        mechanisms="mechanisms of categories",
        max_k=MAX_LIKELIHOOD,
        intervals="unless biased",
        make=lambda counts: mle(counts.groups, steps=counts.reports, likelihood="support"),
    ),
    PublishedEstimator(
        name=FILTER,
        label="filter (all steps)",
        meaning="The filter estimates the shares at a step from all steps so far.",
        max_k=MAX_FILTERED,
        make=None,
    ),
)


def estimators(mechanisms: Sequence[Mechanism]) -> tuple[PublishedEstimator, ...]:
    """Returns the estimators of the spans "step" and "window", the default first."""
    wanted = "mechanisms of numbers" if is_numeric(mechanisms) else "mechanisms of categories"
    return tuple(
        row
        for row in ESTIMATORS
        if row.make is not None
        and row.mechanisms in ("any mechanism", wanted)
        and (row.max_k is None or mechanisms[0].k <= row.max_k)
    )


def is_numeric(mechanisms: Sequence[Mechanism]) -> bool:
    return any(m.answers == "numbers" for m in mechanisms)
