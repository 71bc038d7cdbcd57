"""Matrix inversion (MI): the unbiased estimate from support counts."""

import numpy as np

from estimators.estimate import Estimate, Group, check_groups
from estimators.post_processing import check_method, post_process
from mechanisms import CountTable, Mechanism


def matrix_inversion(m: Mechanism, table: CountTable, post: str = "none", steps: int = 1) -> Estimate:
    """Unbiased frequencies from one mechanism's counts.

        f̂_v = (C_v/n - q) / (p - q)

    Args:
        m: the mechanism.
        table: its count table.
        post: a method of `estimators.post_processing`, ``"none"`` to keep the estimate unbiased.
        steps: over how many time steps the table was summed; the standard errors then suppose that the same n/steps people
            reported at every step with unchanged values, which is the conservative side (`Mechanism.variance`).

    Returns:
        Frequencies that sum to 1 only by chance (GRR: exactly), negative ones included. Without reports they are NaN. The
        standard errors are those of the unprocessed inversion.

    Raises:
        ValueError: if the table is not the mechanism's, or post or steps is not allowed.

    Source: Wang, Blocki, Li and Jha 2017, §4 (pure protocols); variance as in `Mechanism.variance`.
    """
    return combined_inversion([(m, table)], post, steps)


def combined_inversion(groups: list[Group], post: str = "none", steps: int = 1) -> Estimate:
    """Unbiased frequencies from several mechanisms' counts: the mean of their inversions, weighted by 1 / variance at f = 1/k.

    The weights do not depend on the counts' values, so the mean stays unbiased. With one group it is `matrix_inversion`.
    """
    check_method(post)
    k = check_groups(groups, steps)
    frequencies, variance, weights = np.zeros(k), np.zeros(k), 0.0
    for m, table in groups:
        if not table.n:
            continue
        people, scale = table.n / steps, m.p - m.q
        inverted = (m.support(table) / table.n - m.q) / scale
        bins = m.support_covariance(np.clip(inverted, 0, 1), steps)[0] / (people * (steps * scale) ** 2)
        weight = people / m.variance(1 / k, 1, steps)
        frequencies += weight * inverted
        variance += weight**2 * bins
        weights += weight
    n = sum(table.n for _, table in groups)
    if not n:
        return Estimate(np.full(k, np.nan), np.full(k, np.nan), 0)
    errors = np.sqrt(variance) / weights
    return Estimate(post_process(frequencies / weights, post, variance=errors**2), errors, n)
