"""Post-processing: making estimates non-negative and consistent. It needs no further privacy budget.

Every method takes and returns (k,) numbers that are meant to sum to a total: 1 for frequencies, the number of reports for
counts. NaN in, NaN out. Whether the result is non-negative and sums to the total:

    none            as it is
    base-pos        non-negative
    norm            sums
    norm-sub        both: the Euclidean projection onto the simplex
    norm-mul        both (the same as clipping and normalising)
    norm-cut        both
    power           non-negative
    power-ns        both

Sources: Wang et al. 2020, "Locally Differentially Private Frequency Estimation with Consistency"; for power Jia and Gong 2019,
"Calibrate".
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

from mechanisms.arguments import FloatArray, one_of, real

_POWER_GRID = 256
_STEEPEST_POWER = 6.0


def base_pos(x: FloatArray, total: float) -> FloatArray:
    """Clip at zero.

    >>> base_pos(np.array([0.7, 0.5, -0.2]), 1.0).tolist()
    [0.7, 0.5, 0.0]
    """
    return np.maximum(x, 0)


def norm(x: FloatArray, total: float) -> FloatArray:
    """Add one number to all, such that they sum to the total.

    >>> norm(np.array([0.7, 0.5, -0.5]), 1.0).round(12).tolist()
    [0.8, 0.6, -0.4]
    """
    return np.asarray(x + (total - x.sum()) / x.size)


def norm_sub(x: FloatArray, total: float) -> FloatArray:
    """Subtract one number from all and clip at zero, such that they sum to the total: the projection onto the simplex.

    O(k log k) by one sort. Source of the algorithm: Duchi et al. 2008.

    >>> norm_sub(np.array([0.7, 0.5, -0.2]), 1.0).round(12).tolist()
    [0.6, 0.4, 0.0]
    """
    x = x - x.max()  # the result is the same, and numbers that dwarf the total lose nothing
    descending = np.sort(x)[::-1]
    excess = np.cumsum(descending) - total
    kept = np.arange(1, descending.size + 1)
    last = np.flatnonzero(descending * kept > excess)[-1]
    return np.asarray(np.maximum(x - excess[last] / kept[last], 0))


def norm_mul(x: FloatArray, total: float) -> FloatArray:
    """Clip at zero and multiply by one number, such that they sum to the total; uniform if nothing is positive.

    The same as the clip-and-normalise of Arcolezi, Cerna and Palamidessi 2023.

    >>> norm_mul(np.array([0.9, 0.6, -0.2]), 1.0).round(12).tolist()
    [0.6, 0.4, 0.0]
    """
    clipped = np.maximum(x, 0)
    scale = clipped.max()
    if scale <= 0:
        return np.full(x.size, total / x.size)
    clipped = clipped / scale  # a sum of subnormal numbers would lose its digits
    return np.asarray(clipped / clipped.sum() * total)


def norm_cut(x: FloatArray, total: float) -> FloatArray:
    """Keep the largest numbers and cut the others to zero, such that they sum to the total.

    The number that would exceed the total is kept in part. If the positive ones sum to less there is nothing to cut, and
    they are multiplied as by `norm_mul`. O(k log k) by one sort; equal numbers are kept in their order.

    >>> norm_cut(np.array([0.7, 0.2, 0.4, -0.3]), 1.0).round(12).tolist()
    [0.7, 0.0, 0.3, 0.0]
    """
    clipped = np.maximum(x, 0)
    if clipped.sum() <= total:
        return norm_mul(x, total)
    order = np.argsort(-clipped, kind="stable")
    before = np.cumsum(clipped[order]) - clipped[order]
    result = np.zeros(x.size)
    result[order] = np.minimum(clipped[order], np.maximum(total - before, 0))
    return result


def power(x: FloatArray, total: float, variance: npt.ArrayLike) -> FloatArray:
    """Posterior means under a power law for the true numbers and normal noise of the known variance.

    The law has density proportional to t^-a on (total / 100 k, total); its exponent a is the one under which the estimates
    are the most likely. So small estimates shrink towards zero by as much as the noise explains.

    Args:
        x: (k,) estimates.
        total: what they are meant to sum to.
        variance: of the noise of each estimate, a number or (k,), positive.
    """
    grid = np.geomspace(total / (100 * x.size), total, _POWER_GRID)
    spread = np.sqrt(np.broadcast_to(np.asarray(variance, float), x.shape))[:, None]
    exponent = -0.5 * ((x[:, None] - grid) / spread) ** 2
    likelihood = np.exp(exponent - exponent.max(axis=1, keepdims=True))  # (k, grid)

    def prior(a: float) -> FloatArray:
        weights = np.exp((1 - a) * np.log(grid / total))  # density times the step of a geometric grid
        return np.asarray(weights / weights.sum())

    best = minimize_scalar(
        lambda a: -np.log(likelihood @ prior(a)).sum(), bounds=(0.0, _STEEPEST_POWER), method="bounded", options={"xatol": 1e-6}
    ).x
    posterior = likelihood * prior(best)
    return np.asarray((posterior @ grid) / posterior.sum(axis=1))


METHODS: dict[str, Callable[[FloatArray, float], FloatArray]] = {
    "none": lambda x, total: x,
    "base-pos": base_pos,
    "norm": norm,
    "norm-sub": norm_sub,
    "norm-mul": norm_mul,
    "norm-cut": norm_cut,
}
NAMES = (*METHODS, "power", "power-ns")


def check_method(method: str) -> None:
    """ValueError unless there is a method of that name."""
    one_of("post", method, NAMES)


def post_process(
    frequencies: npt.ArrayLike, method: str, *, variance: npt.ArrayLike | None = None, total: float = 1.0
) -> FloatArray:
    """Apply a method by its name.

    Args:
        frequencies: (k,) estimated frequencies, or counts.
        method: one of `NAMES`.
        variance: noise variance of the estimates, a positive number or (k,); needed by power and power-ns alone.
        total: what the estimates are meant to sum to: 1 for frequencies, the number of reports for counts; positive.

    Raises:
        ValueError: if an argument is not allowed.
    """
    check_method(method)
    x, total = np.asarray(frequencies, float), real("total", total, 1e-300, 1e300)
    if x.ndim != 1 or not x.size or np.isinf(x).any():
        raise ValueError(f"frequencies must be a one-dimensional array of finite numbers, got shape {x.shape}")
    if np.isnan(x).any():
        return np.full(x.size, np.nan)
    if method not in ("power", "power-ns"):
        return METHODS[method](x, total)
    if variance is None or not (np.asarray(variance, float) > 0).all():
        raise ValueError(f"variance must be positive for {method}, got {variance!r}")
    estimate = power(x, total, variance)
    return norm_sub(estimate, total) if method == "power-ns" else estimate
