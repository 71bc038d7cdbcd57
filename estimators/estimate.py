"""What every estimator returns."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from mechanisms import Mechanism
from mechanisms.arguments import FloatArray, IntArray, integer, real
from mechanisms.table import CountTable

Group = tuple[Mechanism, CountTable]  # the reports of one level (GIBU's group A: a mechanism and its counts)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated frequencies with their uncertainty.

    Attributes:
        frequencies: (k,) estimated share of each value.
        standard_errors: (k,) standard error of each share, NaN where there were no reports; for a population of which the
            participants are a random sample.
        n: number of reports that the estimate rests on.
        iterations: iterations taken, 0 for a closed form.
        converged: whether the iteration met its tolerance; True for a closed form.
        log_likelihood: Σ c ln γ at the estimate (NaN for matrix inversion), in nats; comparable for the same counts only.
    """

    frequencies: FloatArray
    standard_errors: FloatArray
    n: int
    iterations: int = 0
    converged: bool = True
    log_likelihood: float = float("nan")

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends of the normal intervals, (k,) each, for a level in (0, 1); not clipped to [0, 1]."""
        half = norm.ppf(0.5 + real("level", level, 1e-9, 1 - 1e-9) / 2) * self.standard_errors
        return self.frequencies - half, self.frequencies + half


def check_groups(groups: list[Group], steps: int) -> tuple[int, list[IntArray]]:
    """The common domain size and every group's support counts.

    Raises:
        ValueError: if there is no group, the domains differ, a table is not its mechanism's, or steps < 1.
    """
    integer("steps", steps, 1, 2**31)
    if not groups:
        raise ValueError("groups must hold at least one mechanism with its table, got none")
    k = groups[0][0].k
    for m, _ in groups:
        if m.k != k:
            raise ValueError(f"groups must share one domain, got k = {k} and k = {m.k}")
    return k, [m.support(table) for m, table in groups]


def likelihood_errors(groups: list[Group], frequencies: FloatArray, steps: int) -> FloatArray:
    """(k,) standard errors of the maximiser of Σ_A Σ_v c_Av ln γ_Av on the simplex, γ_A = q_A + (p_A - q_A) f.

    The sandwich P J P of an M-estimator: H = diag(h), h_v = Σ_A n_A (p_A-q_A)² / γ_Av, is minus the expected Hessian, J the
    true covariance of the score (`Mechanism.support_covariance`), and P = H⁻¹ - H⁻¹ 1 1ᵀ H⁻¹ / (1ᵀ H⁻¹ 1) keeps the sum at 1.
    So it is right also where Σ c ln γ is no true likelihood (unary encodings, local hashing). All k bins count as free, which
    is the conservative side where the estimate is at zero. O(k) a group.

    For local hashing with g >= k, where any three values depend on each other, the result can be off by a fifth.

    Source: Huber 1967 (the sandwich); Aitchison and Silvey 1958 (the constraint).
    """
    if not any(table.n for _, table in groups):
        return np.full(frequencies.size, np.nan)
    hessian = np.zeros(frequencies.size)
    score_diagonal = np.zeros(frequencies.size)
    factors = []
    for m, table in groups:
        d, people = m.p - m.q, table.n / steps
        gamma = np.maximum(m.q + d * frequencies, 1e-100)  # q may be as small as e^-700
        hessian += table.n * d**2 / gamma
        variance, x = m.support_covariance(frequencies, steps)
        score_diagonal += people * (variance + (x**2).sum(axis=0)) * (d / gamma) ** 2
        factors.append(np.sqrt(people) * x * (d / gamma))
    inverse = 1 / hessian
    total = inverse.sum()
    own = inverse**2 * score_diagonal
    result = own * (1 - 2 * inverse / total) + (inverse / total) ** 2 * own.sum()
    for x in np.concatenate(factors):
        result -= (inverse * (x - (inverse * x).sum() / total)) ** 2
    return np.asarray(np.sqrt(np.maximum(result, 0)))
