"""Post-processing methods for estimated frequencies. Post-processing uses no privacy budget.

Every method takes (k,) estimated frequencies and returns (k,) frequencies. The methods guarantee:

    none            nothing: the frequencies do not change
    base-pos        non-negative frequencies
    norm            the sum 1
    norm-sub        non-negative frequencies with the sum 1: the Euclidean projection onto the simplex
    norm-mul        non-negative frequencies with the sum 1 (the same as clipping and normalising)
    norm-cut        non-negative frequencies with the sum 1
    power           non-negative frequencies
    power-ns        non-negative frequencies with the sum 1

Sources: Wang et al. 2020, "Locally Differentially Private Frequency Estimation with Consistency"; for power Jia and Gong 2019,
"Calibrate".
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy import special

from ldpstream.mechanisms.arguments import FloatArray, one_of
from ldpstream.mechanisms.channel import project

_STEEPEST_POWER = 6.0


def base_pos(x: FloatArray) -> FloatArray:
    """Clips at zero.

    >>> base_pos(np.array([0.7, 0.5, -0.2])).tolist()
    [0.7, 0.5, 0.0]
    """
    return np.maximum(x, 0)


def norm(x: FloatArray) -> FloatArray:
    """Adds one constant to all frequencies, so that their sum is 1.

    >>> norm(np.array([0.7, 0.5, -0.5])).round(12).tolist()
    [0.8, 0.6, -0.4]
    """
    return np.asarray(x + (1 - x.sum()) / x.size)


def norm_sub(x: FloatArray) -> FloatArray:
    """Subtracts a constant from all frequencies and clips at zero, so that the sum is 1: the projection onto the simplex.

    >>> norm_sub(np.array([0.7, 0.5, -0.2])).round(12).tolist()
    [0.6, 0.4, 0.0]
    """
    return project(x)


def norm_mul(x: FloatArray) -> FloatArray:
    """Clips at zero and scales all frequencies to the sum 1. The result is uniform if no frequency is positive.

    This is the clip-and-normalise method of Arcolezi, Cerna and Palamidessi 2023.

    >>> norm_mul(np.array([0.9, 0.6, -0.2])).round(12).tolist()
    [0.6, 0.4, 0.0]
    """
    clipped = np.maximum(x, 0)
    scale = clipped.max()
    if scale <= 0:
        return np.full(x.size, 1 / x.size)
    clipped = clipped / scale  # a sum of subnormal numbers would lose its digits
    return np.asarray(clipped / clipped.sum())


def norm_cut(x: FloatArray) -> FloatArray:
    """Keeps the largest frequencies up to the sum 1, and sets the others to zero.

    The frequency at which the sum would exceed 1 is reduced. If the positive frequencies sum to less than 1, `norm_cut` scales
    them like `norm_mul`.

    >>> norm_cut(np.array([0.7, 0.2, 0.4, -0.3])).round(12).tolist()
    [0.7, 0.0, 0.3, 0.0]
    """
    clipped = np.maximum(x, 0)
    if clipped.sum() <= 1:
        return norm_mul(x)
    order = np.argsort(-clipped, kind="stable")
    before = np.cumsum(clipped[order]) - clipped[order]
    result = np.zeros(x.size)
    result[order] = np.minimum(clipped[order], np.maximum(1 - before, 0))
    return result


def power(x: FloatArray, variance: npt.ArrayLike) -> FloatArray:
    """Posterior means of the true frequencies, if these follow a power law and the noise is normal with known variance.

    The power law has a density proportional to t^-a on (1 / (100 k), 1). The exponent a in [0, 6] is fitted by maximum
    likelihood.

    Args:
        x: (k,) estimates.
        variance: noise variance of each estimate, a number or (k,), at least 0.
    """
    low = 1 / (100 * x.size)
    spread = np.sqrt(np.broadcast_to(np.asarray(variance, float), x.shape))
    spread = np.maximum(spread, 1e-6 * low)  # avoids division by zero if there is no noise
    kinds, which, people = np.unique(x + 1j * spread, return_inverse=True, return_counts=True)  # equal counts occur many times
    x, spread = kinds.real, kinds.imag
    narrow = x > _CLEAR * spread
    narrow |= (x < low) & (_width(np.maximum(low - x, 0), spread) < low)  # the posterior lies at the lower bound
    clear, unclear = np.flatnonzero(narrow), np.flatnonzero(~narrow)
    grid, steps = _grid(low)
    starts = np.arange(0, unclear.size, 1 + unclear.size // _FITTED)  # runs of neighbours; one estimate stands for a run
    fitted = unclear[np.minimum(starts + (unclear.size // _FITTED) // 2, unclear.size - 1)]
    stands_for = np.add.reduceat(people[unclear], starts) if unclear.size else people[unclear]
    exponents = np.array([0.0, _STEEPEST_POWER])
    for _ in range(_SEARCHES):
        tried = np.linspace(exponents[0], exponents[-1], 33)
        prior = _prior(grid, steps, tried)
        fit = -people.sum() * _log_mass(low, tried)
        for b in _blocks(clear):
            fit += people[b] @ _narrow(x[b], spread[b], low, tried)[0]
        for b in _blocks(np.arange(fitted.size)):
            fit += stands_for[b] @ np.log(_likelihood(x[fitted[b]], spread[fitted[b]], grid) @ prior)
        best = int(fit.argmax())
        exponents = tried[max(best - 1, 0) : best + 2]
    exponent = tried[best : best + 1]
    result = np.empty(x.size)
    for b in _blocks(clear):
        result[b] = _narrow(x[b], spread[b], low, exponent)[1][:, 0]
    prior = _prior(grid, steps, exponent)[:, 0]
    for b in _blocks(unclear):
        posterior = _likelihood(x[b], spread[b], grid) * prior
        result[b] = (posterior @ grid) / posterior.sum(axis=1)
    return np.asarray(result[which])


_CLEAR = 20.0  # in standard errors; estimates farther from zero have a narrow posterior
_REACH = 10.0  # in standard errors; true numbers farther away have no weight
_NODES = 640  # nodes of ln t, for estimates near zero
_NODES_NARROW = 64  # nodes of t, for other estimates
_SEARCHES = 5  # number of searches; each narrows the exponent's bracket by a factor of 16
_FITTED = 2**14  # largest number of estimates near zero in the exponent's fit; larger inputs are thinned out regularly
_BLOCK = 1024  # estimates per block, to keep memory small


def _blocks(positions: npt.NDArray[np.intp]) -> list[npt.NDArray[np.intp]]:
    return [positions[start : start + _BLOCK] for start in range(0, positions.size, _BLOCK)]


@cache
def _gauss_legendre(nodes: int) -> tuple[FloatArray, FloatArray]:
    u, weights = np.polynomial.legendre.leggauss(nodes)
    return (1 + u) / 2, weights / 2


def _grid(low: float) -> tuple[FloatArray, FloatArray]:
    u, weights = _gauss_legendre(_NODES)
    return np.exp(np.log(low) * (1 - u)), -np.log(low) * weights


def _likelihood(x: FloatArray, spread: FloatArray, grid: FloatArray) -> FloatArray:
    nearest = np.clip(x[:, None], grid[..., :1], grid[..., -1:])  # keeps the precision of an estimate far outside the grid
    exponent = -0.5 * (grid - nearest) / spread[:, None] * ((grid - nearest + 2 * (nearest - x[:, None])) / spread[:, None])
    return np.asarray(np.exp(exponent - exponent.max(axis=1, keepdims=True)))


def _prior(grid: FloatArray, steps: FloatArray, exponents: FloatArray) -> FloatArray:
    return np.asarray(np.exp(np.log(grid)[:, None] * (1 - exponents)) * steps[:, None])


def _log_mass(low: float, exponents: FloatArray) -> FloatArray:
    b = (1 - exponents) * np.log(low)
    return np.asarray(np.log(-np.log(low)) + np.log(special.exprel(b)))


def _width(beyond: FloatArray, spread: FloatArray) -> FloatArray:
    return np.asarray(4 * _REACH * spread / (beyond / spread + 4))


def _narrow(x: FloatArray, spread: FloatArray, low: float, exponents: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Log-likelihood and posterior mean, (len(x), exponents) each, for estimates far from zero or below the lower bound."""
    centre = np.clip(x, low, 1)
    width = _width(np.abs(x - centre), spread)
    start, end = np.maximum(centre - width, low), np.minimum(centre + width, 1)
    u, weights = _gauss_legendre(_NODES_NARROW)
    t = start[:, None] + (end - start)[:, None] * u
    at_nodes = (weights * _likelihood(x, spread, t))[:, :, None] * np.exp(-np.log(t)[:, :, None] * exponents)
    mass = at_nodes.sum(axis=1)
    return np.log(mass), np.einsum("ij,ija->ia", t, at_nodes) / mass


METHODS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "none": lambda x: x,
    "base-pos": base_pos,
    "norm": norm,
    "norm-sub": norm_sub,
    "norm-mul": norm_mul,
    "norm-cut": norm_cut,
}
NAMES = (*METHODS, "power", "power-ns")


def check_method(method: str) -> None:
    """Raises ValueError if no method has this name."""
    one_of("post", method, NAMES)


def post_process(frequencies: npt.ArrayLike, method: str, *, variance: npt.ArrayLike | None = None) -> FloatArray:
    """Applies the post-processing method with this name. One NaN makes all results NaN.

    Args:
        frequencies: (k,) estimated frequencies.
        method: one of `NAMES`.
        variance: noise variance of the estimates, a number or (k,), at least 0; only power and power-ns need it.

    Raises:
        ValueError: if `method` is unknown, if `frequencies` is empty, has infinities or not one dimension, or if a needed
            `variance` is missing, negative or infinite, or has another shape.
    """
    check_method(method)
    x = np.asarray(frequencies, float)
    if x.ndim != 1 or not x.size or np.isinf(x).any():
        raise ValueError(f"frequencies must be a one-dimensional array of finite numbers, got shape {x.shape}")
    if np.isnan(x).any():
        return np.full(x.size, np.nan)
    if method not in ("power", "power-ns"):
        return METHODS[method](x)
    noise = np.asarray(math.nan if variance is None else variance, float)
    if noise.shape not in ((), x.shape) or not ((noise >= 0) & (noise < np.inf)).all():
        raise ValueError(f"variance must be at least 0 for {method}, one number or {x.size} numbers, got {variance!r}")
    estimate = power(x, noise)
    return norm_sub(estimate) if method == "power-ns" else estimate
