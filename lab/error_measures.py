"""Metrics of an estimate's error. Each metric takes two (k,) vectors of frequencies: the truth, then the estimate.

No metric clips or renormalises its arguments. NaN in either argument gives NaN; infinities raise ValueError.
"""

import math

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms.arguments import FloatArray


def pair(truth: npt.ArrayLike, estimate: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """The two vectors as arrays. Raises ValueError for infinities, and for vectors that are not of one length."""
    a, b = np.asarray(truth, float), np.asarray(estimate, float)
    if a.shape != b.shape or a.ndim != 1 or not a.size:
        raise ValueError(f"truth and estimate must be one-dimensional and of one length, got shapes {a.shape} and {b.shape}")
    if np.isinf(a).any() or np.isinf(b).any():
        raise ValueError(f"truth and estimate must be finite, got {int(np.isinf(a).sum() + np.isinf(b).sum())} infinities")
    return a, b


def mse(truth: npt.ArrayLike, estimate: npt.ArrayLike) -> float:
    """Mean squared error over the k values."""
    a, b = pair(truth, estimate)
    return float(np.mean((a - b) ** 2))


def mae(truth: npt.ArrayLike, estimate: npt.ArrayLike) -> float:
    """Mean absolute error over the k values; the tables of LDP³ call this metric l1."""
    a, b = pair(truth, estimate)
    return float(np.mean(np.abs(a - b)))


def l1(truth: npt.ArrayLike, estimate: npt.ArrayLike) -> float:
    """Sum of absolute errors, twice the total variation distance of two distributions."""
    a, b = pair(truth, estimate)
    return float(np.sum(np.abs(a - b)))


def l2(truth: npt.ArrayLike, estimate: npt.ArrayLike) -> float:
    """Euclidean distance."""
    a, b = pair(truth, estimate)
    return float(np.linalg.norm(a - b))


def kl(truth: npt.ArrayLike, estimate: npt.ArrayLike) -> float:
    """Kullback-Leibler divergence Σ f ln(f / f̂), in nats.

    A value of true frequency 0 adds 0 for every estimate. The result is infinite if an estimate is 0 or below where the true
    frequency is positive. Negative true frequencies raise ValueError.
    """
    a, b = pair(truth, estimate)
    if np.isnan(a).any() or np.isnan(b).any():
        return math.nan
    if a.min() < 0:
        raise ValueError(f"truth must be at least 0, got {float(a.min())!r}")
    present = a > 0
    if (b[present] <= 0).any():
        return math.inf
    return float(np.sum(a[present] * np.log(a[present] / b[present])))


def emd_line(truth: npt.ArrayLike, estimate: npt.ArrayLike) -> float:
    """Earth mover's distance of values at unit distances on a line: Σ |difference of the cumulative sums|."""
    a, b = pair(truth, estimate)
    return float(np.sum(np.abs(np.cumsum(a - b))))
