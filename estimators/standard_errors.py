"""Standard errors of the estimates by likelihood."""

import numpy as np
from scipy.linalg import helmert

from estimators.dense_errors import is_dense, score_moments
from estimators.estimate import Group
from mechanisms import Mechanism
from mechanisms.arguments import FloatArray

RESOLVED = 1e-12  # the least share of the largest eigenvalue of a Hessian that is more than rounding


def standard_errors(groups: list[Group], frequencies: FloatArray, steps: int, exact: bool = False) -> FloatArray:
    """(k,) standard errors of the maximiser on the simplex of the groups' log-likelihood, at the maximum.

    The sandwich P J P of an M-estimator: H is minus the expected Hessian, J the true covariance of the score over the steps
    of repeated reporters, and P = H⁻¹ - H⁻¹ 1 1ᵀ H⁻¹ / (1ᵀ H⁻¹ 1) keeps the sum at 1. So it is right also where Σ c ln γ is no
    true likelihood (unary encodings); for the true one of a single step P J P is the inverse of Fisher's information. All k
    bins count as free, which is the conservative side where the estimate is at zero.

    For support counts H = diag(h), h_v = Σ_A n_A (p_A-q_A)² / γ_Av, and J is that of `Mechanism.support_covariance`: O(k) a
    group. Local hashing and location mechanisms on at most 128 values have matrices (`estimators.dense_errors`). Hashing on
    more values is treated like other support counts, without what three dependent values have in common; for its true
    likelihood, which does better, these errors are on the wide side.

    NaN where the reports tell nothing (there are none, or p = q) or do not tell all values apart, and for location mechanisms
    on more than 128 values. As ε goes to 0 the errors grow like 1/ε, or like 1/ε^1.5 for the truncated geometric mechanism.

    Args:
        groups: mechanisms with their tables.
        frequencies: (k,) the maximiser.
        steps: as in `matrix_inversion`.
        exact: whether the true likelihood was maximised where `estimators.channel_terms` has one.

    Source: Huber 1967 (the sandwich); Aitchison and Silvey 1958 (the constraint).
    """
    telling = [(m, table.n) for m, table in groups if table.n and m.p != m.q]
    if not telling or any(np.isnan(m.p) and not is_dense(m) for m, _ in telling):
        return np.full(frequencies.size, np.nan)
    if any(is_dense(m) for m, _ in telling):
        return _by_matrices(telling, frequencies, steps, exact)
    hessian = np.zeros(frequencies.size)
    score_diagonal = np.zeros(frequencies.size)
    factors = []
    for m, n in telling:
        slope, variance, x = _support(m, frequencies, steps)
        people = n / steps
        hessian += n * (m.p - m.q) * slope
        score_diagonal += people * (variance + (x**2).sum(axis=0)) * slope**2
        factors.append(np.sqrt(people) * x * slope)
    inverse = 1 / hessian
    total = inverse.sum()
    own = inverse**2 * score_diagonal
    result = own * (1 - 2 * inverse / total) + (inverse / total) ** 2 * own.sum()
    for x in np.concatenate(factors):
        result -= (inverse * (x - (inverse * x).sum() / total)) ** 2
    return np.asarray(np.sqrt(np.maximum(result, 0)))


def _support(m: Mechanism, f: FloatArray, steps: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The score's slope (p-q)/γ, and the support counts' covariance as `Mechanism.support_covariance` gives it."""
    slope = (m.p - m.q) / np.maximum(m.q + (m.p - m.q) * f, 1e-100)  # q may be as small as e^-700
    return slope, *m.support_covariance(f, steps)


def _by_matrices(telling: list[tuple[Mechanism, int]], f: FloatArray, steps: int, exact: bool) -> FloatArray:
    hessian, score = np.zeros((f.size, f.size)), np.zeros((f.size, f.size))
    for m, n in telling:
        if is_dense(m):
            of_report, of_person = score_moments(m, f, steps, exact)
        else:
            slope, variance, x = _support(m, f, steps)
            of_report = np.diag((m.p - m.q) * slope)
            of_person = (np.diag(variance + (x**2).sum(axis=0)) - x.T @ x) * np.outer(slope, slope)
        hessian += n * of_report
        score += n / steps * of_person
    along = helmert(f.size)  # (k-1, k), an orthonormal basis of the changes that keep the sum
    inner = along @ hessian @ along.T
    scale = np.linalg.eigvalsh(inner)
    if not scale[0] > RESOLVED * scale[-1]:  # the reports do not tell all values apart, or not in double precision
        return np.full(f.size, np.nan)
    projected = along.T @ np.linalg.solve(inner, along)
    return np.asarray(np.sqrt(np.maximum(np.einsum("uv,vw,uw->u", projected, score, projected, optimize=True), 0)))
