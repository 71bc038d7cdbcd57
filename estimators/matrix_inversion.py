"""Matrix inversion (MI): the unbiased estimate from support counts, or from a location mechanism's counts by least squares."""

import numpy as np

from estimators.estimate import Estimate, Group, check_groups
from estimators.post_processing import check_method, norm_sub, post_process
from mechanisms import ChannelMechanism, CountTable, Mechanism
from mechanisms.arguments import FloatArray


def matrix_inversion(m: Mechanism, table: CountTable, post: str = "none", steps: int = 1) -> Estimate:
    """Unbiased frequencies from one mechanism's counts.

        f̂_v = (C_v/n - q) / (p - q)                        pure mechanisms
        f̂ = c/n B, B the channel's pseudo-inverse          location mechanisms (`ChannelMechanism.inverse`)

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

    Source: Wang, Blocki, Li and Jha 2017, §4 (pure protocols); variance as in `Mechanism.variance` and
    `ChannelMechanism.inversion_variances`.
    """
    return combined_inversion([(m, table)], post, steps)


def combined_inversion(groups: list[Group], post: str = "none", steps: int = 1) -> Estimate:
    """Unbiased frequencies from several mechanisms' counts: the mean of their inversions, weighted by 1 / variance at f = 1/k.

    Location mechanisms weigh by their mean variance over the bins. The weights do not depend on the counts' values, so the mean
    stays unbiased. With one group it is `matrix_inversion`.
    """
    check_method(post)
    k = check_groups(groups, steps)
    frequencies, variance, weights = np.zeros(k), np.zeros(k), 0.0
    for m, table in groups:
        if not table.n:
            continue
        people = table.n / steps
        inverted, bins, typical = (
            _invert_channel(m, table, steps) if isinstance(m, ChannelMechanism) else _invert(m, table, steps)
        )
        weight, bins = people / typical, bins / people
        frequencies += weight * inverted
        variance += weight**2 * bins
        weights += weight
    n = sum(table.n for _, table in groups)
    if not n:
        return Estimate(np.full(k, np.nan), np.full(k, np.nan), 0)
    errors = np.sqrt(variance) / weights
    return Estimate(post_process(frequencies / weights, post, variance=errors**2), errors, n)


def _invert(m: Mechanism, table: CountTable, steps: int) -> tuple[FloatArray, FloatArray, float]:
    """The inversion of a pure mechanism's counts, its variances for one person, and the variance at f = 1/k."""
    scale = m.p - m.q
    inverted = (m.support(table) / table.n - m.q) / scale
    variances = m.support_covariance(np.clip(inverted, 0, 1), steps)[0] / (steps * scale) ** 2
    return inverted, variances, m.variance(1 / m.k, 1, steps)


def _invert_channel(m: ChannelMechanism, table: CountTable, steps: int) -> tuple[FloatArray, FloatArray, float]:
    """The same for a location mechanism, by least squares; its variances are those at the nearest distribution."""
    inverted = table.counts / table.n @ m.inverse()
    uniform = np.full(m.k, 1 / m.k)
    typical = float(m.inversion_variances(uniform, 1, steps).mean())
    return inverted, m.inversion_variances(norm_sub(inverted, 1.0), 1, steps), typical
