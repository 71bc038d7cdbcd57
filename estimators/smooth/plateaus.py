"""Shares of ordered values with jumps: neighbouring values have equal shares, or a new level begins.

    f_1 ~ G;   f_v = f_{v-1} with chance 1 - ρ, or else f_v ~ G

This is a hidden Markov model, whose levels are the points of a grid. Expectation maximisation (EM, Baum and others 1970) fits G
and ρ. A prior H of the levels is a mixture of gamma distributions with mean 1/k and of a power law. Each EM step counts H as M
further levels:

    G ← (M H + Σ expected new levels) / (M + number of new levels),   ρ ← (½ + number of jumps) / k

The excess of the inversions' sum over 1 is first subtracted from the inversions, in proportion to their variances.

The model ignores the widths of bins: it describes jumps of the shares, not of the shares per unit of width.

Sources: Barry and Hartigan 1993 (product partition models with jumps); Baum, Petrie, Soules and Weiss 1970.
"""

import math
from dataclasses import dataclass

import numpy as np

from ldpstream.estimators.bayes.posterior import Posterior
from ldpstream.estimators.bayes.value_likelihood import Observation, ValueLikelihood, value_likelihood
from ldpstream.mechanisms.arguments import FloatArray

FINER = 3.0  # the grid of levels is this much finer than for single values: a level is the mean of many values
SHAPES = np.array([0.1, 0.3, 1.0, 3.0, 10.0, 100.0])  # shapes of the gamma distributions in H
EXPONENT, TAIL_SHARE = 1.5, 0.05  # exponent and part of the power law in H, so that any large level is possible
MASS = 3.0  # M
START = 0.2  # first ρ
ROUNDS = 12  # EM steps
LEAST = 1e-100  # smallest weight of a point in H; the product of two such weights is still above 0


@dataclass(frozen=True, slots=True)
class Plateaus:
    """The fitted model.

    Attributes:
        frequencies: (k,) posterior means, with sum 1.
        log_evidence: log-likelihood of the fitted G and ρ, with the normal densities of the inversions.
    """

    frequencies: FloatArray
    posterior: Posterior
    log_evidence: float


def plateaus(z: FloatArray, variance: FloatArray) -> Plateaus:
    """Returns the posterior of the shares.

    Args:
        z: (k,) unbiased shares; need not be positive or sum to 1.
        variance: (k,) their variances.
    """
    values, on_grid, value = _fit(z, variance)
    mean = values.moments(on_grid)[0]
    beyond = values.unbiased - np.clip(values.unbiased, 0, 1)  # `log_like` is 0 near the nearest possible share
    value -= float((np.log(2 * np.pi * variance) + beyond**2 / variance).sum() + (z.sum() - 1) ** 2 / variance.sum()) / 2
    return Plateaus(_with_sum_one(mean), Posterior.of(values, mean, on_grid, math.inf), value)


def shares_with_plateaus(z: FloatArray, variance: FloatArray) -> FloatArray:
    """Returns the frequencies of `plateaus`, (k,)."""
    values, on_grid, _ = _fit(z, variance)
    return _with_sum_one(values.moments(on_grid)[0])


def _with_sum_one(mean: FloatArray) -> FloatArray:
    return np.asarray(mean / mean.sum())


def _fit(z: FloatArray, variance: FloatArray) -> tuple[ValueLikelihood, FloatArray, float]:
    from ldpstream.estimators.smooth.plateau_kernels import forward_backward

    k = z.size
    projected = z + (1 - z.sum()) * variance / variance.sum()
    values = value_likelihood([Observation(projected, variance)], k, FINER).apart()
    base = values.gammas(np.full(SHAPES.size, 1 / k), SHAPES).sum(axis=0) * (1 - TAIL_SHARE) / SHAPES.size
    base = base + TAIL_SHARE * values.power_laws(k, np.array([EXPONENT]))[0]
    base = np.maximum(base / base.sum(), LEAST)
    like, chances, drawn = np.exp(values.log_like), np.empty(k), np.empty_like(base)
    on_grid, nothing = np.empty_like(like), np.empty(0)
    prior, jump = base, START
    for _ in range(ROUNDS):
        forward_backward(like, values.start, values.first, prior, jump, chances, drawn, nothing)
        prior, jump = (MASS * base + drawn) / (MASS + drawn.sum()), (float(drawn.sum()) - 0.5) / k  # the first level is no jump
    forward_backward(like, values.start, values.first, prior, jump, chances, drawn, on_grid)
    return values, on_grid, float(np.log(chances).sum())
