import math

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import linprog
from scipy.spatial.distance import cdist

from lab.error_measures import pair

TOLERANCE = 1e-10  # tolerance of the linear programme, relative to the longest distance


def emd_grid(truth: npt.ArrayLike, estimate: npt.ArrayLike, points: npt.ArrayLike) -> float:
    """Earth mover's distance of two distributions on (k, 2) points of the plane: the least Σ mass × Euclidean distance."""
    a, b = pair(truth, estimate)
    where = np.asarray(points, float)
    if where.shape != (a.size, 2) or not np.isfinite(where).all():
        raise ValueError(f"points must be ({a.size}, 2) finite coordinates, got shape {where.shape}")
    if np.isnan(a).any() or np.isnan(b).any():
        return math.nan
    if min(a.min(), b.min()) < 0 or not (a.any() and b.any()):
        raise ValueError(f"weights must be non-negative and not all zero, got least {float(min(a.min(), b.min()))!r}")
    excess = a / a.sum() - b / b.sum()
    sources, sinks = np.flatnonzero(excess > 0), np.flatnonzero(excess < 0)
    if not (sources.size and sinks.size):
        return 0.0
    moved = excess[sources].sum()
    ways = cdist(where[sources], where[sinks])
    longest = ways.max()
    from_sources = sparse.kron(sparse.eye_array(sources.size), np.ones((sinks.size, 1)))
    to_sinks = sparse.kron(np.ones((sources.size, 1)), sparse.eye_array(sinks.size))
    solution = linprog(
        np.concatenate([-excess[sources] / moved, excess[sinks] / excess[sinks].sum()]),
        A_ub=sparse.hstack([from_sources, -to_sinks]).tocsr(),
        b_ub=ways.ravel() / longest,
        bounds=(-1, 1),
        options={"primal_feasibility_tolerance": TOLERANCE, "dual_feasibility_tolerance": TOLERANCE},
    )
    if solution.status != 0:
        raise RuntimeError(f"emd_grid found no solution for {a.size} values: {solution.message}")
    return float(-solution.fun * moved * longest)
