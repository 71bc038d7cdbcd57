"""Matrix inversion (MI): the unbiased estimate from support counts, or by least squares from a location mechanism's counts."""

import numpy as np

from ldpstream.estimators.estimate import Estimate, Group, Steps, check_groups, of_each_group
from ldpstream.estimators.post_processing import check_method, post_process
from ldpstream.mechanisms import CountTable, Mechanism
from ldpstream.mechanisms.arguments import FloatArray


def matrix_inversion(m: Mechanism, table: CountTable, post: str = "none", steps: int = 1) -> Estimate:
    """Unbiased frequencies from one mechanism's counts.

        f̂_v = (C_v/n - q) / (p - q)                        pure mechanisms
        f̂ = c/n B, B the channel's pseudo-inverse          location mechanisms (`ChannelMechanism.inverse`)

    Args:
        m: the mechanism.
        table: the mechanism's count table.
        post: a method of `estimators.post_processing`; ``"none"`` keeps the estimate unbiased.
        steps: largest number of reports of one person in the table: the number of time steps that the table sums, or
            `Mechanism.reports_in` of these steps. The standard errors assume that every person made this number of reports,
            with an unchanged value. This assumption is conservative (`Mechanism.variance`). The people are a random sample of
            the population: the standard errors include the sampling.

    Returns:
        Frequencies, which may be negative. Their sum is 1 only by chance; for GRR the sum is exactly 1. All frequencies are NaN
        if the counts carry no information (`Estimate.of_nothing`). The standard errors are those of the unprocessed inversion.

    Raises:
        ValueError: if the table belongs to another mechanism, or post or steps is not allowed.

    Source: Wang, Blocki, Li and Jha 2017, §4 (pure protocols); variance as in `Mechanism.variance` and
    `ChannelMechanism.inversion_variances`.
    """
    return combined_inversion([(m, table)], post, steps)


def combined_inversion(groups: list[Group], post: str = "none", steps: Steps = 1) -> Estimate:
    """Unbiased frequencies from several mechanisms' counts: for each bin, a weighted mean of the mechanisms' inversions.

    The weights are 1 / variance under uniform frequencies. The weights do not depend on the counts, so the mean stays unbiased.
    With one group the result is `matrix_inversion`. If a group's channel is not invertible (often for Shokri's mechanism), the
    least-squares inversion adds a bias that the standard errors do not include. The function ignores a group without
    information (no reports, or p = q). If no group remains, the result is `Estimate.of_nothing`.
    """
    check_method(post)
    k = check_groups(groups, steps)
    frequencies, variance, weights = np.zeros(k), np.zeros(k), np.zeros(k)
    for (m, table), each in zip(groups, of_each_group(groups, steps), strict=True):
        if not table.n or m.p == m.q:
            continue
        people = table.n / each
        inverted = m.inversion(table)
        bins = m.inversion_variances(m.possible(inverted), 1, each)
        weight = inversion_weight(m, people, each)
        frequencies += weight * inverted
        variance += weight**2 * bins / people
        weights += weight
    n = sum(table.n for _, table in groups)
    if not weights.all():
        return Estimate.of_nothing(k, n)
    errors = np.sqrt(variance) / weights
    return Estimate(post_process(frequencies / weights, post, variance=errors**2), errors, n)


def inversion_weight(m: Mechanism, people: float, each: int = 1) -> FloatArray:
    """Returns a group's weight for each value, (k,): 1 / variance at uniform frequencies, if everyone makes `each` reports."""
    return people / m.inversion_variances(np.full(m.k, 1 / m.k), 1, each)
