"""Differences of two estimates of one attribute: their standard errors, and which differences are more than chance.

    Var(f̂₂ - f̂₁) = s₁² + s₂² - 2 Cov(f̂₁, f̂₂)

If nobody counts in both estimates, the covariance is 0; otherwise a lower bound takes its place.

Any estimator: Cov >= -s₁ s₂ (Cauchy and Schwarz).

Matrix inversion of one level: a value's estimate is a sum of independent contributions, one per person. Given a person's
values, the covariance of the noise is at least 0. Let u and w be the shares of the person's reports in each span that encode
v, with the means F₁ and F₂. As u w >= max(0, u + w - 1), their covariance is at least -min(F₁F₂, (1-F₁)(1-F₂)). A person makes
at most `each` reports in a span of n reports, so

    Cov(f̂₁, f̂₂) >= -d² min(F₁F₂, (1-F₁)(1-F₂)) / max(n₁/each₁, n₂/each₂)

With fake data (RS+FD, d attributes) F are the shares of the encoded values; otherwise d = 1 and F = f.

Source: derived here, with Fréchet's inequality for Pr[A and B]. `beyond_chance`: Holm 1979, "A simple sequentially rejective
multiple test procedure".
"""

import math

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from ldpstream.estimators.estimate import Estimate
from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import FloatArray


def separate_errors(before: Estimate, after: Estimate) -> FloatArray:
    """Standard errors of `after.frequencies - before.frequencies` if nobody counts in both, (k,); NaN where an error is NaN."""
    return np.hypot(before.standard_errors, after.standard_errors)


def difference_errors(before: Estimate, after: Estimate, m: Mechanism | None = None, people: float = 0.0) -> FloatArray:
    """Conservative standard errors of `after.frequencies - before.frequencies`, (k,); NaN where an error is NaN.

    Args:
        before, after: estimates of the same attribute by the same estimator.
        m: the mechanism, if both estimates are raw matrix inversions of its counts; otherwise None, for the bound s₁ + s₂.
        people: max(n₁/each₁, n₂/each₂) of the module's docstring, above 0; ignored without `m`.

    Raises:
        ValueError: if `m` is given and `people` is not positive.
    """
    largest = before.standard_errors + after.standard_errors
    if m is None:
        return largest
    if not people > 0:
        raise ValueError(f"people must be positive, got {people!r}")
    first, second = (m.reading.encoded(np.clip(estimate.frequencies, 0, 1)) for estimate in (before, after))
    opposed = m.fakes**2 * np.minimum(first * second, (1 - first) * (1 - second)) / people
    own = before.standard_errors**2 + after.standard_errors**2
    return np.asarray(np.minimum(largest, np.sqrt(own + 2 * opposed)))


def unchanged_errors(before: Estimate, after: Estimate, people: tuple[float, float]) -> FloatArray:
    """Standard errors of `after.frequencies - before.frequencies` if the shares are equal, (k,); NaN where an error is NaN.

    People who count at both times are taken as independent.

    Args:
        people: number of people at each time, above 0.
    """
    one, other = people
    single = np.maximum(one * before.standard_errors**2, other * after.standard_errors**2)
    return np.asarray(np.sqrt(single * (1 / one + 1 / other)))


def evidence(differences: FloatArray, errors: FloatArray) -> FloatArray:
    """Absolute differences in units of their standard errors, (k,); NaN where a difference or an error is NaN.

    >>> evidence(np.array([0.2, -0.1, 0.0]), np.array([0.1, 0.0, 0.0])).tolist()
    [2.0, inf, 0.0]
    """
    sizes = np.abs(differences)
    return np.asarray(np.divide(sizes, errors, out=np.where(sizes > 0, np.inf, sizes), where=errors != 0))


def chances(differences: FloatArray, errors: FloatArray) -> FloatArray:
    """Probabilities of absolute differences this large if the true ones are 0, (k,); NaN where an argument is NaN.

    Args:
        differences: (k,) differences; normally distributed around the true differences.
        errors: (k,) their standard errors, or upper bounds.
    """
    return np.asarray(2 * ndtr(-evidence(differences, errors)))


def beyond_chance(p: FloatArray, rate: float = 0.05) -> npt.NDArray[np.bool_]:
    """Marks the differences that are more than chance, (k,) bool, by Holm's procedure.

    The probability of one or more false marks is at most `rate`, for any dependence between the tests. So it also bounds the
    probability that a sentence about some of the marked differences is false.

    Args:
        p: (k,) probabilities of `chances`. A difference with NaN is not marked and not counted.
        rate: in (0, 1).
    """
    known = np.sort(p[~np.isnan(p)])
    failed = np.flatnonzero(known > rate / np.arange(known.size, 0, -1))
    return np.asarray(p < (known[failed[0]] if failed.size else math.inf))
