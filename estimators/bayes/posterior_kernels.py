"""Loops of the empirical-Bayes estimate, compiled by Numba. The arrays are those of `estimators.bayes.value_likelihood`.

Import this module only inside functions, because Numba loads slowly.
"""

import math
from typing import Any

import numba
import numpy as np

from ldpstream.estimators.bayes import exponential
from ldpstream.estimators.bayes.exponential import SUMS, Floats, exp

LEAST = 1e-290  # smallest prior probability of a point
WIDEST = 600.0  # largest difference of by · f over the grid, in nats; beyond it, the weight of a point could overflow
SMALLEST, LARGEST = 1e-250, 1e250  # if the sum of a kind is outside, the loop computes the kind again with logarithms

Entries = tuple[Floats, ...]


@numba.njit(cache=True, error_model="numpy")
def _exp_or_zero(x: float) -> Any:
    """Returns e^x for x up to 700, and 0 if x is below -700."""
    return exp(x) if x >= exponential.LEAST else 0.0


@numba.njit(cache=True, error_model="numpy", fastmath=SUMS)
def moments(entries: Entries, prior: Floats, by: float, mean: Floats, variance: Floats, mass: Floats) -> tuple[float, float]:
    """Posterior of every kind under the prior tilted by exp(by · f).

    Args:
        entries: the likelihood and the log-likelihood of each entry, and `start`, `first`, `points` and `times`.
        mean, variance: (kinds,) overwritten with the posteriors' means and variances.
        mass: (J,) overwritten with the sum of all values' posteriors.

    Returns:
        The sum of all values' means, and that of their variances.
    """
    like, log_like, start, first, points, times = entries
    size, longest = points.size, 0
    narrow, middle = abs(by) * (points[size - 1] - points[0]) <= WIDEST, (points[0] + points[size - 1]) / 2
    weight = np.zeros(size)
    for j in range(size):
        mass[j] = 0.0
        if narrow:
            weight[j] = prior[j] * exp(by * (points[j] - middle))
    for i in range(first.size):
        longest = max(longest, start[i + 1] - start[i])
    chance = np.empty(longest)
    sum_of_means, sum_of_variances = 0.0, 0.0
    for i in range(first.size):
        n = start[i + 1] - start[i]
        own, log_own = like[start[i] : start[i + 1]], log_like[start[i] : start[i + 1]]
        f, tilted, chances, drawn = points[first[i] :], weight[first[i] :], prior[first[i] :], mass[first[i] :]
        total, sum_1, sum_2 = 0.0, 0.0, 0.0
        for j in range(n):
            chance[j] = own[j] * tilted[j]
            total += chance[j]
            sum_1 += chance[j] * f[j]
        if not SMALLEST < total < LARGEST:
            largest, total, sum_1 = -math.inf, 0.0, 0.0
            for j in range(n):
                largest = max(largest, log_own[j] + by * f[j])
            for j in range(n):
                chance[j] = math.exp(log_own[j] + by * f[j] - largest) * chances[j]
                total += chance[j]
                sum_1 += chance[j] * f[j]
        centre, share = sum_1 / total, times[i] / total
        for j in range(n):
            away = f[j] - centre
            sum_2 += chance[j] * away * away
            drawn[j] += share * chance[j]
        mean[i], variance[i] = centre, sum_2 / total
        sum_of_means += times[i] * centre
        sum_of_variances += times[i] * variance[i]
    return sum_of_means, sum_of_variances


@numba.njit(cache=True, error_model="numpy")
def newton_step(sum_of_means: float, sum_of_variances: float, longest: float) -> float:
    """Returns the number to subtract from λ: Newton's step for the condition that the means sum to 1, limited to ±`longest`."""
    step = (sum_of_means - 1) / max(sum_of_variances, 1e-300)
    return min(max(step, -longest), longest)


@numba.njit(cache=True, error_model="numpy", fastmath=SUMS)
def fit_prior(entries: Entries, base: Floats, mass: float, rounds: int, longest: float, prior: Floats, by: float) -> float:
    """Makes EM steps for the prior of the shares, and Newton steps for λ; returns the new λ.

    Args:
        base: (J,) base distribution of the Dirichlet process.
        mass: number of further values that each step counts, distributed as `base`.
        prior: (J,) the first prior; overwritten with the fitted prior.
    """
    points, times = entries[4], entries[5]
    (mean, variance), drawn, k = np.empty((2, times.size)), np.empty(points.size), times.sum()
    for _ in range(rounds):
        means, variances = moments(entries, prior, by, mean, variance, drawn)
        for j in range(points.size):
            prior[j] = max((mass * base[j] + drawn[j]) / (mass + k), LEAST)
        by -= newton_step(means, variances, longest)
    return by


@numba.njit(cache=True, error_model="numpy")
def meet_sum(
    entries: Entries, prior: Floats, by: float, rounds: int, tolerance: float, longest: float, mean: Floats, variance: Floats,
    mass: Floats,
) -> tuple[float, float, float]:  # fmt: skip
    """Makes Newton steps for λ under a fixed prior, until the means sum to 1 to within `tolerance`, or after `rounds` steps.

    Args:
        mean, variance, mass: overwritten as by `moments`, in the last round.

    Returns:
        The sum of the means in the last round, the λ of this round, and the λ after the last step.
    """
    low, high, means, evaluated = -math.inf, math.inf, math.nan, by
    for _ in range(rounds):
        evaluated = by
        means, variances = moments(entries, prior, by, mean, variance, mass)
        if means > 1:
            high = by
        else:
            low = by
        if abs(means - 1) <= tolerance:
            break
        by -= newton_step(means, variances, longest)
        if not low < by < high:
            by = (low + high) / 2
    return means, evaluated, by


@numba.njit(cache=True, error_model="numpy", fastmath=SUMS)
def tilt(entries: Entries, prior: Floats, by: float, like: Floats, chances: Floats, largest: Floats) -> None:
    """Writes exp(log_like + by · f) to `like`, divided by the largest number of each kind.

    Args:
        chances: overwritten with the posterior of every kind, one probability for each entry.
        largest: (kinds,) overwritten with the logarithm of each kind's largest number.
    """
    _, log_like, start, first, points, _ = entries
    for i in range(first.size):
        own, log_own, found = like[start[i] : start[i + 1]], log_like[start[i] : start[i + 1]], chances[start[i] : start[i + 1]]
        f, before, highest, norm = points[first[i] :], prior[first[i] :], -math.inf, 0.0
        for j in range(own.size):
            own[j] = log_own[j] + by * f[j]
            highest = max(highest, own[j])
        for j in range(own.size):
            own[j] = _exp_or_zero(own[j] - highest)
            found[j] = own[j] * before[j]
            norm += found[j]
        for j in range(own.size):
            found[j] /= norm
        largest[i] = highest


@numba.njit(cache=True, error_model="numpy", fastmath=SUMS)
def given_others(
    entries: Entries, like: Floats, base: Floats, mass: float, total: Floats, chances: Floats, found: Floats, norm: Floats,
    mean: Floats, variance: Floats,
) -> None:  # fmt: skip
    """Posterior of every kind, if the prior is fitted to the other values only.

    Args:
        like, chances: as `tilt` writes them.
        base, mass: as in `fit_prior`.
        total: (J,) sum of all values' posteriors.
        found: overwritten with the posteriors times `norm`, one number for each entry.
        norm, mean, variance: (kinds,) overwritten with the posteriors' norms, means and variances.
    """
    _, _, start, first, points, _ = entries
    for i in range(first.size):
        own, share, weight = like[start[i] : start[i + 1]], chances[start[i] : start[i + 1]], found[start[i] : start[i + 1]]
        f, of_base, of_all, sum_0, sum_1, sum_2 = points[first[i] :], base[first[i] :], total[first[i] :], 0.0, 0.0, 0.0
        for j in range(own.size):
            weight[j] = own[j] * (mass * of_base[j] + max(of_all[j] - share[j], 0.0))
            sum_0 += weight[j]
            sum_1 += weight[j] * f[j]
        centre = sum_1 / sum_0
        for j in range(own.size):
            sum_2 += weight[j] * (f[j] - centre) ** 2
        norm[i], mean[i], variance[i] = sum_0, centre, sum_2 / sum_0


@numba.njit(cache=True, error_model="numpy", fastmath=SUMS)
def blur(padded: Floats, weights: Floats, found: Floats) -> None:
    """Writes the moving weighted sums of `padded`, which is longer by the number of weights minus 1, to `found`."""
    found[:] = 0.0
    for a in range(weights.size):
        for j in range(found.size):
            found[j] += weights[a] * padded[j + a]


@numba.njit(cache=True, error_model="numpy", fastmath=SUMS)
def given_the_sum(entries: Entries, found: Floats, mean: Floats, others: Floats) -> None:
    """Conditions the posteriors of `given_others` on the sum of the shares, and normalises them.

    Args:
        others: (kinds,) variance of the sum of the other values' shares.
    """
    _, _, start, first, points, _ = entries
    for i in range(first.size):
        weight, f, norm, nearest = found[start[i] : start[i + 1]], points[first[i] :], 0.0, math.inf
        for j in range(weight.size):
            nearest = min(nearest, (f[j] - mean[i]) ** 2 / others[i])
        for j in range(weight.size):
            weight[j] *= _exp_or_zero((nearest - (f[j] - mean[i]) ** 2 / others[i]) / 2)
            norm += weight[j]
        for j in range(weight.size):
            weight[j] /= norm


@numba.njit(cache=True, error_model="numpy", fastmath=SUMS)
def fit_weights(entries: Entries, components: Floats, begin: Floats, rounds: int, longest: float, weights: Floats) -> None:
    """Makes EM steps for the weights of a mixture prior, and Newton steps for λ from λ = 0.

    Args:
        components: (components, J) probabilities of the points.
        begin: (components,) the first weights. Each step also counts them as one further value.
        rounds, longest: as in `fit_prior`.
        weights: (components,) overwritten with the fitted weights.
    """
    points, times = entries[4], entries[5]
    size, k, by = points.size, times.sum(), 0.0
    (mean, variance), (drawn, mixture) = np.empty((2, times.size)), np.empty((2, size))
    for a in range(begin.size):
        weights[a] = begin[a]
    for _ in range(rounds):
        mixture[:] = 0.0
        for a in range(begin.size):
            for j in range(size):
                mixture[j] += weights[a] * components[a, j]
        for j in range(size):
            mixture[j] = max(mixture[j], LEAST)
        means, variances = moments(entries, mixture, by, mean, variance, drawn)
        for j in range(size):
            drawn[j] /= mixture[j]
        for a in range(begin.size):
            told = 0.0
            for j in range(size):
                told += components[a, j] * drawn[j]
            weights[a] = (weights[a] * told + begin[a]) / (k + 1)
        by -= newton_step(means, variances, longest)


@numba.njit(cache=True, error_model="numpy")
def quantiles(below: Floats, ends: Floats, lowest: Floats, start: Floats, chances: Floats, found: Floats) -> None:
    """Writes the quantiles of each kind to `found`, (m, kinds), by linear interpolation within the cells.

    Args:
        below, ends, lowest, start: as in `estimators.bayes.posterior.Posterior`.
        chances: (m, kinds) chances, from 0 to 1.
    """
    for a in range(len(chances)):
        for i in range(lowest.size):
            chance, first, last = chances[a, i], start[i], start[i + 1] - 1
            while first < last:  # the first cell whose upper end has at least this chance below it, else the last cell
                middle = (first + last) // 2
                if below[middle] < chance:
                    first = middle + 1
                else:
                    last = middle
            low, before = lowest[i], 0.0
            if first > start[i]:
                low, before = ends[first - 1], below[first - 1]
            inside = (chance - before) / max(below[first] - before, 1e-300)
            found[a, i] = low + min(max(inside, 0.0), 1.0) * (ends[first] - low)
