"""Loops of the estimate with plateaus, compiled by Numba. The arrays are those of `ValueLikelihood.apart`.

Import this module only inside the calling function, because Numba needs half a second to load.
"""

import math
from typing import Any

import numba
import numpy.typing as npt

Floats = npt.NDArray[Any]


@numba.njit(cache=True, error_model="numpy")
def forward_backward(
    like: Floats, start: Floats, first: Floats, law: Floats, jump: float, later: Floats, posterior: Floats, drawn: Floats
) -> float:
    """Posterior of every share if each keeps the level of the share before, or with the chance `jump` draws a new level.

    Args:
        like: likelihoods, one for each entry of the grid.
        start: (k + 1,) position of each value's first entry.
        first: (k,) point of each value's first entry.
        law: (J,) probabilities of a new level.
        jump: in (0, 1].
        later: one number for each entry; overwritten with the likelihood of all later values given this level, scaled.
        posterior: overwritten with the posterior of each value, one probability for each entry.
        drawn: (J,) overwritten with the expected number of new levels at each point. The first value has a new level.

    Returns:
        The log-likelihood of `law` and `jump`.
    """
    k, value = first.size, 0.0
    for v in range(k):
        total = 0.0
        for e in range(start[v], start[v + 1]):
            point = e - start[v] + first[v]
            chance = law[point] * (jump if v else 1.0)
            if v:
                before = point - first[v - 1] + start[v - 1]
                if start[v - 1] <= before < start[v]:
                    chance += (1 - jump) * posterior[before]
            posterior[e] = chance * like[e]
            total += posterior[e]
        for e in range(start[v], start[v + 1]):
            posterior[e] /= total
        value += math.log(total)
    drawn[:] = 0.0
    for e in range(start[k - 1], start[k]):
        later[e] = 1.0
    for v in range(k - 1, 0, -1):
        new = 0.0
        for e in range(start[v], start[v + 1]):
            new += law[e - start[v] + first[v]] * like[e] * later[e]
        total, largest = jump * new, 0.0
        for e in range(start[v - 1], start[v]):
            after = e - start[v - 1] + first[v - 1] - first[v] + start[v]
            later[e] = jump * new
            if start[v] <= after < start[v + 1]:
                kept = (1 - jump) * like[after] * later[after]
                later[e] += kept
                total += posterior[e] * kept
            largest = max(largest, later[e])
        for e in range(start[v], start[v + 1]):
            point = e - start[v] + first[v]
            drawn[point] += jump * law[point] * like[e] * later[e] / total
        for e in range(start[v - 1], start[v]):
            later[e] /= largest
    for v in range(k):
        total = 0.0
        for e in range(start[v], start[v + 1]):
            posterior[e] *= later[e]
            total += posterior[e]
        for e in range(start[v], start[v + 1]):
            posterior[e] /= total
            if v == 0:
                drawn[e - start[v] + first[v]] += posterior[e]
    return value
