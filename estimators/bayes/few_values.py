"""Posterior of the shares of at most nine values without order, under a fixed prior.

The prior is a mixture. Under most of its components, shares are independent draws from a distribution g, given the sum 1:

- g is a gamma distribution with a shape from 0.1 to 8. Given the sum, this is the symmetric Dirichlet distribution.
- Most draws are nearly equal and below 1/k, and a few are uniform in [0, 1] (`SMALLER`, for more than two values).

Under the last component, all shares are exactly 1/k (`EQUAL`). Intervals do not use this component.

The likelihoods L_v of `value_likelihood` are computed at multiples of a step h. Two passes of convolutions then give
the probability of the counts under a component, and each share's posterior:

    P_v(s) = Σ_j P_{v-1}(s - j) L_v(j h) g(j h)

P_v(s) is the probability of the counts of the values up to v, with the sum s h of their shares. The second pass does the same
for the values from v on.

A component's weight is proportional to its prior weight times P_k at the sum 1, divided by the density with which k independent
draws from g have the sum 1. The weight of `EQUAL` is its prior weight times the likelihood.

The code multiplies each L_v by e^(λ f), with λ of `nearest_distribution`. Given the sum of the shares, the product of these
factors is a constant.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from ldpstream.estimators.bayes.posterior import SHARP, Posterior, chosen_variance
from ldpstream.estimators.bayes.value_likelihood import Observation
from ldpstream.mechanisms.arguments import FloatArray, IntArray

FEW_VALUES = 9  # largest number of values for this estimate
SHAPES = np.array([0.1, 0.25, 0.5, 1, 2, 4, 8])  # shapes of the gamma distributions with mean 1/k
SMALLER = np.geomspace(0.004, 0.8, 16)  # prior means of the component with nearly equal small shares, × k
NARROW = 30.0  # shape of the gamma distribution of nearly equal small shares
ANYWHERE = 1.5  # expected number of shares that are uniform in [0, 1], in place of a small share
EQUAL, SPIKED = 0.4, 0.4  # prior probability of equal shares, and of `SMALLER` among the other components
FINE = 4.0  # lattice points per standard error
LEAST, MOST = 128, 300  # fewest points of the whole lattice, and about the most points of one value
REACH = 6.0  # the lattice holds shares within this many standard errors of the most likely distribution
NEAR_ZERO = 16  # number of points for which the gamma distribution is integrated exactly
WHOLE = 4096  # points of the lattice for the densities of the sum


@dataclass(frozen=True, slots=True)
class Lattice:
    """Likelihoods of each value v at its lattice points first[v], first[v] + 1 …, in steps h.

    Attributes:
        step: h; 1 / h is an integer.
        unbiased, noise: (k,) combined inversion of each value, and its variance.
        first, size: (k,) first point of each value, and number of its points.
        like: (k, most points) likelihoods times e^(λ f), scaled so that the largest of each value is 1; 0 beyond the value's
            points.
        log_equal: log-likelihood of equal shares, with the same factors.
    """

    step: float
    unbiased: FloatArray
    noise: FloatArray
    first: IntArray
    size: IntArray
    like: FloatArray
    log_equal: float

    @classmethod
    def of(cls, seen: list[Observation], k: int) -> "Lattice":
        likely = np.full(k, 1 / k)
        z = np.array([s.z for s in seen])
        for _ in range(2):  # the noise depends on the shares
            weights = np.array([s.precision(likely) for s in seen])
            noise = 1 / weights.sum(axis=0)
            unbiased = noise * (weights * z).sum(axis=0)
            likely, tilt = nearest_distribution(unbiased, noise)
        error = np.sqrt(1 / np.sum([s.precision(likely) for s in seen], axis=0))
        wanted = min(1 / LEAST, float(error.min()) / FINE)
        points = math.ceil(1 / max(wanted, min(2 * REACH * float(error.max()), 1.0) / MOST))
        first = np.maximum(np.floor((likely - REACH * error) * points), 0).astype(np.int64)
        last = np.minimum(np.ceil((likely + REACH * error) * points), points).astype(np.int64)
        size = last - first + 1
        like, log_equal = np.zeros((k, size.max())), 0.0
        for v in range(k):
            f = (first[v] + np.arange(size[v])) / points
            log_like = tilt * f
            for s in seen:
                factor, a, b = s.integrals(f)
                log_like += factor[v] * (s.z[v] * a - b)
            log_like -= log_like.max()
            log_equal += float(np.interp(1 / k, f, log_like, left=-math.inf, right=-math.inf))
            like[v, : size[v]] = np.exp(log_like)
        return cls(1 / points, unbiased, noise, first, size, like, log_equal)

    @property
    def shares(self) -> FloatArray:
        return np.asarray(self.points * self.step)

    @property
    def points(self) -> IntArray:
        return np.asarray(self.first[:, None] + np.arange(self.like.shape[1]))


@dataclass(frozen=True, slots=True)
class FewValues:
    """The posterior of the shares among the people who report.

    Attributes:
        mean: (k,) posterior means, with sum 1.
        chances: (k, most points) posterior of each share without the component of equal shares.
    """

    lattice: Lattice
    mean: FloatArray
    chances: FloatArray

    @classmethod
    def of(cls, seen: list[Observation], k: int) -> "FewValues":
        """Returns the posterior for k values, at most `FEW_VALUES`, and at least one observation."""
        from ldpstream.estimators.bayes.few_values_kernels import marginals

        lattice = Lattice.of(seen, k)
        prior = np.moveaxis(components(k, lattice.points, lattice.step), 0, 1)  # (k, components, points)
        weighted = prior * lattice.like[:, None]
        largest = np.maximum(weighted.max(axis=2), 1e-300)
        weighted /= largest[:, :, None]
        chances, density = marginals(weighted, lattice.size, round(1 / lattice.step) - int(lattice.first.sum()))
        with np.errstate(divide="ignore"):
            scores = np.log(density / lattice.step) + np.log(largest).sum(axis=0) - log_densities(k) + log_weights(k)
        if np.isneginf(scores).all():  # forged: the levels contradict each other, and no shares make all their counts likely
            mixed, equal = lattice.like, 0.0
        else:
            mixed = np.tensordot(special.softmax(scores), chances, 1)
            equal = special.expit(lattice.log_equal + special.logit(EQUAL) - special.logsumexp(scores))
        mixed = mixed / mixed.sum(axis=1, keepdims=True)
        mean = (1 - equal) * (mixed * lattice.shares).sum(axis=1) + equal / k
        return cls(lattice, mean / mean.sum(), mixed)

    def posterior(self, people: float, concentration: float) -> Posterior:
        """Returns the posterior of the population's shares.

        Args:
            people, concentration: as for `Posterior`.
        """
        lattice, k = self.lattice, self.mean.size
        own = np.arange(lattice.like.shape[1]) < lattice.size[:, None]
        ends = np.minimum(lattice.shares + lattice.step / 2, 1)
        variance = (self.chances * (lattice.shares - self.mean[:, None]) ** 2).sum(axis=1)
        chosen = chosen_variance(self.mean, people, concentration)
        total = lattice.noise.sum()
        unshrunk = lattice.unbiased - lattice.noise * (lattice.unbiased.sum() - 1) / total
        unshrunk_variance = lattice.noise * (1 - lattice.noise / total) + chosen_variance(unshrunk, people, concentration)
        return Posterior(
            people=people,
            concentration=concentration,
            mean=self.mean,
            standard_errors=np.sqrt(variance + chosen),
            widening=np.ones(k),
            kind=np.arange(k),
            ends=ends[own],
            below=np.cumsum(self.chances, axis=1)[own],
            start=np.concatenate([[0], np.cumsum(lattice.size)]),
            lowest=np.maximum(lattice.first - 0.5, 0) * lattice.step,
            resolution=SHARP * min(float(np.sqrt(lattice.noise.min())), 1 / k),
            large=np.arange(k),
            unshrunk=unshrunk,
            unshrunk_errors=np.sqrt(unshrunk_variance),
        )


def nearest_distribution(unbiased: FloatArray, noise: FloatArray) -> tuple[FloatArray, float]:
    """Returns the most likely distribution, max(z + λ N, 0), and λ: z are the unbiased shares, N the variances of their normal
    errors."""
    order = np.argsort(-unbiased / noise)
    rising = (1 - np.cumsum(unbiased[order])) / np.cumsum(noise[order])  # λ if exactly these values are positive
    positive = np.flatnonzero(rising > -unbiased[order] / noise[order])
    tilt = float(rising[positive[-1]]) if positive.size else float(rising[0])
    likely = np.maximum(unbiased + tilt * noise, 0)
    return likely / likely.sum(), tilt


def components(k: int, points: IntArray, step: float) -> FloatArray:
    """Returns the prior probability of each lattice point under each component, (components, *points.shape)."""
    found = [_gamma(shape, 1 / k, points, step) for shape in SHAPES]
    if k > 2:  # with two values, one share determines the other
        uniform = np.where(points > 0, step, step / 2)
        part = ANYWHERE / k
        found += [(1 - part) * _gamma(NARROW, mean / k, points, step) + part * uniform for mean in SMALLER]
    return np.array(found)


def _gamma(shape: float, mean: float, points: IntArray, step: float) -> FloatArray:
    rate = shape / mean
    f = np.maximum(points, 1) * step
    middle = step * np.exp(special.xlogy(shape - 1, f) - rate * f + shape * math.log(rate) - special.gammaln(shape))
    near = np.arange(NEAR_ZERO + 1) * step
    integral = near * special.gammainc(shape, rate * near) - mean * special.gammainc(shape + 1, rate * near)
    exact = np.append(integral[1], np.diff(integral, 2)) / step
    return np.where(points < NEAR_ZERO, np.maximum(exact, 0)[np.minimum(points, NEAR_ZERO - 1)], middle)


def log_weights(k: int) -> FloatArray:
    """Returns the logarithm of each component's prior probability, given that the shares are not equal."""
    if k == 2:
        return np.full(SHAPES.size, -math.log(SHAPES.size))
    parts = [(1 - SPIKED) / SHAPES.size, SPIKED / SMALLER.size]
    return np.asarray(np.log(np.repeat(parts, [SHAPES.size, SMALLER.size])))


@functools.cache
def log_densities(k: int) -> FloatArray:
    """Returns, for each component, the log-density at 1 of the sum of k independent shares."""
    length = 1 << math.ceil(math.log2((k + 1) * WHOLE))
    priors = components(k, np.arange(WHOLE + 1), 1 / WHOLE)
    return np.asarray(np.log(np.fft.irfft(np.fft.rfft(priors, length) ** k, length)[:, WHOLE] * WHOLE))
