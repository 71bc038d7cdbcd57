"""Loops of the empirical-Bayes estimate, compiled by Numba. The arrays are those of `estimators.value_likelihood`.

Import this module only inside the calling function, because Numba needs half a second to load.
"""

import math
from typing import Any

import numba
import numpy.typing as npt

Floats = npt.NDArray[Any]


@numba.njit(cache=True, error_model="numpy")
def tilt(log_like: Floats, start: Floats, first: Floats, points: Floats, by: float, like: Floats) -> None:
    """Writes exp(log_like + by · f) to `like`, scaled so that the largest number of each kind is 1."""
    for i in range(first.size):
        shift, largest = first[i] - start[i], -math.inf
        for j in range(start[i], start[i + 1]):
            like[j] = log_like[j] + by * points[j + shift]
            largest = max(largest, like[j])
        for j in range(start[i], start[i + 1]):
            like[j] = math.exp(like[j] - largest)


@numba.njit(cache=True, error_model="numpy")
def posterior(
    like: Floats, start: Floats, first: Floats, points: Floats, prior: Floats, times: Floats, mean: Floats, variance: Floats,
    mass: Floats,
) -> float:  # fmt: skip
    """Posterior of every kind, into `mean` and `variance`, and the sum of all values' posteriors, into `mass`.

    Returns:
        The log-likelihood of the prior: the sum over values of ln Σ prior · like.
    """
    mass[:] = 0.0
    value = 0.0
    for i in range(mean.size):
        begin, shift = start[i], first[i] - start[i]
        total, sum_1 = 0.0, 0.0
        for j in range(begin, start[i + 1]):
            p = like[j] * prior[j + shift]
            total += p
            sum_1 += p * points[j + shift]
        centre, sum_2, weight = sum_1 / total, 0.0, times[i] / total
        for j in range(begin, start[i + 1]):
            p = like[j] * prior[j + shift]
            away = points[j + shift] - centre
            sum_2 += p * away * away
            mass[j + shift] += weight * p
        mean[i], variance[i] = centre, sum_2 / total
        value += times[i] * math.log(total)
    return value
