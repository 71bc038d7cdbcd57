"""EMS: expectation maximisation with a smoothing step.

Each iteration is an EM step (`likelihood`), then a smoothing step that replaces every cell by the binomial mean of
itself and its neighbours:

    f_i ← (f_{i-1} + 2 f_i + f_{i+1}) / 4        at the two ends (2 f_0 + f_1) / 3

The iteration stops when the log-likelihood changes by less than τ = 10⁻³ nats, or after `max_iter` iterations.

`ems` divides every bin into equal cells, at least 256 in all.

Source: Li et al. 2020, arXiv:1912.01051, §5.5 (τ, the smoothing step); Silverman, Jones, Wilson and Nychka 1990 (EMS).
"""

from collections.abc import Iterable

import numpy as np

from ldpstream.estimators.estimate import Estimate, Group, groups_of
from ldpstream.estimators.maximum.likelihood import likelihood_terms
from ldpstream.estimators.maximum.optimum import duality_gap, evaluate
from ldpstream.mechanisms import CountTable, Mechanism
from ldpstream.mechanisms.arguments import FloatArray, integer

CELLS = 256  # least number of cells that are smoothed
TOLERANCE = 1e-3  # τ of the module's docstring, in nats


def ems(m: Mechanism | Iterable[Group], table: CountTable | None = None, *, max_iter: int = 10_000) -> Estimate:
    """Histogram of a number by EM with smoothing (EMS), for values in the order of their bins.

    For a pure mechanism, the likelihood is that of the support counts.

    Args:
        m, table: as in `matrix_inversion`; the mechanism is Square Wave, or any other mechanism on bins.
        max_iter: largest number of iterations, at least 1.

    Returns:
        Frequencies with sum 1, and NaN as standard errors. `Estimate.of_nothing` if the counts carry no information.

    Raises:
        ValueError, TypeError: as in `matrix_inversion`; also if `max_iter` is not an integer in [1, 10⁹].

    >>> from ldpstream.mechanisms import mechanism
    >>> m = mechanism("SW", k=5, eps=1.0)
    >>> ems(m, m.table(7, np.array([1, 2, 2, 1, 1, 0]))).frequencies.round(3).tolist()
    [0.175, 0.622, 0.142, 0.061, 0.001]
    """
    groups = groups_of(m, table)
    k = groups[0][0].k
    integer("max_iter", max_iter, 1, 10**9)
    n = sum(counts.n for _, counts in groups)
    terms = likelihood_terms(groups, "support")
    if not any(term(np.full(k, 1 / k))[1].any() for term in terms):
        return Estimate.of_nothing(k, n)
    cells = np.full((k, -(-CELLS // k)), 1.0)
    cells /= cells.size
    bins = cells.sum(axis=1)
    value, gradient = evaluate(terms, bins)
    iterations, converged = 0, False
    while iterations < max_iter and not converged:
        cells = smoothed(cells * gradient[:, None])
        bins = cells.sum(axis=1)
        before = value
        value, gradient = evaluate(terms, bins)
        iterations, converged = iterations + 1, abs(value - before) < TOLERANCE
    return Estimate(bins, np.full(k, np.nan), n, iterations, converged, value, duality_gap(bins, gradient) / n)


def smoothed(cells: FloatArray) -> FloatArray:
    """Returns the cells after one smoothing step, with sum 1. Neighbours are neighbours in row-major order."""
    line = cells.ravel()
    result = 2 * line
    result[1:] += line[:-1]
    result[:-1] += line[1:]
    result[1:-1] /= 4
    result[[0, -1]] /= 3
    result /= result.sum()
    return result.reshape(cells.shape)
