"""Empirical Bayes without order, for more than nine values; `estimators.bayes.few_values` estimates at most nine.

The shares f_v are independent draws from an unknown prior G, given that they sum to 1. The inversion of value v has the
likelihood L_v(f) of `estimators.bayes.value_likelihood`.

1. Expectation maximisation (EM) fits G on a grid. A Dirichlet process with base H and mass M regularises G:

       G ← (M H + Σ_v posterior_v) / (M + k)

   H is a mixture of gamma distributions and power laws, whose weights EM fits, and of one power law with a fixed weight.
2. Given the sum, the posterior of value v is L_v(f) G(f) e^(λ f) in first order, normalised (saddle-point approximation). λ is
   the number for which the posterior means sum to 1.
3. The estimate is the mean over several masses M and over one further model: all shares are exactly 1/k. The weights are the
   prior odds times the probabilities of the counts under each model. The masses have equal odds; `EQUAL` is the logarithm of
   the further model's odds to each of them. Intervals do not use the further model.

Sources: Kiefer and Wolfowitz 1956; Jiang and Zhang 2009; Koenker and Mizera 2014 (grid); Ferguson 1973 (Dirichlet process).
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from ldpstream.estimators.bayes.few_values import FEW_VALUES, FewValues
from ldpstream.estimators.bayes.posterior import Posterior
from ldpstream.estimators.bayes.value_likelihood import (
    LARGE,
    SPACING,
    Observation,
    ValueLikelihood,
    observations,
    people_of,
    value_likelihood,
)
from ldpstream.estimators.estimate import Estimate, Group, Steps
from ldpstream.mechanisms.arguments import FloatArray, IntArray

SHAPES = np.array([0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1, 1.5, 2.5, 5, 10, 20, 50, 100, 300, 1000, 10_000])  # shapes in H
EXPONENTS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)  # exponents of the power laws in H
TAIL = 1.5  # exponent of a power law with a fixed part of H, so that any large share is possible
TAIL_SHARE, TAIL_VALUES = 0.05, 2.0  # this part is at most TAIL_SHARE, and at most TAIL_VALUES / k
FAR_BELOW = 0.8  # largest mean of H without the large values, in units of 1/k
NEARLY_EQUAL = 0.5  # first weight of the gamma distribution of nearly equal shares: EM keeps it if there is only noise
EQUAL = 2.0  # prior log-odds of exactly equal shares to each M
PARTS = (0.5, 0.2, 0.05)  # smaller means of further gamma distributions, as parts of the mean for SHAPES
PART_SHAPES = (1, 10)  # shapes of these distributions
BASE_ROUNDS = 60  # EM steps for the weights of H
MASSES = (1024.0, 128.0, 16.0, 2.0)  # the masses M, as numbers of values
SMALL_DOMAIN = 16.0  # this number / k is added to each M
ROUNDS = 10  # EM steps for G and each M
NEWTON_STEPS = 30  # largest number of further Newton steps for λ
BLUR = 2.0  # standard deviation of the normal density that smooths G for intervals, in points of the grid
REACH = round(4 * BLUR)  # the points within four deviations
BLUR_WEIGHTS = special.softmax(-((np.arange(-REACH, REACH + 1) / BLUR) ** 2) / 2)  # this density at these points
LONGEST = 5.0  # largest Newton step, in units of k + 1 / standard error
SUM_TOLERANCE = 1e-12  # the Newton steps end at this distance of the sum of the shares from 1
NOT_MANY, NAMED = 40, 20  # see `named_values`


def unordered_posterior(groups: list[Group], steps: Steps) -> Estimate:
    """Posterior means of the shares of values without order, with intervals."""
    k = groups[0][0].k
    n = sum(table.n for _, table in groups)
    seen = observations(groups, steps)
    if not seen:
        return Estimate.of_nothing(k, n)
    if k <= FEW_VALUES:
        few = FewValues.of(seen, k)
        exact = few.posterior(*people_of(groups, steps))
        return Estimate(few.mean, exact.standard_errors, n, posterior=exact)
    values = value_likelihood(seen, k)
    mean, on_grid, converged = fit_values(values, k)
    f = mean[values.kind]
    posterior = Posterior.of(values, mean, on_grid, *people_of(groups, steps), named=named_values(f))
    return Estimate(f / f.sum(), posterior.standard_errors, n, len(MASSES) * ROUNDS, converged, posterior=posterior)


def named_values(shares: FloatArray) -> npt.NDArray[np.bool_]:
    """Returns true for the named values, (k,): each of their intervals holds. The others' intervals hold on average.

    All values are named if there are at most `NOT_MANY`; otherwise the `NAMED` values with the largest shares are.
    """
    named = np.full(shares.size, shares.size <= NOT_MANY)
    named[np.argsort(-shares, kind="stable")[:NAMED]] = True
    return named


def posterior_means(seen: list[Observation], k: int) -> FloatArray:
    """Returns the frequencies of `unordered_posterior` from at least one observation, (k,)."""
    if k <= FEW_VALUES:
        return FewValues.of(seen, k).mean
    values = value_likelihood(seen, k)
    f = fit_values(values, k, intervals=False)[0][values.kind]
    return np.asarray(f / f.sum())


_Entries = tuple[FloatArray, FloatArray, IntArray, IntArray, FloatArray, FloatArray]


def _entries(values: ValueLikelihood) -> _Entries:
    return np.exp(values.log_like), values.log_like, values.start, values.first, values.points, values.times


@dataclass(frozen=True, slots=True)
class _Fit:
    score: float
    mean: FloatArray
    posterior: FloatArray
    excess: float


def fit_values(values: ValueLikelihood, k: int, intervals: bool = True) -> tuple[FloatArray, FloatArray, bool]:
    """Averages the fits of all M and the model of equal shares, weighted by their scores.

    Args:
        values: the likelihoods.
        k: number of values.
        intervals: false to leave out the posterior for intervals.

    Returns:
        The posterior mean of each kind; the posterior for intervals, without the model of equal shares; and true if the shares
        sum to 1 to within 1e-6.
    """
    merged = values.merged()
    entries, of_merged = _entries(values), _entries(merged)
    base = _base(merged, k)
    prior, by, fits = base.copy(), 0.0, []
    for mass in MASSES:
        fit, by = _fit_mass(values, entries, of_merged, base, mass + SMALL_DOMAIN / k, prior, by, intervals)
        fits.append(fit)
    weights = special.softmax([*(fit.score for fit in fits), EQUAL + _score_of_equal_shares(values, k)])
    mean = np.sum([weight * fit.mean for weight, fit in zip(weights[:-1], fits, strict=True)], axis=0) + weights[-1] / k
    weights = special.softmax([fit.score for fit in fits])
    posterior = np.sum([weight * fit.posterior for weight, fit in zip(weights, fits, strict=True)], axis=0)
    return mean, posterior, max(abs(fit.excess) for fit in fits) <= 1e-6


def _fit_mass(
    values: ValueLikelihood, entries: _Entries, merged: _Entries, base: FloatArray, mass: float, prior: FloatArray, by: float,
    intervals: bool,
) -> tuple[_Fit, float]:  # fmt: skip
    """Overwrites `prior` with G. Returns the fit and λ."""
    from ldpstream.estimators.bayes.posterior_kernels import blur, fit_prior, given_others, given_the_sum, meet_sum, tilt

    longest, (_, log_like, _, _, points, times) = _longest(values, values.kind.size), entries
    (like, wide, smooth_chances), smooth = np.empty((3, log_like.size)), np.empty(points.size)
    around, around_total = np.zeros(log_like.size + 2 * REACH), np.empty(points.size + 2 * REACH)
    chances, total = around[REACH:-REACH], around_total[REACH:-REACH]
    mean, variance, largest, norm, centre, spread = np.empty((6, times.size))
    by = fit_prior(merged, base, mass, ROUNDS, longest, prior, by)
    sum_of_means, evaluated, by = meet_sum(entries, prior, by, NEWTON_STEPS, SUM_TOLERANCE, longest, mean, variance, total)
    tilt(entries, prior, evaluated, like, chances, largest)
    given_others(entries, like, base, mass, total, chances, wide, norm, centre, spread)
    fitted, k = (mass * base + total) / (mass + times.sum()), times.sum()
    ratio = k * (fitted @ points**2 - (fitted @ points) ** 2) / (times @ variance + 1e-300)
    score = times @ (np.log(norm / (mass + k - 1)) + largest) - evaluated + math.log(max(ratio, 1.0)) / 2
    if intervals:
        around_total[:REACH], around_total[-REACH:] = total[0], total[-1]
        blur(around_total, BLUR_WEIGHTS, smooth)
        blur(around, BLUR_WEIGHTS, smooth_chances)
        given_others(entries, like, base, mass, smooth, smooth_chances, wide, norm, centre, spread)
        others = np.maximum(times @ spread - spread, (SPACING * values.error) ** 2)  # at least about the width of a cell
        given_the_sum(entries, wide, centre, others)
    return _Fit(float(score), mean, wide, sum_of_means - 1), by


def _longest(values: ValueLikelihood, k: int) -> float:
    return LONGEST * (k + 1 / values.error)


def _score_of_equal_shares(values: ValueLikelihood, k: int) -> float:
    point = int(np.searchsorted(values.points, 1 / k))
    at = values.start[:-1] + point - values.first
    if (at < values.start[:-1]).any() or (at >= values.start[1:]).any() or values.points[point] != 1 / k:
        return -math.inf
    return float(values.times @ values.log_like[at])


def _base(values: ValueLikelihood, k: int) -> FloatArray:
    from ldpstream.estimators.bayes.posterior_kernels import LEAST, fit_weights

    mean = _mean_of_the_rest(values, k)
    laws = values.power_laws(k, np.array([*EXPONENTS, TAIL]))
    means, shapes = np.outer(PARTS, np.full(len(PART_SHAPES), mean)).ravel(), np.tile(PART_SHAPES, len(PARTS))
    gammas = values.gammas(np.append(np.full(SHAPES.size, mean), means), np.append(SHAPES, shapes))
    components = np.concatenate([gammas[: SHAPES.size], laws[:-1], gammas[SHAPES.size :]])
    first = np.full(len(components), (1 - NEARLY_EQUAL) / len(components))
    first[len(SHAPES) - 1] += NEARLY_EQUAL
    weights = np.empty(len(components))
    fit_weights(_entries(values), components, first, BASE_ROUNDS, _longest(values, k), weights)
    tail = min(TAIL_SHARE, TAIL_VALUES / k)
    mixture = (1 - tail) * weights @ components + tail * laws[-1]
    return np.asarray(np.maximum(mixture, LEAST))


def _mean_of_the_rest(values: ValueLikelihood, k: int) -> float:
    large = values.unbiased > LARGE * values.error
    count = float(values.times[large].sum())
    left = 1 - float(values.times[large] @ values.unbiased[large])
    mean = max(left, math.sqrt(count) * values.error) / max(k - count, 1)  # at least the error of the large shares' sum
    return mean if count <= k / 2 and mean < FAR_BELOW / k else 1 / k
