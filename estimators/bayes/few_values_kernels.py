"""The convolutions of the estimate for few values, compiled by Numba.

Import this module only inside functions, because Numba loads slowly.
"""

import numba
import numpy as np

from ldpstream.estimators.bayes.exponential import Floats


@numba.njit(cache=True, error_model="numpy")
def marginals(weighted: Floats, size: Floats, total: int) -> tuple[Floats, Floats]:
    """Distribution of each of k independent integers, given their sum, under each component of a mixture.

    Args:
        weighted: (k, components, most points) weights of the values 0, 1 … of each integer.

    Returns:
        (components, k, most points) probabilities, 0 for a component under which this sum is impossible; and (components,)
        weight of the sum.
    """
    k, components, points = weighted.shape
    found, weight = np.zeros((components, k, points)), np.zeros(components)
    before, after = np.zeros((k + 1, total + 1)), np.zeros((k + 1, total + 1))
    up_to, from_on = np.zeros(k + 1, np.int64), np.zeros(k + 1, np.int64)  # largest sums of the values before v, and from v on
    for v in range(k):
        up_to[v + 1] = min(total, up_to[v] + size[v] - 1)
    for v in range(k - 1, -1, -1):
        from_on[v] = min(total, from_on[v + 1] + size[v] - 1)
    for c in range(components):
        before[:], after[:] = 0.0, 0.0
        before[0, 0], after[k, 0] = 1.0, 1.0
        for v in range(k):
            _add(before[v], weighted[v, c], size[v], up_to[v], total, before[v + 1])
        for v in range(k - 1, -1, -1):
            _add(after[v + 1], weighted[v, c], size[v], from_on[v + 1], total, after[v])
        weight[c] = before[k, total]
        if weight[c] > 0:
            for v in range(k):
                for j in range(min(size[v], total + 1)):
                    rest = 0.0
                    for s in range(max(0, total - j - from_on[v + 1]), min(up_to[v], total - j) + 1):
                        rest += before[v, s] * after[v + 1, total - j - s]
                    found[c, v, j] = weighted[v, c, j] * rest / weight[c]
    return found, weight


@numba.njit(cache=True, error_model="numpy")
def _add(sums: Floats, weights: Floats, size: int, highest: int, total: int, found: Floats) -> None:
    for s in range(highest + 1):
        if sums[s] > 0:
            for j in range(min(size, total - s + 1)):
                found[s + j] += sums[s] * weights[j]
