"""Smoothness prior for the shares of ordered values: a smooth density, with an independent part where the counts demand it.

    z_v = f_v + e_v,   Var e_v = A_v known           the unbiased shares
    f_v = m_v + s_v > 0                              smooth part and independent part
    m_v = c w_v e^{η_v} / Σ_u w_u e^{η_u}            w: widths of the bins, η: log-density
    p(η) ∝ exp(-τ/2 Σ (Δ^d η)²)                      differences of order d = 1 or 2 (a Gaussian Markov random field)
    s_v = 0 with chance π₀, or s_v ~ N(0, ω_j²) with chance π_j

The densities per unit of width are smooth from bin to bin, whatever the widths.

In the outer tenths of the range, order 2 penalises squared second differences in proportion to x⁴, with x the distance to the
end.

The widths ω_j are fixed, from one standard error upwards, as in adaptive shrinkage (Stephens 2017).

A model has an order, a smoothness τ of a grid, and, for order 2 only, perhaps the independent part. The estimate is the mean
over all these models, weighted by the evidence (Laplace approximation). Nearly equal densities (order 1 and the largest τ) have
prior odds of e against all others together. For the random draws, all models have equal prior weights.

The random numbers are fixed, so the estimate is deterministic.

The bias is estimated as `BIAS` times the change of the estimate from τ to 10 τ. An interval extends downwards by this bias if
the estimate is too large, and upwards if it is too small.

Sources: Good and Gaskins 1971 (roughness penalties); Rue and Held 2005, Gaussian Markov Random Fields; Tierney and Kadane 1986
(Laplace approximation).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, ndtr, ndtri

from ldpstream.estimators.smooth.draws import Draws, Unbiased
from ldpstream.mechanisms.arguments import FloatArray

DRAWS = 200  # posterior draws
MODELS = ((1, False), (2, False), (2, True))  # order, and whether there is an independent part
FREE_ENDS = 0.1  # in this part of the range, at each end, the penalty of order 2 decreases towards the end
END_POWER = 4.0  # power of the distance to the end in this penalty
SLOPE = 10.0  # prior standard deviation of the difference of the log-density between the ends, for order 2
DECADES = 0.5  # distance of two smoothnesses τ, in powers of ten; twice this distance with an independent part
ROUNDS = 30  # largest number of rounds of a search for a mode
COARSE, FINE = 0.3, 0.03  # the first and the second search for a mode end when a round gains less than this, in nats
HOPELESS = 7.0  # nats; the search over τ ends after two smoothnesses that are this much less likely than the best
SLABS = 3.0 ** np.arange(12)  # ω_j, in standard errors of a share
WIDEST = 1.0  # largest ω_j
RETURN = 0.2  # least weight of a component, in values, at the start of the search for the next τ
START = 1.0  # weight of each component, in values, at the start of the first search
NONE = 10.0  # number of further values without an independent part, which regularise the components' weights
SUM_STEPS = 5  # Newton steps for the sum of the shares
TINY = 1e-12  # smallest share
FARTHEST = -30.0  # lowest centre of a normal distribution truncated at 0, in standard errors; lower centres are moved here
CERTAIN = 0.999  # with at least this posterior chance of no independent part, the draws of a value have none
EQUAL = 1.0  # prior log-odds of nearly equal densities (order 1 with the largest τ) to all other modes
BIAS = 1.0  # bias of a share, in units of its change when τ becomes ten times larger
SHARP = 0.07  # both ends of an interval move by this part of a standard error or of 1/k, whichever is smaller
NEGLIGIBLE = 1e-3  # a mode with a smaller weight is left out


@dataclass(frozen=True, slots=True)
class SmoothPosterior:
    """Posterior of the shares.

    Attributes:
        frequencies: (k,) posterior means; positive, with sum 1.
        standard_errors: (k,) posterior standard deviations.
        draws: equally likely histograms.
        variance: (k,) variances of the unbiased shares, at the estimate of the first pass.
        log_evidence: log-probability density of the unbiased shares, with equal prior weights of all modes.
        moved: function that returns the posterior means, (k,), for other unbiased shares, (k,), near the observed ones.
    """

    frequencies: FloatArray
    standard_errors: FloatArray
    draws: Draws
    variance: FloatArray
    log_evidence: float
    moved: Callable[[FloatArray], FloatArray]


class _Problem(NamedTuple):
    z: FloatArray
    variance: FloatArray
    widths: FloatArray
    precision: FloatArray
    root: FloatArray
    shrinkage: FloatArray

    @classmethod
    def of(cls, z: FloatArray, variance: FloatArray, widths: FloatArray, slabs: FloatArray) -> "_Problem":
        precision = 1 / (variance + slabs[:, None] ** 2)
        return cls(z, variance, widths, precision, np.sqrt(precision), slabs[:, None] ** 2 * precision)


@dataclass(frozen=True, slots=True)
class _Prior:
    bands: FloatArray
    log_det: float


@dataclass(slots=True)
class _Mode:
    prior: _Prior
    log_evidence: float
    eta: FloatArray
    chances: FloatArray
    level: FloatArray
    m: FloatArray
    gamma: FloatArray
    mean_precision: FloatArray
    moments: tuple[FloatArray, FloatArray] | None = field(default=None, init=False)  # of the shares, once computed

    @property
    def arrays(self) -> tuple[FloatArray, ...]:
        return self.eta, self.chances, self.level, self.m, self.gamma, self.mean_precision

    @classmethod
    def start(cls, problem: _Problem, prior: _Prior, independent: bool) -> "_Mode":
        components, k = problem.precision.shape
        chances = np.full(components, START / k) if independent and components > 1 else np.zeros(1)
        chances[0] = 1 - chances[1:].sum()
        return cls(prior, -math.inf, np.zeros(k), chances, np.ones(1), np.empty(k), np.empty((chances.size, k)), np.empty(k))

    def find(self, problem: _Problem, gain: float = FINE) -> None:
        from ldpstream.estimators.smooth import smooth_kernels

        none = NONE if self.chances.size > 1 else 0.0
        value = smooth_kernels.mode(tuple(problem), self.prior.bands, self.arrays, none, ROUNDS, gain)
        self.log_evidence = value + 0.5 * self.prior.log_det if math.isfinite(value) else -math.inf
        self.moments = None

    def shares(self, problem: _Problem) -> tuple[FloatArray, FloatArray]:
        """`problem` is that of the last search. Returns means and variances of the shares, (k,) each."""
        if self.moments is None:
            self.moments = self._shares(problem)
        return self.moments

    def _shares(self, problem: _Problem) -> tuple[FloatArray, FloatArray]:
        if self.chances.size == 1:
            return np.maximum(self.m, TINY), np.full(self.m.size, TINY**2)
        likely = np.flatnonzero(self.chances[1:]) + 1
        shrinkage = problem.shrinkage[likely]
        error = np.sqrt(problem.variance * shrinkage)
        ratio = np.maximum((self.m + (problem.z - self.m) * shrinkage) / error, FARTHEST)
        tail = np.exp(-0.5 * ratio**2) / (math.sqrt(2 * math.pi) * ndtr(ratio))  # inverse Mills ratio
        centre = np.maximum(np.vstack([self.m, error * (ratio + tail)]), TINY)
        spread = np.vstack([np.zeros(self.m.size), error**2 * np.maximum(1 - tail * (tail + ratio), 0)])
        gamma = self.gamma[np.append(0, likely)]
        found = (gamma * centre).sum(axis=0)
        return found, (gamma * (spread + centre**2)).sum(axis=0) - found**2 + TINY**2

    def copy(self) -> "_Mode":
        return _Mode(self.prior, self.log_evidence, *(array.copy() for array in self.arrays))


def checked_widths(widths: npt.ArrayLike | None, k: int) -> FloatArray:
    """Returns the widths of k bins, (k,), by default equal; raises ValueError unless they are k positive finite numbers."""
    w = np.ones(k) if widths is None else np.asarray(widths, np.float64)
    if w.shape != (k,) or not (np.isfinite(w) & (w > 0)).all():
        raise ValueError(f"widths must be {k} positive finite numbers, got {w.size} numbers of shape {w.shape}")
    return w


def smooth_posterior(
    observed: FloatArray,
    variance: Callable[[FloatArray], FloatArray],
    widths: npt.ArrayLike | None = None,
) -> SmoothPosterior:
    """Returns the posterior of the shares.

    Args:
        observed: (k,) unbiased shares; need not be positive or sum to 1.
        variance: returns the variances, (k,) and positive, at these true shares, (k,).
        widths: (k,) widths of the bins, positive and finite; None for equal widths.

    Raises:
        ValueError: if the widths are not k positive finite numbers.
    """
    k, w = observed.size, checked_widths(widths, observed.size)
    first = variance(np.full(k, 1 / k))
    slabs = np.sqrt(np.median(first)) * SLABS
    slabs = np.concatenate([[0.0], slabs[slabs <= WIDEST]])
    problem = _Problem.of(observed, first, w, slabs)
    families = [_modes(problem, order, independent) for order, independent in MODELS]
    modes = [mode for family in families for mode in family]
    odds = np.zeros(len(modes))
    odds[0] = EQUAL + math.log(len(modes) - 1)
    kept = np.flatnonzero(_weights(modes) + _weights(modes, odds))
    shares, bias = _mean(problem, modes, odds), _bias(problem, families, _weights(modes))
    problem = _Problem.of(observed, variance(shares), w, slabs)
    tried, modes, odds = len(modes), [modes[i] for i in kept], odds[kept]
    for mode in modes:
        mode.find(problem)
    weights, moments = _weights(modes), np.array([mode.shares(problem) for mode in modes])  # moments: (modes, 2, k)
    inside = weights @ moments[:, 1]
    draws = _draws(problem, modes, weights, inside)
    least = SHARP * np.minimum(np.sqrt(problem.variance), 1 / k)
    return SmoothPosterior(
        _with_sum_one(*np.tensordot(_weights(modes, odds), moments, axes=1)),
        draws.std(axis=0),
        Draws(
            draws,
            draws.mean(axis=0),
            least + np.maximum(bias, 0),
            least + np.maximum(-bias, 0),
            Unbiased.given_the_sum(observed, problem.variance),
        ),
        problem.variance,
        float(logsumexp([mode.log_evidence for mode in modes])) - math.log(tried) - k / 2 * math.log(2 * math.pi),
        partial(_moved, problem, modes, odds),
    )


def _bias(problem: _Problem, families: list[list[_Mode]], weights: FloatArray) -> FloatArray:
    bias, start = np.zeros(problem.z.size), 0
    for family in families:
        decades = DECADES if family[0].chances.size == 1 else 2 * DECADES
        for i in range(1, len(family)):
            if weights[start + i]:
                change = family[i - 1].shares(problem)[0] - family[i].shares(problem)[0]
                bias += weights[start + i] * BIAS / decades * change
        start += len(family)
    return bias


def _moved(problem: _Problem, modes: list[_Mode], odds: FloatArray, observed: FloatArray) -> FloatArray:
    problem, modes = problem._replace(z=observed), [mode.copy() for mode in modes]
    for mode in modes:
        mode.find(problem)
    return _mean(problem, modes, odds)


def _mean(problem: _Problem, modes: list[_Mode], odds: FloatArray) -> FloatArray:
    weights = _weights(modes, odds)
    moments = np.array([mode.shares(problem) for mode, weight in zip(modes, weights, strict=True) if weight])
    return _with_sum_one(*np.tensordot(weights[weights > 0], moments, axes=1))


def _weights(modes: list[_Mode], odds: FloatArray | float = 0.0) -> FloatArray:
    return weights_of(np.array([mode.log_evidence for mode in modes]) + odds)


def weights_of(evidence: FloatArray) -> FloatArray:
    """Returns the weights of models with these log-probabilities; 0 for negligible ones, and for NaN."""
    evidence = np.where(np.isfinite(evidence), evidence, -np.inf)
    weights = np.exp(evidence - evidence.max())
    weights[weights < NEGLIGIBLE * weights.sum()] = 0
    return np.asarray(weights / weights.sum())


def _with_sum_one(shares: FloatArray, variance: FloatArray) -> FloatArray:
    scale = variance / shares
    for _ in range(SUM_STEPS):
        shares = shares * np.exp(np.clip((1 - shares.sum()) / np.maximum(variance.sum(), 1e-300) * scale, -1, 1))
    return np.asarray(shares / shares.sum())


def _modes(problem: _Problem, order: int, independent: bool) -> list[_Mode]:
    k = problem.z.size
    exponent = 5.0 + (2 * order - 1) * math.log10(k / 100)  # η varies over the whole range with a variance of k^(2d - 1) / τ
    decades = 2 * DECADES if independent else DECADES
    mode = _Mode.start(problem, smoothness(k, order, 10**exponent), independent)
    modes: list[_Mode] = []
    best, behind = -math.inf, 0
    while exponent > -1 and behind < 2:
        mode.prior = smoothness(k, order, 10**exponent)
        mode.find(problem, COARSE)
        modes.append(mode.copy())
        best = max(best, mode.log_evidence)
        behind = behind + 1 if mode.log_evidence < best - HOPELESS else 0
        mode.chances = np.maximum(mode.chances, RETURN / k)  # a dropped component may return
        exponent -= decades
    return modes


@lru_cache(maxsize=128)
def smoothness(k: int, order: int, tau: float) -> _Prior:
    """The precision of the differences u = Δη is τ I for order 1, and κ I + τ Δᵀ G Δ for order 2. κ gives the difference of η
    between the ends a standard deviation of `SLOPE` where τ is large. G is diagonal: 1, and less near the ends (`FREE_ENDS`).
    """
    if order == 1:
        return _Prior(tau * _bands(k, 1, np.ones(k - 1)), (k - 1) * math.log(tau))
    from ldpstream.estimators.smooth import smooth_kernels

    kappa = (k - 1) / SLOPE**2
    end = np.minimum(np.arange(k - 2) + 1.0, np.arange(k - 2)[::-1] + 1.0) / (FREE_ENDS * k)
    firm = np.minimum(end, 1.0) ** END_POWER
    of_slopes, (l1, l2, d) = np.zeros((3, k - 1)), np.empty((3, k - 1))
    if k > 2:
        of_slopes = tau * _bands(k - 1, 1, firm)
    log_det = smooth_kernels.factor(of_slopes, np.full(k - 1, kappa), l1, l2, d)
    return _Prior(kappa * _bands(k, 1, np.ones(k - 1)) + tau * _bands(k, 2, firm), log_det)


def _bands(k: int, order: int, weights: FloatArray) -> FloatArray:
    bands = np.zeros((3, k))
    stencil = (-1.0, 1.0) if order == 1 else (1.0, -2.0, 1.0)
    rows = k - order
    for i, a in enumerate(stencil):
        for j, b in enumerate(stencil[i:]):
            bands[j, i : i + rows] += a * b * weights
    return bands


@lru_cache(maxsize=2)  # both seeds of one k: 3 MB for 1000 values, 32 MB for 10 000
def normal_numbers(k: int, seed: int) -> FloatArray:
    """Returns standard normal numbers, (DRAWS, k), always the same for a seed. The array is read-only."""
    drawn = np.random.default_rng(seed).standard_normal((DRAWS, k))
    drawn.flags.writeable = False
    return drawn


def _draws(problem: _Problem, modes: list[_Mode], weights: FloatArray, inside: FloatArray) -> FloatArray:
    """Importance sampling (with weights truncated as in Ionides 2008) and systematic resampling correct the smooth parts."""
    from ldpstream.estimators.smooth import smooth_kernels

    k = problem.z.size
    rng = np.random.default_rng(2)
    last = np.floor(np.cumsum(weights) * DRAWS + 0.5).astype(int)
    normal, drawn = normal_numbers(k, 1), np.empty((DRAWS, k))
    log_weights, of_mode, start = np.zeros(DRAWS), np.zeros(DRAWS, int), 0
    for i, (mode, end) in enumerate(zip(modes, last.tolist(), strict=True)):
        rows = slice(start, end)
        of_mode[rows], start = i, end
        smooth_kernels.draw(tuple(problem), mode.prior.bands, mode.arrays, normal[rows], drawn[rows], log_weights[rows])
    relative = np.exp(log_weights - log_weights.max())
    relative = np.minimum(relative / relative.mean(), math.sqrt(DRAWS))
    chosen = np.searchsorted(np.cumsum(relative / relative.sum()), (np.arange(DRAWS) + 0.5) / DRAWS)
    chosen = np.minimum(chosen, DRAWS - 1)
    drawn, of_mode, spread = drawn[chosen], of_mode[chosen], inside / inside.sum()
    for i, mode in enumerate(modes):
        own, values = np.flatnonzero(of_mode == i), np.flatnonzero(mode.gamma[0] < CERTAIN)
        found = drawn[own]
        found[:, values] = _independent(problem, mode, found[:, values], values, rng)
        found = np.maximum(found + (1 - found.sum(axis=1, keepdims=True)) * spread, TINY)
        drawn[own] = found / found.sum(axis=1, keepdims=True)
    return drawn


def _independent(
    problem: _Problem, mode: _Mode, smooth: FloatArray, values: npt.NDArray[np.intp], rng: np.random.Generator
) -> FloatArray:
    below = np.cumsum(mode.gamma[:, values].T, axis=1)
    which = (rng.random(smooth.shape)[:, :, None] > below).sum(axis=2)
    which = np.minimum(which, mode.chances.size - 1)
    shrinkage = problem.shrinkage[which, values[None, :]]
    centre = smooth + (problem.z[values] - smooth) * shrinkage
    error = np.sqrt(problem.variance[values] * shrinkage)
    ratio = np.maximum(centre / np.where(which > 0, error, 1.0), FARTHEST)
    share = error * (ratio - ndtri(ndtr(ratio) * (1 - rng.random(smooth.shape))))  # normal, truncated at 0
    return np.where(which > 0, np.maximum(share, TINY), smooth)
