"""Estimates by likelihood: iterative Bayesian update (IBU, an EM) over one or several mechanisms, and its limit.

For a channel with p on the diagonal and q elsewhere, the log-likelihood of support counts c is Σ_v c_v ln γ_v with
γ = q + (p-q) f. For GRR it is the true one; for unary encodings and local hashing it treats the support counts as the papers
do, as if each were a report of its own.
"""

import numpy as np

from estimators.estimate import Estimate, Group, check_groups, likelihood_errors
from mechanisms import CountTable, Mechanism
from mechanisms.arguments import FloatArray, IntArray, integer, real


def ibu(m: Mechanism, table: CountTable, max_iter: int = 10_000, tol: float = 1e-12, steps: int = 1) -> Estimate:
    """Iterative Bayesian update from the uniform distribution.

        r = c / (q + (p-q) f),   f ← f (q Σr + (p-q) r), normalised

    Each iteration raises the likelihood and costs O(k). Stopped before it converges it regularises: the estimate stays nearer
    to uniform than the maximum likelihood (`mle`), which for many values and few reports is often the better one.

    Args:
        m: the mechanism.
        table: its count table; with no reports the estimate is uniform, with NaN standard errors.
        max_iter: iterations at the most, at least 1.
        tol: stop when no frequency changes by more, at least 0.
        steps: as in `matrix_inversion`.

    Source: Agrawal and Aggarwal 2001; defaults of Arcolezi, Cerna and Palamidessi 2023.
    """
    return gibu([(m, table)], max_iter, tol, steps)


def gibu(groups: list[Group], max_iter: int = 10_000, tol: float = 1e-12, steps: int = 1) -> Estimate:
    """IBU over several mechanisms at once: one EM for the sum of the groups' log-likelihoods, each with its own channel.

    This is how people who chose different mechanisms or privacy levels are estimated together. Groups without reports add
    nothing. Arguments as for `ibu`.

    Source: free-will privacy (GIBU), Algorithm 1.
    """
    k, supports = check_groups(groups, steps)
    integer("max_iter", max_iter, 1, 10**9)
    real("tol", tol, 0.0, 1.0)
    n = sum(table.n for _, table in groups)
    f = np.full(k, 1 / k)
    iteration, converged = 0, not any(support.any() for support in supports)
    while not converged and iteration < max_iter:
        after = _step(groups, supports, f)
        converged = bool(np.abs(after - f).max() <= tol)
        f, iteration = after, iteration + 1
    errors = likelihood_errors(groups, f, steps)
    return Estimate(f, errors, n, iteration, converged, log_likelihood(groups, supports, f))


def _step(groups: list[Group], supports: list[IntArray], f: FloatArray) -> FloatArray:
    update = np.zeros(f.size)
    for (m, _), support in zip(groups, supports, strict=True):
        r = support / (m.q + (m.p - m.q) * f)
        update += m.q * r.sum() + (m.p - m.q) * r
    update *= f
    return np.asarray(update / update.sum())


def mle(m: Mechanism, table: CountTable, steps: int = 1) -> Estimate:
    """The maximum of IBU's likelihood, in closed form: where the iteration would end.

        f = max(0, c/λ - q/(p-q)),  λ such that Σ f = 1

    One sort, O(k log k). Without reports it is uniform. Arguments as for `ibu`.
    """
    k, (support,) = check_groups([(m, table)], steps)
    if not support.any():
        return Estimate(np.full(k, 1 / k), likelihood_errors([(m, table)], np.full(k, 1 / k), steps), table.n)
    floor = m.q / (m.p - m.q)
    descending = np.sort(support)[::-1]
    kept = np.arange(1, k + 1)
    scale = np.cumsum(descending) / (1 + kept * floor)  # λ if the first so many bins are positive
    last = np.flatnonzero(descending > scale * floor)[-1]
    f = np.maximum(support / scale[last] - floor, 0)
    f /= f.sum()
    errors = likelihood_errors([(m, table)], f, steps)
    return Estimate(f, errors, table.n, log_likelihood=log_likelihood([(m, table)], [support], f))


def log_likelihood(groups: list[Group], supports: list[IntArray], f: FloatArray) -> float:
    """Σ over groups and values of c ln(q + (p-q) f), in nats; 0 for no reports."""
    return float(sum((support * np.log(m.q + (m.p - m.q) * f)).sum() for (m, _), support in zip(groups, supports, strict=True)))
