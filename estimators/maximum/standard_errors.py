"""Standard errors of maximum-likelihood estimates."""

from functools import lru_cache

import numpy as np

from ldpstream.estimators.estimate import Group, Steps, of_each_group
from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import FloatArray

RESOLVED = 1e-12  # smallest ratio of two eigenvalues of a Hessian that is not a rounding error


def standard_errors(groups: list[Group], frequencies: FloatArray, steps: Steps, exact: bool = False) -> FloatArray:
    """Returns the standard errors, (k,), of the groups' maximum-likelihood estimate on the simplex, at the maximum.

    The errors come from the sandwich covariance P J P of an M-estimator. H is minus the expected Hessian. J is the true
    covariance of the score, summed over the steps for people who report repeatedly. P = H⁻¹ - H⁻¹ 1 1ᵀ H⁻¹ / (1ᵀ H⁻¹ 1) keeps
    the sum of the frequencies at 1. The formula ignores that frequencies cannot be negative.

    For support counts H = diag(h), h_v = Σ_A n_A (p_A-q_A)² / γ_Av. Local hashing on more than 128 values or with fake data
    uses the formula for support counts.

    The errors are NaN without reports, if p = q, or if the reports do not distinguish all values. They are also NaN for Square
    Wave and location mechanisms on more than 128 values.

    Args:
        frequencies: (k,) the maximiser.
        steps: as in `matrix_inversion`.
        exact: true if `frequencies` maximises the true likelihood, false for the likelihood of the support counts.

    Source: Huber 1967 (the sandwich); Aitchison and Silvey 1958 (the constraint).
    """
    reports = of_each_group(groups, steps)
    telling = [(m, table.n, each) for (m, table), each in zip(groups, reports, strict=True) if table.n and m.p != m.q]
    if not telling or any(np.isnan(m.p) and not m.reading.has_score_moments for m, _, _ in telling):
        return np.full(frequencies.size, np.nan)
    if any(m.reading.has_score_moments and (exact or not m.pure) for m, _, _ in telling):
        return _by_matrices(telling, frequencies, exact)
    hessian = sum(n * (m.p - m.q) * _slope(m, frequencies) for m, n, _ in telling)
    inverse = 1 / np.asarray(hessian)
    part = inverse / inverse.sum()
    result = np.zeros(frequencies.size)
    for m, n, each in telling:
        if m.reading.has_score_moments:
            score = m.reading.score_moments(frequencies, each, exact)[1]
            along = score @ inverse
            of_person = inverse**2 * np.diagonal(score) - 2 * inverse * part * along + part**2 * (inverse @ along)
        else:
            noise = m.reading.support_covariance(frequencies, each).scaled(inverse * _slope(m, frequencies))
            of_person = noise.own * (1 - 2 * part) + part**2 * noise.own.sum()
            of_person += noise.signs @ (noise.rows - part * noise.rows.sum(axis=1, keepdims=True)) ** 2
        result += n / each * of_person
    return np.asarray(np.sqrt(np.maximum(result, 0)))


def _slope(m: Mechanism, f: FloatArray) -> FloatArray:
    return np.asarray((m.p - m.q) / np.maximum(m.q + (m.p - m.q) * f, 1e-100))  # q may be as small as e^-700


def _by_matrices(telling: list[tuple[Mechanism, int, int]], f: FloatArray, exact: bool) -> FloatArray:
    hessian, score = np.zeros((f.size, f.size)), np.zeros((f.size, f.size))
    for m, n, each in telling:
        if m.reading.has_score_moments:
            of_report, of_person = m.reading.score_moments(f, each, exact)
        else:
            slope = _slope(m, f)
            of_report = np.diag((m.p - m.q) * slope)
            of_person = m.reading.support_covariance(f, each).scaled(slope).matrix()
        hessian += n * of_report
        score += n / each * of_person
    along = _along(f.size)
    inner = along @ hessian @ along.T
    scale = np.linalg.eigvalsh(inner)
    if not scale[0] > RESOLVED * scale[-1]:  # the reports do not distinguish all values, at least in double precision
        return np.full(f.size, np.nan)
    projected = along.T @ np.linalg.solve(inner, along)
    return np.asarray(np.sqrt(np.maximum((projected @ score * projected).sum(axis=1), 0)))


@lru_cache(maxsize=128)
def _along(k: int) -> FloatArray:
    """Returns an orthonormal basis of the changes that keep the sum, (k-1, k)."""
    from scipy.linalg import helmert  # slow to load

    return np.asarray(helmert(k))
