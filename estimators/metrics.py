"""How far an estimate is from the truth. All take (k,) frequencies; `truth` first.

Nothing here clips or renormalises what it is given, but for `emd_grid`, which normalises. For every metric: zeros are numbers
like others, but where its text says so; NaN in either gives NaN; infinities are refused. Negative estimates are numbers like
others to mse, mae, l1, l2 and emd_line; they make kl infinite, and emd_grid refuses them.
"""

import math

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import linprog
from scipy.spatial.distance import cdist

from mechanisms.arguments import FloatArray


def _pair(truth: npt.ArrayLike, estimate: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    a, b = np.asarray(truth, float), np.asarray(estimate, float)
    if a.shape != b.shape or a.ndim != 1 or not a.size:
        raise ValueError(f"truth and estimate must be one-dimensional and of one length, got shapes {a.shape} and {b.shape}")
    if np.isinf(a).any() or np.isinf(b).any():
        raise ValueError(f"truth and estimate must be finite, got {int(np.isinf(a).sum() + np.isinf(b).sum())} infinities")
    return a, b


def mse(truth: npt.ArrayLike, estimate: npt.ArrayLike) -> float:
    """Mean squared error over the k values."""
    a, b = _pair(truth, estimate)
    return float(np.mean((a - b) ** 2))


def mae(truth: npt.ArrayLike, estimate: npt.ArrayLike) -> float:
    """Mean absolute error over the k values: what the tables of LDP³ call l1."""
    a, b = _pair(truth, estimate)
    return float(np.mean(np.abs(a - b)))


def l1(truth: npt.ArrayLike, estimate: npt.ArrayLike) -> float:
    """Sum of absolute errors, twice the total variation distance of two distributions."""
    a, b = _pair(truth, estimate)
    return float(np.sum(np.abs(a - b)))


def l2(truth: npt.ArrayLike, estimate: npt.ArrayLike) -> float:
    """Euclidean distance."""
    a, b = _pair(truth, estimate)
    return float(np.linalg.norm(a - b))


def kl(truth: npt.ArrayLike, estimate: npt.ArrayLike) -> float:
    """Kullback-Leibler divergence Σ f ln(f / f̂), in nats.

    A value of true frequency 0 adds 0, whatever its estimate. A value of positive true frequency that is estimated at 0 or
    below makes it infinite: the estimate calls impossible what happened. (Toolkits that drop such values report a small number
    instead.) Negative true frequencies are refused. Of numbers that do not sum to 1 the result can be negative.
    """
    a, b = _pair(truth, estimate)
    if np.isnan(a).any() or np.isnan(b).any():
        return math.nan
    if a.min() < 0:
        raise ValueError(f"truth must be at least 0, got {float(a.min())!r}")
    present = a > 0
    if (b[present] <= 0).any():
        return math.inf
    return float(np.sum(a[present] * np.log(a[present] / b[present])))


def emd_line(truth: npt.ArrayLike, estimate: npt.ArrayLike) -> float:
    """Earth mover's distance of values that lie on a line, one apart: Σ |difference of the cumulative sums|.

    For estimates that do not sum to 1 the difference at the last value counts too.
    """
    a, b = _pair(truth, estimate)
    return float(np.sum(np.abs(np.cumsum(a - b))))


def emd_grid(truth: npt.ArrayLike, estimate: npt.ArrayLike, points: npt.ArrayLike) -> float:
    """Earth mover's distance of two distributions on points of the plane: the least Σ mass × Euclidean distance that moves one
    into the other. A grid of 32 × 32 takes a second or two, a few where all of the mass moves far.

    Args:
        truth, estimate: (k,) non-negative weights, not all zero; each is normalised.
        points: (k, 2) coordinates of the values, finite.

    What stays at its place costs nothing, so only surplus is moved to where it lacks (exact, by the triangle inequality). The
    linear programme is solved by HiGHS on a few routes; routes that its prices show to be cheaper join until there is none.
    """
    a, b = _pair(truth, estimate)
    where = np.asarray(points, float)
    if where.shape != (a.size, 2) or not np.isfinite(where).all():
        raise ValueError(f"points must be ({a.size}, 2) finite coordinates, got shape {where.shape}")
    if np.isnan(a).any() or np.isnan(b).any():
        return math.nan
    if min(a.min(), b.min()) < 0 or not (a.any() and b.any()):
        raise ValueError(f"weights must be non-negative and not all zero, got least {float(min(a.min(), b.min()))!r}")
    surplus = a / a.sum() - b / b.sum()
    gives, takes = surplus > 0, surplus < 0
    moved = float(surplus[gives].sum())
    if moved < 1e-15 or not takes.any():
        return 0.0
    scale = max(gives.sum(), takes.sum())  # masses around 1, for the solver's tolerances are absolute
    cost = cdist(where[gives], where[takes])
    cheapest = _transport(surplus[gives] / moved * scale, surplus[takes] / surplus[takes].sum() * scale, cost)
    return float(cheapest / scale * moved)


def _transport(supply: FloatArray, demand: FloatArray, cost: FloatArray) -> float:
    """Least cost of bringing the supply (n,) to the demand (m,) of the same sum, at cost (n, m) a unit."""
    n, m = cost.shape
    routes = _cheapest(cost, 8)
    sent, wanted = np.cumsum(supply), np.cumsum(demand)  # and routes on which everything can go: from corner to corner
    ends = np.unique(np.concatenate([sent, wanted]))
    middles = (ends + np.concatenate([[0.0], ends[:-1]])) / 2
    routes[np.minimum(sent.searchsorted(middles), n - 1), np.minimum(wanted.searchsorted(middles), m - 1)] = True
    while True:
        i, j = np.nonzero(routes)
        at = (np.concatenate([i, n + j]), np.tile(np.arange(i.size), 2))
        solution = linprog(
            cost[i, j],
            A_eq=sparse.csr_array((np.ones(2 * i.size), at), shape=(n + m, i.size)),
            b_eq=np.concatenate([supply, demand]),
            bounds=(0, None),
            method="highs-ds",
        )
        if solution.status != 0 and not routes.all():  # rounding has cut a chain of routes
            routes[:] = True
            continue
        if solution.status != 0:
            raise RuntimeError(f"no earth mover's distance for {n} and {m} points: {solution.message}")
        reduced = cost - solution.eqlin.marginals[:n, None] - solution.eqlin.marginals[n:]
        cheaper = reduced < -1e-9 * cost.max()
        if not (cheaper & ~routes).any():
            return float(solution.fun)
        routes |= cheaper & _cheapest(reduced, 4)


def _cheapest(cost: FloatArray, count: int) -> npt.NDArray[np.bool_]:
    """(n, m) the so many least entries of every row and every column."""
    n, m = cost.shape
    chosen = np.zeros((n, m), bool)
    chosen[np.arange(n)[:, None], np.argpartition(cost, min(count, m) - 1, axis=1)[:, :count]] = True
    chosen[np.argpartition(cost, min(count, n) - 1, axis=0)[:count], np.arange(m)] = True
    return chosen


def utility_gain(metric_mi: float, metric_ibu: float) -> float:
    """Γ = 100 max((M_MI - M_IBU) / M_MI, 0): by how many per cent IBU is better than MI.

    0 where both are perfect or both infinite, 100 where MI's metric alone is infinite (as kl is of clipped estimates), NaN
    where one is NaN.

    Source: Arcolezi, Cerna and Palamidessi 2023, Eq. (1).
    """
    if math.isnan(metric_mi) or math.isnan(metric_ibu):
        return math.nan
    if math.isinf(metric_mi):
        return 0.0 if math.isinf(metric_ibu) else 100.0
    return 100 * max((metric_mi - metric_ibu) / metric_mi, 0.0) if metric_mi else 0.0
