"""Loops of the estimate with plateaus, compiled by Numba. The arrays are those of `ValueLikelihood.apart`.

Import this module only inside functions, because Numba loads slowly.
"""

import numba
import numpy as np

from ldpstream.estimators.bayes.exponential import SUMS, Floats


@numba.njit(cache=True)
def _common(v: int, start: Floats, first: Floats) -> tuple[int, int, int]:
    """Returns the position of the first common point of values v and v - 1 in the entries of each, and the number of common
    points."""
    if v == 0:
        return 0, 0, 0
    low = max(first[v], first[v - 1])
    high = min(first[v] + start[v + 1] - start[v], first[v - 1] + start[v] - start[v - 1])
    return low - first[v], low - first[v - 1], max(high - low, 0)


@numba.njit(cache=True, error_model="numpy", fastmath=SUMS)
def forward_backward(
    like: Floats, start: Floats, first: Floats, prior: Floats, jump: float, chances: Floats, drawn: Floats, posterior: Floats
) -> None:
    """Posterior of every share. The first share draws a level. With probability `jump` a later share draws a new level, else it
    keeps the previous share's level.

    Args:
        like: likelihoods, one for each entry of the grid.
        start: (k + 1,) position of each value's first entry.
        first: (k,) point of each value's first entry.
        prior: (J,) probabilities of a new level, one for each point.
        jump: in (0, 1].
        chances: (k,) overwritten with the likelihood of each value given the earlier ones.
        drawn: (J,) overwritten with the expected number of new levels at each point.
        posterior: overwritten with the posterior of each value, one probability for each entry. If it is empty, it stays so.
    """
    k, longest, keep, whole = first.size, 0, 1 - jump, posterior.size > 0
    for v in range(k):
        longest = max(longest, start[v + 1] - start[v])
    two = np.empty((2, longest))  # one number for each entry of a value and of its neighbour
    for v in range(k):
        here, before, common = _common(v, start, first)
        likely, fresh = like[start[v] : start[v + 1]], prior[first[v] :]
        own, kept = two[v % 2], two[1 - v % 2]  # joint probability of each level and the value, given the earlier values
        new, total = jump if v else 1.0, 0.0
        for i in range(likely.size):
            own[i] = new * fresh[i] * likely[i]
            total += own[i]
        if common:
            stay, stay_kept, likely_stay, part = own[here:], kept[before:], likely[here:], keep / chances[v - 1]
            for i in range(common):
                add = part * stay_kept[i] * likely_stay[i]
                stay[i] += add
                total += add
        chances[v] = total
        if whole:
            posterior[start[v] : start[v + 1]] = own[: likely.size]
    drawn[:] = 0.0
    two[(k - 1) % 2, :] = 1.0
    for v in range(k - 1, -1, -1):
        here, before, common = _common(v, start, first)
        likely, fresh, expected = like[start[v] : start[v + 1]], prior[first[v] :], drawn[first[v] :]
        # likelihood of all later values given each level of this value, divided by their likelihood given the values up to it
        later, earlier = two[v % 2], two[1 - v % 2]
        new, total = (jump if v else 1.0) / chances[v], 0.0
        if whole:
            own = posterior[start[v] : start[v + 1]]
            for i in range(own.size):
                own[i] *= later[i]
                total += own[i]
            for i in range(own.size):
                own[i] /= total
        told = 0.0
        for i in range(likely.size):
            later[i] *= likely[i]
            told += fresh[i] * later[i]
            expected[i] += new * fresh[i] * later[i]
        if v:
            for i in range(start[v] - start[v - 1]):
                earlier[i] = new * told
            stay, stay_earlier, part = later[here:], earlier[before:], keep / chances[v]
            for i in range(common):
                stay_earlier[i] += part * stay[i]
