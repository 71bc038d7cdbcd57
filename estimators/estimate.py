"""The result of an estimator of frequencies, and checks of its arguments."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.special import ndtri

from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import FloatArray, integer, real
from ldpstream.mechanisms.table import CountTable

Group = tuple[Mechanism, CountTable]  # one level's mechanism and counts (group A in GIBU)
PUBLISHED_LEVEL = 0.95  # level of the published intervals
NORMAL = float(ndtri(0.5 + PUBLISHED_LEVEL / 2))  # half the width of a normal interval with this level, in standard errors
LEAST_LEVEL, MOST_LEVEL = 1e-9, 1 - 1e-9  # smallest and largest level of an interval
Steps = int | Sequence[int]  # largest number of reports of one person in the table: one number for all groups, or one for each


class Intervals(Protocol):
    """A posterior distribution of the shares that gives intervals."""

    def interval(self, level: float) -> tuple[FloatArray, FloatArray]: ...


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated frequencies with their uncertainty.

    Attributes:
        frequencies: (k,) estimated share of each value; NaN if the counts carry no information.
        standard_errors: (k,) standard error of each share; NaN if unknown.
        n: number of reports in the tables.
        iterations: number of iterations, if the estimator counts them; otherwise 0.
        converged: false if there is no estimate, or if an iteration ended without meeting its tolerance.
        log_likelihood: log-likelihood at the estimate, in nats (IBU, MLE and EMS; otherwise NaN).
        gap: bound in nats per report (IBU, MLE and EMS; otherwise NaN). No distribution's log-likelihood is higher by more than
            n times `gap`.
        posterior: posterior distribution of the shares; None if the intervals are normal.
    """

    frequencies: FloatArray
    standard_errors: FloatArray
    n: int
    iterations: int = 0
    converged: bool = True
    log_likelihood: float = float("nan")
    gap: float = float("nan")
    posterior: Intervals | None = None

    @classmethod
    def of_nothing(cls, k: int, n: int) -> "Estimate":
        """Returns an estimate of k values from n reports without information: all numbers are NaN, `converged` is false."""
        return cls(np.full(k, np.nan), np.full(k, np.nan), n, converged=False)

    def times(self, factor: int | None, most: float = math.inf) -> "Estimate":
        """Returns the estimate with all shares multiplied by a factor.

        Args:
            factor: at least 1; None to change nothing.
            most: upper limit of the shares, and of the ends of a posterior's intervals.
        """
        if factor is None:
            return self
        posterior = None if self.posterior is None else Multiplied(self.posterior, factor, most)
        frequencies = np.minimum(factor * self.frequencies, most)
        return replace(self, frequencies=frequencies, standard_errors=factor * self.standard_errors, posterior=posterior)

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Returns the lower and upper ends of the intervals, (k,) each, for a level from LEAST_LEVEL to MOST_LEVEL.

        With a posterior, the interval comes from the posterior and contains the estimate. Without a posterior, the intervals
        are normal and may leave [0, 1].
        """
        level = real("level", level, LEAST_LEVEL, MOST_LEVEL)
        if self.posterior is not None:
            low, high = self.posterior.interval(level)
            return np.minimum(low, self.frequencies), np.maximum(high, self.frequencies)
        half = ndtri(0.5 + level / 2) * self.standard_errors
        return self.frequencies - half, self.frequencies + half


@dataclass(frozen=True, slots=True)
class Multiplied:
    posterior: Intervals
    factor: int
    most: float

    def interval(self, level: float) -> tuple[FloatArray, FloatArray]:
        low, high = (np.minimum(self.factor * end, self.most) for end in self.posterior.interval(level))
        return low, high


def of_each_group(groups: list[Group], steps: Steps) -> list[int]:
    """Returns each group's `steps`.

    Raises:
        ValueError: if a number is not an integer in [1, 2^31], or if a sequence has more or fewer numbers than groups.
    """
    each = [integer("steps", n, 1, 2**31) for n in (steps if isinstance(steps, Sequence) else [steps] * max(1, len(groups)))]
    if len(each) != max(1, len(groups)):
        raise ValueError(f"steps must be one number or one for each of {len(groups)} groups, got {len(each)}")
    return each


def groups_of(m: Mechanism | Iterable[Group], table: CountTable | None = None, steps: Steps = 1) -> list[Group]:
    """Returns the arguments of an estimator as checked groups.

    Args:
        m, table: a mechanism and its count table; or m alone, a list of such pairs, one for each level.

    Raises:
        TypeError: if m and table are neither a mechanism with its table nor a list of such pairs alone.
        ValueError: if there is no pair, the domains differ, a table belongs to another mechanism or has invalid counts, or
            `steps` is wrong (`of_each_group`).
    """
    groups: list[Group] = []
    for pair in m if table is None and isinstance(m, Iterable) else [(m, table)]:
        match pair:
            case (Mechanism() as own, CountTable() as counts):
                groups.append((own, counts))
            case _:
                got = ", ".join(type(part).__name__ for part in pair) if isinstance(pair, tuple | list) else type(pair).__name__
                raise TypeError(f"an estimator needs a mechanism and its table, or a list of such pairs alone, got {got}")
    if not groups:
        raise ValueError("an estimator needs at least one mechanism with its table, got an empty list")
    of_each_group(groups, steps)
    k = groups[0][0].k
    for own, counts in groups:
        if own.k != k:
            raise ValueError(f"all levels must have one domain, got k = {k} and k = {own.k}")
        own.require(counts)
        own.table(counts.n, counts.counts)
    return groups
