"""Models of the density of a number, for reports that distinguish only wide ranges of values, such as those of Square Wave.

    η_1 = 0,   u_v = η_v - η_{v-1}            log-density of the cells, and its steps
    f_v = w_v e^{η_v} / Σ w e^η               shares of the cells; w: their widths
    ln p(counts | f) ≈ b·f - fᵀ G f / 2       the counts are nearly normal

Each model is a prior of η_2 … η_K, which are normal with the precision Q, except for jumps:

    flat        u_v independent, variance 1/τ: for the largest τ, all densities are nearly equal
    smooth      the differences of u have the variance 1/τ, larger near the ends (`estimators.smooth.smooth_prior`)
    bell        the second differences of u have the variance 1/τ, τ large: η is nearly a parabola, as in a normal density
    irregular   smooth with one τ, and each η_v has an independent part with the standard deviation σ: round numbers
    heaps       smooth, and every m-th bin is more frequent (`estimators.smooth.heaps`)
    jumps       u_v has Student's t distribution with one degree of freedom: most steps are small, a few are large

A normal approximation at the mode (Laplace) gives the probability of the counts under each model. For jumps, the bound of a
mean-field variational approximation stands for this probability.

Sources: Good and Gaskins 1971; Tierney and Kadane 1986 (Laplace); Tipping and Lawrence 2005 (variational inference for t).
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ldpstream.estimators.smooth.heaps import EACH, MOST, Heaps, possible_heaps
from ldpstream.estimators.smooth.smooth_prior import HOPELESS, smoothness
from ldpstream.mechanisms.arguments import FloatArray

DECADES = 0.75  # distance of two τ, in powers of ten
LARGEST, SMALLEST = 5.0, -1.0  # exponents of the largest τ for 100 cells, and of the smallest τ
BELL_TAU, BELL_SLOPE = 4.0, 100.0  # exponent of τ for 100 cells, and the prior standard deviation of the range of η
IRREGULAR_TAU, SIGMAS = 2.0, (0.5, 1.0, 2.0)  # exponent of τ for 100 cells, and the σ, of the irregular models
SCALES = (1e-2, 5e-4, 2e-5)  # scales of the inverse gamma distribution of the steps' variances, for the models with jumps
DEGREES = 0.5  # half of the degrees of freedom of t
ROUNDS, GAIN = 30, 0.03  # the search for a mode ends after so many rounds, or when a round gains less than this, in nats
UPDATES, ENOUGH = 24, 0.3  # most updates of these variances; they end when the bound rises by less than this, in nats
ROUNDING = 1e-12  # a relative gain below this is rounding


@dataclass(frozen=True, slots=True)
class Likelihood:
    """The log-likelihood b·f - fᵀGf/2 of the shares of K cells.

    Attributes:
        linear: (K,) b.
        curvature: (K, K) G, positive semidefinite.
        widths: (K,) widths of the cells, positive.
    """

    linear: FloatArray
    curvature: FloatArray
    widths: FloatArray

    def __call__(self, f: FloatArray) -> float:
        return float(self.linear @ f - 0.5 * f @ (self.curvature @ f))

    def slope(self, f: FloatArray) -> FloatArray:
        """Returns the derivative by η_2 … η_K, (K - 1,), at the shares f."""
        score = self.linear - self.curvature @ f
        return np.asarray((f * (score - f @ score))[1:])

    def information(self, f: FloatArray) -> FloatArray:
        """Returns the information on η_2 … η_K, (K - 1, K - 1), at the shares f."""
        found = f[1:, None] * self.curvature[1:, 1:] * f[1:]
        pull = f * (self.curvature @ f)
        outer = np.outer(pull[1:] - pull.sum() / 2 * f[1:], f[1:])
        found -= outer
        found -= outer.T
        return np.asarray(found)

    def shares(self, eta: FloatArray) -> FloatArray:
        """Returns the shares, (K,), for η_2 … η_K."""
        f = self.widths[1:] * np.exp(eta - (top := max(0.0, float(eta.max()))))
        f = np.concatenate([self.widths[:1] * math.exp(-top), f])
        return np.asarray(f / f.sum())


@dataclass(frozen=True, slots=True)
class ModelFit:
    """A fitted model.

    Attributes:
        kind: "flat", "smooth", "bell", "heaps", "irregular" or "jumps".
        eta: (K - 1,) η_2 … η_K at the mode.
        shares: (K,) shares at the mode.
        factor: (K - 1, K - 1) lower triangular L; the precision of `eta` is L Lᵀ.
        log_evidence: approximate log-probability of the counts, up to a constant that all models share.
        decades: how much smaller τ is than the largest τ of this kind, in powers of ten; 0 for a kind with a single τ.
        coarser: shares under the model of the same kind with the next larger τ; None without such a model.
        squares: (K - 1,) expected squares of the steps, for "jumps"; otherwise None.
        converged: false if the search for the mode, or for the variances of jumps, ended by its limit of rounds.
    """

    kind: str
    eta: FloatArray
    shares: FloatArray
    factor: FloatArray
    log_evidence: float
    decades: float = 0.0
    coarser: FloatArray | None = None
    squares: FloatArray | None = None
    converged: bool = True


def fits(likelihood: Likelihood) -> list[ModelFit]:
    """Returns all fitted models; the first is the flattest."""
    none = possible_heaps(likelihood.widths.size)[[]]
    smooth = _family(likelihood, "smooth", 2, none)
    rounded, heaps = _with_heaps(likelihood, max(smooth, key=lambda fit: fit.log_evidence))
    found = [*_family(likelihood, "flat", 1, none), *smooth, *rounded]
    start = max(found, key=lambda fit: fit.log_evidence).eta
    found.append(_gaussian(likelihood, "bell", start, *_bell(start.size)))
    eta, squares = start, None
    for sigma in SIGMAS:
        found.append(_gaussian(likelihood, "irregular", eta, *heaps.added(*_irregular(eta.size, sigma))))
        eta = found[-1].eta
    eta = start
    for scale in SCALES:
        found.append(_jumps(likelihood, eta, scale, squares))
        eta, squares = found[-1].eta, found[-1].squares
    return found


def _with_heaps(likelihood: Likelihood, best: ModelFit) -> tuple[list[ModelFit], Heaps]:
    """Returns the models with the rows of heaps that the counts show, and these rows."""
    possible, found, rows = possible_heaps(best.shares.size), list[ModelFit](), list[int]()
    while len(rows) < min(MOST, best.shares.size // EACH):
        gains = possible.gains(likelihood.slope(best.shares), likelihood.information(best.shares), best.factor)
        tried = [*rows, int(gains.argmax())]
        family = _family(likelihood, "heaps", 2, possible[tried]) if gains.max() > 0 else [best]
        new = max(family, key=lambda fit: fit.log_evidence)
        if new.log_evidence <= best.log_evidence:
            break
        found, rows, best = family, tried, new
    return found, possible[rows]


def _family(likelihood: Likelihood, kind: str, order: int, heaps: Heaps) -> list[ModelFit]:
    size = likelihood.widths.size - 1
    exponent = LARGEST + (2 * order - 1) * math.log10((size + 1) / 100)
    eta, found, best, behind = np.zeros(size), list[ModelFit](), -math.inf, 0
    while (exponent > SMALLEST and behind < 2) or not found:
        fit = _gaussian(likelihood, kind, eta, *heaps.added(*_precision(size, order, exponent)))
        found.append(replace(fit, decades=len(found) * DECADES, coarser=found[-1].shares if found else None))
        eta, value = found[-1].eta, found[-1].log_evidence
        best = max(best, value)
        behind = behind + 1 if value < best - HOPELESS else 0
        exponent -= DECADES
    return found


def _gaussian(likelihood: Likelihood, kind: str, start: FloatArray, q: FloatArray, log_det: float) -> ModelFit:
    eta, f, value, factor, converged = _mode(likelihood, start, q)
    evidence = value + 0.5 * log_det - float(np.log(np.diag(factor)).sum())
    return ModelFit(kind, eta, f, factor, evidence, converged=converged)


def _jumps(likelihood: Likelihood, eta: FloatArray, scale: float, squares: FloatArray | None) -> ModelFit:
    from scipy.linalg import lapack

    a, size = DEGREES, eta.size
    squares = np.full(size, 2 * scale) if squares is None else squares
    constant = size * (math.lgamma(a + 0.5) - math.lgamma(a) + a * math.log(scale) + 0.5)
    best = -math.inf
    for _ in range(UPDATES):
        precision = (a + 0.5) / (scale + squares / 2)
        eta, f, value, factor, converged = _mode(likelihood, eta, _of_levels(np.diag(precision)))
        covariance = np.pad(lapack.dpotri(factor, lower=1)[0], ((1, 0), (1, 0)))  # its lower triangle
        own = np.diag(covariance)
        variance = own[1:] + own[:-1] - 2 * np.diag(covariance, -1)
        u = np.diff(eta, prepend=0)
        squares = u**2 + variance
        explained = value + 0.5 * float(precision @ u**2) - 0.5 * float(size - precision @ variance)
        bound = explained + constant - float(np.log(np.diag(factor)).sum() + (a + 0.5) * np.log(scale + squares / 2).sum())
        if bound < best + ENOUGH:
            break
        best = bound
    else:
        converged = False
    return ModelFit("jumps", eta, f, factor, bound, squares=squares, converged=converged)


def _mode(likelihood: Likelihood, eta: FloatArray, q: FloatArray) -> tuple[FloatArray, FloatArray, float, FloatArray, bool]:
    from scipy.linalg import lapack  # slow to load; only estimates need it

    f = likelihood.shares(eta)
    value = likelihood(f) - 0.5 * float(eta @ (q @ eta))
    for _ in range(ROUNDS):
        ascent = likelihood.slope(f) - q @ eta
        step = lapack.dpotrs(_factor(likelihood, f, q), ascent, lower=1)[0]
        length, after = 1.0, -math.inf
        while length > 1e-4 and not after >= value:
            tried = eta + length * step
            shares = likelihood.shares(tried)
            after = likelihood(shares) - 0.5 * float(tried @ (q @ tried))
            length /= 2
        if not after >= value:
            break
        gained, eta, f, value = after - value, tried, shares, after
        if gained < max(GAIN, ROUNDING * abs(value)):
            break
    else:
        return eta, f, value, _factor(likelihood, f, q), False
    return eta, f, value, _factor(likelihood, f, q), True


def _factor(likelihood: Likelihood, f: FloatArray, q: FloatArray) -> FloatArray:
    from scipy.linalg import lapack

    h = likelihood.information(f) + q
    factor, failed = lapack.dpotrf(h, lower=1)
    if failed:  # rounding, for counts that no honest people make
        h[np.diag_indices_from(h)] += 1e-9 * np.trace(h)
        factor, failed = lapack.dpotrf(h, lower=1)
    return np.asarray(factor)


def _of_levels(of_steps: FloatArray) -> FloatArray:
    """Returns the precision of η_2 … η_K for that of the steps."""
    padded = np.pad(of_steps, ((0, 1), (0, 1)))
    return np.asarray(np.diff(np.diff(padded, axis=0), axis=1))


@lru_cache(maxsize=64)
def _precision(size: int, order: int, exponent: float) -> tuple[FloatArray, float]:
    prior, upper = smoothness(size + 1, order, 10.0**exponent), np.zeros((size + 1, size + 1))
    for j, band in enumerate(prior.bands):
        upper += np.diag(band[: band.size - j], j)
    return np.asarray(upper + np.triu(upper, 1).T)[1:, 1:], prior.log_det


@lru_cache(maxsize=16)
def _bell(size: int) -> tuple[FloatArray, float]:
    bends = np.diff(np.eye(size), n=2, axis=0)
    tau = 10.0 ** (BELL_TAU + 5 * math.log10((size + 1) / 100))
    q = np.asarray(size / BELL_SLOPE**2 * np.eye(size) + tau * bends.T @ bends)
    return _of_levels(q), float(np.linalg.slogdet(q)[1])


@lru_cache(maxsize=64)
def _irregular(size: int, sigma: float) -> tuple[FloatArray, float]:
    smooth = np.linalg.inv(_precision(size, 2, IRREGULAR_TAU + 3 * math.log10((size + 1) / 100))[0])
    q = np.asarray(np.linalg.inv(smooth + sigma**2 * (np.eye(size) + 1)), np.float64)
    return q, float(np.linalg.slogdet(q)[1])
