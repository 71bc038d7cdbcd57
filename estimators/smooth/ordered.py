"""Empirical-Bayes estimate of the histogram of an ordered attribute.

The estimate is a weighted mean of three: the smooth estimate (`smooth_prior`), the estimate with plateaus and jumps
(`plateaus`), and the estimate without order (`unordered`). The mean of the first two is weighted
against the third by Stein's unbiased estimate of the risk, in units of the noise:

    R = Σ_v (f̂_v - z_v)² / N_v + 2 Σ_v ∂f̂_v/∂z_v          z: unbiased shares, N: variances of their noise
    weight ∝ e^{-R/4}

The weights of the smooth estimate and of the one with plateaus also use the evidence (marginal likelihood) of their models:

    weight ∝ evidence · e^{-R/4}

The evidence of the model with plateaus is first divided by e³ (`FITTED`, by simulation).

R is the risk for the shares among the people who report, so N leaves out the choice of the people. With independent random
signs b, every z_v moves by h b_v, and

    Σ_v ∂f̂_v/∂z_v ≈ Σ_v b_v (f̂_v(z + h b) - f̂_v(z)) / h

Sources: Stein 1981; Leung and Barron 2006 (weights); Ramani, Blu and Unser 2008, Monte-Carlo SURE (derivatives).
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from ldpstream.estimators.bayes.unordered import posterior_means, unordered_posterior
from ldpstream.estimators.bayes.value_likelihood import Observation, observations, people_of
from ldpstream.estimators.estimate import Estimate, Group, Steps
from ldpstream.estimators.smooth.plateaus import Plateaus, plateaus, shares_with_plateaus
from ldpstream.estimators.smooth.smooth_prior import TINY, SmoothPosterior, checked_widths, normal_numbers, smooth_posterior
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.counts.reading import Variance

MAX_ORDERED = 10_000  # values; the draws of a larger histogram would need too much memory
MOVE = 0.2  # h, in standard errors of a share
LEVELS = np.array([0.02, 0.25, 0.5, 0.7, 0.85, 0.95, 0.99, 0.998])  # levels of intervals, whose ends are percentiles of a share
CERTAIN = 20.0  # nats; the model with plateaus is left out if it is less likely by this, even without derivatives
FITTED = 3.0  # nats by which the evidence of the model with plateaus is too large
LEAST_VARIANCE = 0.01  # smallest variance for the model with plateaus, relative to that at equal shares; limits its grid
SURE = 0.5  # the intervals widen if R exceeds the smooth posterior's errors by more than this many standard deviations of R
LEAST_NOISE = 1e-3  # smallest noise, relative to the variance that includes the random choice of the people


def ordered_posterior(groups: list[Group], widths: npt.ArrayLike | None, steps: Steps) -> Estimate:
    """Posterior means of the shares of ordered values; with posterior draws if there are at most 10 000 values.

    Args:
        widths, steps: as in `empirical_bayes`.

    Raises:
        ValueError: if the widths are not k positive finite numbers.
    """
    k = groups[0][0].k
    widths, unordered = checked_widths(widths, k), unordered_posterior(groups, steps)
    if np.isnan(unordered.frequencies).any() or k > MAX_ORDERED:
        return unordered
    z, variances, noise_at = _inversion(groups, steps)
    smooth = smooth_posterior(z, variances, widths)
    equal, noise = variances(np.full(k, 1 / k)), noise_at(smooth.frequencies)
    variance = np.maximum(smooth.variance, LEAST_VARIANCE * equal)
    stepped = plateaus(z, variance)
    h = MOVE * math.sqrt(float(np.median(equal)))
    by = h * np.random.default_rng(3).choice([-1.0, 1.0], k)
    risk = partial(_risk, by=by, z=z, noise=noise)
    found = np.array([smooth.frequencies, stepped.frequencies])
    moved = np.array([smooth.moved(z + by), stepped.frequencies])
    smooth_risk, stepped_risk = map(risk, found, moved)
    by_evidence = smooth.log_evidence - stepped.log_evidence + FITTED
    if (stepped_risk - smooth_risk) / 4 + by_evidence < CERTAIN:  # else positive derivatives only add to the certainty
        moved[1] = shares_with_plateaus(z + by, variance)
        stepped_risk = risk(found[1], moved[1])
    of_smooth = expit((stepped_risk - smooth_risk) / 4 + by_evidence)
    weights = np.array([of_smooth, 1 - of_smooth])
    without = risk(unordered.frequencies, _without_order(groups, steps, by))
    of_unordered = expit((risk(weights @ found, weights @ moved) - without) / 4)
    weights = np.append((1 - of_unordered) * weights, of_unordered)
    return _combined(smooth, stepped, unordered, weights, _misfit(smooth, smooth_risk, noise))


def smoothed_shares(shares: FloatArray, standard_errors: FloatArray, n: int, widths: npt.ArrayLike | None = None) -> Estimate:
    """Returns the smooth estimate from any nearly unbiased shares with independent normal errors, such as a filter's.

    Args:
        shares: (k,) estimated shares; NaN if there is no estimate.
        standard_errors: (k,) their standard errors, positive.
        n: number of reports.
        widths: as in `empirical_bayes`.

    Raises:
        ValueError: if the widths are not k positive finite numbers.
    """
    widths = checked_widths(widths, shares.size)
    if np.isnan(shares).any():
        return Estimate.of_nothing(shares.size, n)
    found = smooth_posterior(shares, lambda _: standard_errors**2, widths)
    return Estimate(found.frequencies, found.standard_errors, n, posterior=found.draws)


def _risk(f: FloatArray, moved: FloatArray, by: FloatArray, z: FloatArray, noise: FloatArray) -> float:
    return float(((f - z) ** 2 / noise).sum() + 2 * by @ (moved - f) / np.mean(by**2))


def _misfit(smooth: SmoothPosterior, risk: float, noise: FloatArray) -> FloatArray:
    k = noise.size
    excess = risk - k - float((smooth.standard_errors**2 / noise).sum()) - SURE * math.sqrt(2 * k)
    return np.sqrt(noise * min(max(excess / k, 0.0), 1.0))


def _without_order(groups: list[Group], steps: Steps, by: FloatArray) -> FloatArray:
    moved = [Observation(each.z + by, each.variance) for each in observations(groups, steps)]
    return posterior_means(moved, by.size)


def _combined(
    smooth: SmoothPosterior, stepped: Plateaus, unordered: Estimate, weights: FloatArray, misfit: FloatArray
) -> Estimate:
    shares = smooth.draws.shares
    if misfit.any():
        shares = shares + misfit * normal_numbers(misfit.size, 4)
    intervals = stepped.posterior.interval, unordered.interval
    rows = [round(weight * len(shares)) for weight in weights[1:].tolist()]
    others = [_percentiles(*each) for each in zip(intervals, rows, strict=True) if each[1]]
    drawn = np.concatenate([*others, np.empty((0, misfit.size))])[: len(shares)]
    if drawn.size:
        shares, replaced = shares.copy(), np.linspace(0, len(shares) - 1, len(drawn)).round().astype(int)
        shares[replaced] = drawn  # keeps smooth draws of every τ
    means = np.array([smooth.frequencies, stepped.frequencies, np.maximum(unordered.frequencies, TINY)])
    own = np.hypot(smooth.standard_errors, misfit)
    errors = np.array([own, stepped.posterior.standard_errors, unordered.standard_errors])
    frequencies = weights @ means
    variance = weights @ (errors**2 + (means - frequencies) ** 2)
    below, above = weights[0] * smooth.draws.below, weights[0] * smooth.draws.above
    draws = replace(smooth.draws, shares=shares, below=below, above=above)
    return Estimate(frequencies / frequencies.sum(), np.sqrt(variance), unordered.n, posterior=draws)


def _percentiles(interval: Callable[[float], tuple[FloatArray, FloatArray]], rows: int) -> FloatArray:
    ends = np.array([interval(level) for level in LEVELS])  # (levels, 2, k)
    quantiles = np.concatenate([ends[::-1, 0], ends[:, 1]])
    chances = np.concatenate([(1 - LEVELS[::-1]) / 2, (1 + LEVELS) / 2])
    at = np.interp((np.arange(rows) + 0.5) / rows, chances, np.arange(chances.size))
    lower = np.minimum(at.astype(int), chances.size - 2)
    part = (at - lower)[:, None]
    return np.asarray((1 - part) * quantiles[lower] + part * quantiles[lower + 1])


def _inversion(groups: list[Group], steps: Steps) -> tuple[FloatArray, Variance, Variance]:
    """Returns the unbiased shares, their variance for random people, and their variance for given people (the noise)."""
    seen, people = observations(groups, steps), people_of(groups, steps)[0]
    k = seen[0].z.size
    weights = np.array([each.precision(np.full(k, 1 / k)) for each in seen])
    weights /= weights.sum(axis=0)

    def variances(f: FloatArray) -> FloatArray:
        total = np.zeros(k)
        for each, weight in zip(seen, weights, strict=True):
            total += weight**2 * (1 / each.precision(f) + f * (1 - f) / people)
        return total

    def noise(f: FloatArray) -> FloatArray:
        whole = variances(f)
        return np.asarray(np.maximum(whole - f * (1 - f) / people, LEAST_NOISE * whole))

    return (weights * [each.z for each in seen]).sum(axis=0), variances, noise
