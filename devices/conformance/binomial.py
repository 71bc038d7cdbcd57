"""Exact binomial tests of many counts at once.

If the claim holds, a two-sided p-value of at most a has probability at most a.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import betainc, ndtri

from ldpstream.mechanisms.arguments import FloatArray, IntArray

POWER = 0.9
CELLS = 256  # a uniform number with more outcomes is tested in groups of outcomes
GROUPS = 64
VALUE_GROUPS = 16  # for the dependence of a number on a value, each of them in at most this number of groups


@dataclass(frozen=True, slots=True)
class BinomialCounts:
    """Counts that one check compares with the claim.

    Attributes:
        successes, trials: (m,) counts.
        probabilities: (m,) probability of a success if the claim holds.
        rival: (m,) probability of a success for a device with the fault to detect; None for none.
    """

    place: str
    check: str
    successes: IntArray
    trials: IntArray
    probabilities: FloatArray
    rival: FloatArray | None = None

    @property
    def p_values(self) -> FloatArray:
        """(m,) two-sided p-values."""
        x, n, p = self.successes, self.trials, self.probabilities
        # Pr[X <= x] = I(1-p; n-x, x+1) and Pr[X >= x] = I(p; x, n-x+1), by the regularized incomplete beta function
        below = np.where(x >= n, 1.0, betainc(np.maximum(n - x, 1), x + 1, 1 - p))
        above = np.where(x <= 0, 1.0, betainc(np.maximum(x, 1), n - x + 1, p))
        return np.asarray(np.minimum(1.0, 2 * np.minimum(below, above)))


def counts(
    place: str,
    check: str,
    successes: npt.ArrayLike,
    trials: npt.ArrayLike,
    probabilities: npt.ArrayLike,
    rival: npt.ArrayLike | None = None,
) -> BinomialCounts:
    x, n, p, r = np.broadcast_arrays(np.atleast_1d(successes), trials, probabilities, math.nan if rival is None else rival)
    kept = n > 0
    x, n, p, r = x[kept].astype(np.int64), n[kept].astype(np.int64), p[kept].astype(np.float64), r[kept].astype(np.float64)
    return BinomialCounts(place, check, x, n, p, None if rival is None else r)


def by_probability(
    place: str, check: str, yes: npt.ArrayLike, probabilities: FloatArray, rivals: FloatArray | None = None
) -> BinomialCounts:
    """Counts (n,) independent events, with one count for all events of the same probability (up to rounding errors)."""
    _, first, group = np.unique(np.round(probabilities, 12), return_index=True, return_inverse=True)
    successes = np.bincount(group, np.asarray(yes, np.float64), first.size)
    trials = np.bincount(group, minlength=first.size)
    return counts(place, check, successes, trials, probabilities[first], None if rivals is None else rivals[first])


def uniform(place: str, check: str, numbers: IntArray, n: int) -> BinomialCounts:
    """Counts of numbers that the claim makes uniform in [0, n)."""
    edges = np.arange(n + 1) if n <= CELLS else np.arange(GROUPS + 1) * n // GROUPS
    below = np.searchsorted(np.sort(numbers), edges)
    cells, sizes = np.diff(below), np.diff(edges)
    successes, shares = np.concatenate([cells, below[2:-1]]), np.concatenate([sizes, edges[2:-1]]) / n
    return counts(place, check, successes, np.full(successes.size, numbers.size), shares) if n > 1 else _none(place, check)


def uniform_given(place: str, check: str, numbers: IntArray, n: int, values: IntArray, k: int) -> BinomialCounts:
    """Counts of numbers that the claim makes uniform in [0, n), for each value in [0, k)."""
    columns, rows = min(n, VALUE_GROUPS), min(k, VALUE_GROUPS)
    shares = np.bincount(np.arange(n) * columns // n) / n
    seen = np.bincount(values * rows // k * columns + numbers * columns // n, minlength=rows * columns).reshape(rows, columns)
    check = f"{check}, for each value"
    return counts(place, check, seen, seen.sum(axis=1)[:, None], shares) if n > 1 else _none(place, check)


def _none(place: str, check: str) -> BinomialCounts:
    return counts(place, check, np.zeros(0), np.zeros(0), np.zeros(0))


def detectable(trials: int, probability: float, alpha: float) -> float:
    """The change of a probability that a test of error probability alpha detects with probability `POWER` (normal
    approximation)."""
    return float((ndtri(1 - alpha / 2) + ndtri(POWER)) * math.sqrt(probability * (1 - probability) / trials))


def trials_needed(change: float, probability: float, alpha: float) -> int:
    """The smallest number of trials for which `detectable` is at most `change`."""
    return math.ceil((detectable(1, probability, alpha) / change) ** 2)
