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


@numba.njit(cache=True, error_model="numpy")
def _exp_or_zero(x: float) -> Any:
    """Returns e^x for x up to 700, and 0 if x is below -700."""
    return exp(x) if x >= exponential.LEAST else 0.0


@numba.njit(cache=True, error_model="numpy", fastmath=SUMS)
def tilt(log_like: Floats, start: Floats, first: Floats, points: Floats, by: float, like: Floats) -> None:
    """Writes exp(log_like + by · f) to `like`, scaled so that the largest number of each kind is 1."""
    for i in range(first.size):
        own, log_own = like[start[i] : start[i + 1]], log_like[start[i] : start[i + 1]]
        f, largest = points[first[i] :], -math.inf
        for j in range(own.size):
            own[j] = log_own[j] + by * f[j]
            largest = max(largest, own[j])
        for j in range(own.size):
            own[j] = _exp_or_zero(own[j] - largest)


@numba.njit(cache=True, error_model="numpy", fastmath=SUMS)
def posterior(
    like: Floats, start: Floats, first: Floats, points: Floats, prior: Floats, times: Floats, mean: Floats, variance: Floats,
    mass: Floats,
) -> None:  # fmt: skip
    """Posterior of every kind, into `mean` and `variance`, and the sum of all values' posteriors, into `mass`."""
    mass[:] = 0.0
    for i in range(mean.size):
        own, chances, f, drawn = like[start[i] : start[i + 1]], prior[first[i] :], points[first[i] :], mass[first[i] :]
        total, sum_1 = 0.0, 0.0
        for j in range(own.size):
            p = own[j] * chances[j]
            total += p
            sum_1 += p * f[j]
        centre, sum_2, weight = sum_1 / total, 0.0, times[i] / total
        for j in range(own.size):
            p = own[j] * chances[j]
            away = f[j] - centre
            sum_2 += p * away * away
            drawn[j] += weight * p
        mean[i], variance[i] = centre, sum_2 / total


@numba.njit(cache=True, error_model="numpy", fastmath=SUMS)
def moments(
    like: Floats, log_like: Floats, start: Floats, first: Floats, points: Floats, times: Floats, prior: Floats, by: float,
    mass: Floats,
) -> tuple[float, float]:  # fmt: skip
    """Sums over all values: the posterior means and variances under the prior tilted by exp(by · f), and the posteriors.

    Args:
        mass: (J,) overwritten with the sum of all values' posteriors.

    Returns:
        The sum of the means, and the sum of the variances.
    """
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
        sum_of_means += times[i] * centre
        sum_of_variances += share * sum_2
    return sum_of_means, sum_of_variances


@numba.njit(cache=True, error_model="numpy")
def newton_step(sum_of_means: float, sum_of_variances: float, longest: float) -> float:
    """Returns the number to subtract from λ: Newton's step for the condition that the means sum to 1, limited to ±`longest`."""
    step = (sum_of_means - 1) / max(sum_of_variances, 1e-300)
    return min(max(step, -longest), longest)


@numba.njit(cache=True, error_model="numpy", fastmath=SUMS)
def fit_prior(
    like: Floats, log_like: Floats, start: Floats, first: Floats, points: Floats, times: Floats, base: Floats, mass: float,
    rounds: int, longest: float, prior: Floats, by: float,
) -> float:  # fmt: skip
    """Makes EM steps for the prior of the shares, and Newton steps for λ; returns the new λ.

    Args:
        like, log_like, start, first, points, times: as in `moments`.
        base: (J,) base distribution of the Dirichlet process.
        mass: number of further values that each step counts, distributed as `base`.
        prior: (J,) the first prior; overwritten with the fitted prior.
    """
    drawn, k = np.empty(points.size), 0.0
    for i in range(times.size):
        k += times[i]
    for _ in range(rounds):
        means, variances = moments(like, log_like, start, first, points, times, prior, by, drawn)
        for j in range(points.size):
            prior[j] = max((mass * base[j] + drawn[j]) / (mass + k), LEAST)
        by -= newton_step(means, variances, longest)
    return by


@numba.njit(cache=True, error_model="numpy")
def meet_sum(
    like: Floats, log_like: Floats, start: Floats, first: Floats, points: Floats, times: Floats, prior: Floats, by: float,
    rounds: int, tolerance: float, longest: float,
) -> tuple[float, float, float]:  # fmt: skip
    """Makes Newton steps for λ under a fixed prior, until the means sum to 1 to within `tolerance`, or after `rounds` steps.

    Returns:
        The sum of the means in the last round, the λ of this round, and the λ after the last step.
    """
    drawn = np.empty(points.size)
    low, high, means, evaluated = -math.inf, math.inf, math.nan, by
    for _ in range(rounds):
        evaluated = by
        means, variances = moments(like, log_like, start, first, points, times, prior, by, drawn)
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
def log_evidence(
    like: Floats, log_like: Floats, start: Floats, first: Floats, points: Floats, times: Floats, base: Floats, mass: float,
    prior: Floats, total: Floats, by: float, variance_of_sum: float,
) -> float:  # fmt: skip
    """Returns the sum over the values of the log-probability of a value's counts, given the other values' counts and the sum.

    Args:
        like: the likelihoods times exp(by · f), as `tilt` writes them.
        base, mass: as in `fit_prior`.
        total: (J,) sum of all values' posteriors under `prior`.
        by: λ, the tilt that makes the shares sum to 1.
        variance_of_sum: sum of the posterior variances of all values.
    """
    k, found, mean, square = 0.0, 0.0, 0.0, 0.0
    for i in range(first.size):
        k += times[i]
    for i in range(first.size):
        own, log_own, f = like[start[i] : start[i + 1]], log_like[start[i] : start[i + 1]], points[first[i] :]
        chances, of_base, of_all = prior[first[i] :], base[first[i] :], total[first[i] :]
        norm, others, largest = 0.0, 0.0, -math.inf
        for j in range(own.size):
            norm += own[j] * chances[j]
            largest = max(largest, log_own[j] + by * f[j])
        for j in range(own.size):
            others += own[j] * (mass * of_base[j] + max(of_all[j] - own[j] * chances[j] / norm, 0.0))
        found += times[i] * (math.log(others / (mass + k - 1)) + largest)
    for j in range(points.size):
        fitted = (mass * base[j] + total[j]) / (mass + k)
        mean += fitted * points[j]
        square += fitted * points[j] ** 2
    prior_variance = k * (square - mean**2)
    return found - by + math.log(max(prior_variance / (variance_of_sum + 1e-300), 1.0)) / 2


@numba.njit(cache=True, error_model="numpy", fastmath=SUMS)
def widened(
    like: Floats, start: Floats, first: Floats, points: Floats, times: Floats, base: Floats, mass: float, prior: Floats,
    total: Floats, blur: Floats, narrowest: float, wide: Floats,
) -> None:  # fmt: skip
    """Writes the posteriors for intervals, given the sum of the shares, to `wide`. Their prior is smoother than `prior`.

    Args:
        like, base, mass, total: as in `log_evidence`.
        blur: weights of the points in the smoothing, an odd number.
        narrowest: smallest variance of the sum of the other values' shares.
    """
    reach, size, entries = blur.size // 2, points.size, like.size
    shares, smooth_shares = np.zeros(entries + 2 * reach), np.zeros(entries)
    padded, smooth = np.empty(size + 2 * reach), np.zeros(size)
    padded[:reach], padded[reach : reach + size], padded[reach + size :] = total[0], total, total[size - 1]
    for i in range(first.size):
        own, chances, norm = like[start[i] : start[i + 1]], prior[first[i] :], 0.0
        share = shares[start[i] + reach :]
        for j in range(own.size):
            norm += own[j] * chances[j]
        for j in range(own.size):
            share[j] = own[j] * chances[j] / norm
    for a in range(blur.size):
        for j in range(size):
            smooth[j] += blur[a] * padded[j + a]
        for j in range(entries):
            smooth_shares[j] += blur[a] * shares[j + a]
    mean, variance, sum_of_variances = np.empty(first.size), np.empty(first.size), 0.0
    for i in range(first.size):
        own, found, share = like[start[i] : start[i + 1]], wide[start[i] : start[i + 1]], smooth_shares[start[i] :]
        f, of_base, of_all, norm, sum_1, sum_2 = points[first[i] :], base[first[i] :], smooth[first[i] :], 0.0, 0.0, 0.0
        for j in range(own.size):
            found[j] = own[j] * (mass * of_base[j] + max(of_all[j] - share[j], 0.0))
            norm += found[j]
            sum_1 += found[j] * f[j]
        mean[i] = sum_1 / norm
        for j in range(own.size):
            sum_2 += found[j] * (f[j] - mean[i]) ** 2
        variance[i] = sum_2 / norm
        sum_of_variances += times[i] * variance[i]
    for i in range(first.size):
        found, f, norm, nearest = wide[start[i] : start[i + 1]], points[first[i] :], 0.0, math.inf
        rest = max(sum_of_variances - variance[i], narrowest)
        for j in range(found.size):
            nearest = min(nearest, (f[j] - mean[i]) ** 2 / rest)
        for j in range(found.size):
            found[j] *= _exp_or_zero((nearest - (f[j] - mean[i]) ** 2 / rest) / 2)
            norm += found[j]
        for j in range(found.size):
            found[j] /= norm


@numba.njit(cache=True, error_model="numpy", fastmath=SUMS)
def fit_weights(
    like: Floats, log_like: Floats, start: Floats, first: Floats, points: Floats, times: Floats, components: Floats,
    begin: Floats, rounds: int, longest: float, weights: Floats,
) -> None:  # fmt: skip
    """Makes EM steps for the weights of a mixture prior, and Newton steps for λ from λ = 0.

    Args:
        like, log_like, start, first, points, times: as in `moments`.
        components: (components, J) probabilities of the points.
        begin: (components,) the first weights. Each step also counts them as one further value.
        rounds, longest: as in `fit_prior`.
        weights: (components,) overwritten with the fitted weights.
    """
    size, k, by = points.size, 0.0, 0.0
    drawn, mixture = np.empty(size), np.empty(size)
    for i in range(times.size):
        k += times[i]
    for a in range(begin.size):
        weights[a] = begin[a]
    for _ in range(rounds):
        mixture[:] = 0.0
        for a in range(begin.size):
            for j in range(size):
                mixture[j] += weights[a] * components[a, j]
        for j in range(size):
            mixture[j] = max(mixture[j], LEAST)
        means, variances = moments(like, log_like, start, first, points, times, mixture, by, drawn)
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
