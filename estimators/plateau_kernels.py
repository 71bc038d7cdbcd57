"""Loops of the estimate with plateaus, compiled by Numba. The arrays are those of `ValueLikelihood.apart`.

Import this module only inside functions, because Numba loads slowly.
"""

import math
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[Any]


@numba.njit(cache=True, nogil=True)
def _sum(x: Floats) -> float:
    s0 = s1 = s2 = s3 = 0.0
    whole = x.size - x.size % 4
    for i in range(0, whole, 4):
        s0, s1, s2, s3 = s0 + x[i], s1 + x[i + 1], s2 + x[i + 2], s3 + x[i + 3]
    for i in range(whole, x.size):
        s0 += x[i]
    return (s0 + s1) + (s2 + s3)


@numba.njit(cache=True, nogil=True)
def _dot(x: Floats, y: Floats) -> float:
    s0 = s1 = s2 = s3 = 0.0
    whole = x.size - x.size % 4
    for i in range(0, whole, 4):
        s0, s1, s2, s3 = s0 + x[i] * y[i], s1 + x[i + 1] * y[i + 1], s2 + x[i + 2] * y[i + 2], s3 + x[i + 3] * y[i + 3]
    for i in range(whole, x.size):
        s0 += x[i] * y[i]
    return (s0 + s1) + (s2 + s3)


@numba.njit(cache=True, nogil=True)
def _common(v: int, start: Floats, first: Floats) -> tuple[int, int, int]:
    if v == 0:
        return 0, 0, 0
    low = max(first[v], first[v - 1])
    high = min(first[v] + start[v + 1] - start[v], first[v - 1] + start[v] - start[v - 1])
    return low - first[v], start[v - 1] + low - first[v - 1], max(high - low, 0)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def forward_backward(
    like: Floats, start: Floats, first: Floats, prior: Floats, jump: float, later: Floats, posterior: Floats, drawn: Floats,
    smooth: bool,
) -> float:  # fmt: skip
    """Posterior of every share. The first share draws a level. With probability `jump` a later share draws a new level, else it
    keeps the previous share's level.

    Args:
        like: likelihoods, one for each entry of the grid.
        start: (k + 1,) position of each value's first entry.
        first: (k,) point of each value's first entry.
        prior: (J,) probabilities of a new level, one for each point.
        jump: in (0, 1].
        later: one number for each entry; overwritten with the likelihood of all later values given this level, divided by their
            likelihood given this value and all earlier ones.
        posterior: overwritten with the posterior of each value, one probability for each entry; if not `smooth`, only for the
            first value.
        drawn: (J,) overwritten with the expected number of new levels at each point.
        smooth: false if only `drawn` is wanted.

    Returns:
        The log-likelihood of `prior` and `jump`.
    """
    k, value, longest, keep = first.size, 0.0, 0, 1 - jump
    sums = np.empty(k)  # of the entries of `posterior`, which are normalised only at the end
    for v in range(k):
        longest = max(longest, start[v + 1] - start[v])
        here, before, common = _common(v, start, first)
        own, likely, chances = posterior[start[v] : start[v + 1]], like[start[v] : start[v + 1]], prior[first[v] :]
        chance = jump if v else 1.0
        for i in range(own.size):
            own[i] = chance * chances[i] * likely[i]
        if common:
            kept, stay, likely_stay, part = posterior[before:], own[here:], likely[here:], keep / sums[v - 1]
            for i in range(common):
                stay[i] += part * kept[i] * likely_stay[i]
        sums[v] = _sum(own)
        value += math.log(sums[v])
    drawn[:] = 0.0
    told = np.empty(longest)  # likelihood of a value and all later ones, given the value's level
    later[start[k - 1] : start[k]] = 1.0
    for v in range(k - 1, 0, -1):
        here, before, common = _common(v, start, first)
        n, likely, own = start[v + 1] - start[v], like[start[v] : start[v + 1]], later[start[v] : start[v + 1]]
        chances, expected, earlier = prior[first[v] :], drawn[first[v] :], later[start[v - 1] : start[v]]
        for i in range(n):
            told[i] = likely[i] * own[i]
        new = jump * _dot(chances[:n], told[:n])
        kept, stay = later[before:], told[here:]
        total = new + keep * _dot(posterior[before : before + common], stay[:common]) / sums[v - 1]
        level, part, share = new / total, keep / total, jump / total
        for i in range(earlier.size):
            earlier[i] = level
        for i in range(common):
            kept[i] += part * stay[i]
        for i in range(n):
            expected[i] += share * chances[i] * told[i]
    for v in range(k if smooth else 1):
        own, after = posterior[start[v] : start[v + 1]], later[start[v] : start[v + 1]]
        for i in range(own.size):
            own[i] *= after[i]
        scale = 1 / _sum(own)
        for i in range(own.size):
            own[i] *= scale
    for i in range(start[1]):
        drawn[first[0] + i] += posterior[i]
    return value
