"""The loop of plain expectation maximisation (EM), compiled by Numba.

Import this module only inside functions, because Numba loads slowly.
"""

import numba
import numpy as np

from ldpstream.estimators.bayes.exponential import Floats, dot


@numba.njit(cache=True, error_model="numpy")
def support_em(
    support: Floats, times: Floats, q: Floats, slope: Floats, f: Floats, max_iter: int, tol: float
) -> tuple[int, bool]:
    """Runs EM for a sum of `terms.SupportTerm`, in place.

        r_a = c_a / (q_a + slope_a f),   f ← f Σ_a (q_a Σr_a + slope_a r_a) / Σc

    Values with equal counts and equal starting frequencies form a kind.

    Args:
        support: (groups, kinds) support counts, not all zero.
        times: (kinds,) number of values of each kind; the sums in the formulas run over values.
        q, slope: (groups,) q > 0 and p - q.
        f: (kinds,) starting frequencies, positive, with sum 1 over the values; overwritten.
        max_iter, tol: the loop stops after max_iter iterations, or when no frequency changes by more than tol.

    Returns:
        Number of iterations, and true if the loop met the tolerance.
    """
    groups, k = support.shape
    total = 0.0
    for a in range(groups):
        for v in range(k):
            total += support[a, v] * times[v]
    r, update = np.empty(k), np.zeros(k)
    for iteration in range(max_iter):
        constant = 0.0
        for a in range(groups):
            c, q_a, slope_a = support[a], q[a], slope[a]
            by = slope_a / total
            for v in range(k):
                r[v] = c[v] / (q_a + slope_a * f[v])
                update[v] += by * r[v]
            constant += q_a / total * dot(r, times)
        moved = False
        for v in range(k):
            after = f[v] * (constant + update[v])
            moved |= not abs(after - f[v]) <= tol
            f[v], update[v] = after, 0.0
        if not moved:
            return iteration + 1, True
    return max_iter, False
