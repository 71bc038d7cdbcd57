"""Matrix inversion (MI) of support counts, or by least squares of the counts of a channel."""

from collections.abc import Iterable

import numpy as np

from ldpstream.estimators.estimate import Estimate, Group, Steps, groups_of, of_each_group
from ldpstream.estimators.post_processing import check_method, post_process
from ldpstream.mechanisms import CountTable, Mechanism
from ldpstream.mechanisms.arguments import FloatArray


def matrix_inversion(
    m: Mechanism | Iterable[Group], table: CountTable | None = None, *, post: str = "none", steps: Steps = 1
) -> Estimate:
    """Frequencies by inversion of the counts of one mechanism, or of several levels.

        f̂_v = (C_v/n - q) / (p - q)                        pure mechanisms
        f̂ = c/n B                                          SW and location mechanisms; B: `ChannelReading.inverse`

    For several levels, each bin gets a weighted mean of the levels' inversions. The weights are 1 / variance under uniform
    frequencies. If a level's channel is not invertible, the least-squares inversion adds a bias that the standard errors do not
    include. The function ignores a level without information (no reports, or p = q).

    Args:
        m: the mechanism; or a list of pairs (mechanism, table), one for each level, without `table`.
        table: the mechanism's count table.
        post: a method of `estimators.post_processing`.
        steps: largest number of reports of one person in the table, with an unchanged value; one number, or one for each level.
            The standard errors assume that every person made this number of reports. The standard errors include the random
            choice of the people.

    Returns:
        Frequencies; with post="none" they may be negative, and need not sum to 1.
        The standard errors are those of the unprocessed inversion. `Estimate.of_nothing` if the counts carry no
        information.

    Raises:
        ValueError: if a table belongs to another mechanism or has invalid counts, the levels have different domains, or an
            argument is outside its range.
        TypeError: if m and table are neither a mechanism with its table nor a list of such pairs alone.

    Source: Wang, Blocki, Li and Jha 2017, §4 (pure protocols); variance as in `Mechanism.variance` and
    `Reading.inversion_variances`.
    """
    check_method(post)
    groups = groups_of(m, table, steps)
    k = groups[0][0].k
    frequencies, variance, weights = np.zeros(k), np.zeros(k), np.zeros(k)
    for (own, counts), each in zip(groups, of_each_group(groups, steps), strict=True):
        if not counts.n or own.p == own.q:
            continue
        people = counts.n / each
        inverted = own.reading.inversion(counts)
        bins = own.reading.inversion_variances(own.reading.possible(inverted), 1, each)
        weight = inversion_weight(own, people, each)
        frequencies += weight * inverted
        variance += weight**2 * bins / people
        weights += weight
    n = sum(counts.n for _, counts in groups)
    if not weights.all():
        return Estimate.of_nothing(k, n)
    errors = np.sqrt(variance) / weights
    return Estimate(post_process(frequencies / weights, post, variance=errors**2), errors, n)


def inversion_weight(m: Mechanism, people: float, each: int = 1) -> FloatArray:
    """Returns a group's weight for each value, (k,): 1 / variance at uniform frequencies, if everyone makes `each` reports."""
    return people / m.reading.inversion_variances(np.full(m.k, 1 / m.k), 1, each)
