"""The mean number of values that people choose, for mechanisms of sets (`mechanisms.families.padded_sampling`).

A mechanism of sets of at most m of n values estimates the shares of n + m symbols among drawn members of padded sets: the n
values and m dummies. So the mean number of values is m times the sum of the values' shares.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ldpstream.estimators.estimate import NORMAL, Estimate, Group
from ldpstream.estimators.filter.local_level import Filtered
from ldpstream.estimators.filter.step_noise import LONG
from ldpstream.estimators.quantiles import Number
from ldpstream.mechanisms import Mechanism


def shares_of_people(estimate: Estimate, most: int) -> Estimate:
    """Returns shares of people, from 0 to 1, for the shares of drawn members of padded sets of `most` members.

    The last shares, of people with at most m - 1, …, at most 1 and no value, do not increase: least squares (pool adjacent
    violators; Ayer et al. 1955) makes them so. An interval is extended to the share.
    """
    from scipy.optimize import isotonic_regression  # slow to load; only surveys with choices need it

    found = estimate.times(most, 1.0)
    shares = found.frequencies.copy()
    if not np.isnan(shares).any():
        shares[-most:] = isotonic_regression(shares[-most:], increasing=False).x
    return replace(found, frequencies=shares)


def mean_choices(groups: Sequence[Group], steps: Sequence[int]) -> Number | None:
    """The mean number of values that a person chooses, with its 95 % interval, within [0, m].

    Args:
        groups: the levels' mechanisms of the same sets, with their count tables.
        steps: for each level, the largest number of reports of one person in its table, with an unchanged set.

    Returns:
        None if the counts carry no information.
    """
    known = [(m, table, t) for (m, table), t in zip(groups, steps, strict=True) if table.n and m.p != m.q]
    if not known:
        return None
    most = known[0][0].choices
    assert most is not None
    n, parts = known[0][0].k - most, []
    for m, table, t in known:
        shares = m.reading.inversion(table)
        of_sum = max(m.reading.values_variance(shares, t), 0.0)
        parts.append((float(shares[:n].sum()), of_sum / (table.n / t * (t * (m.p - m.q)) ** 2)))
    weights = [1 / max(variance, 1e-300) for _, variance in parts]
    total = sum(weight * share for weight, (share, _) in zip(weights, parts, strict=True)) / sum(weights)
    return _number(most * total, most / math.sqrt(sum(weights)), most)


def mean_of_filtered(found: Filtered, mechanisms: Sequence[Mechanism]) -> Number | None:
    """The mean number from a filter's shares of drawn members; None if they are unknown.

    The number is m minus m times the dummies' shares. The interval corrects for correlated lasting noise of the dummies, and
    treats other errors as independent.

    Args:
        found: the filter's estimate of the shares.
        mechanisms: the levels' mechanisms of the same sets.
    """
    shares, errors, most = found.frequencies, found.standard_errors, mechanisms[0].choices
    if np.isnan(shares).any() or np.isnan(errors).any():
        return None
    assert most is not None
    dummies, together = slice(len(shares) - most, None), 1.0
    for m in (m for m in mechanisms if m.p != m.q):
        possible = m.reading.possible(shares)
        apart = float(m.reading.inversion_variances(possible, 1, LONG)[dummies].sum()) * (LONG * (m.p - m.q)) ** 2
        if apart:
            together = max(together, m.reading.values_variance(possible, LONG) / apart)
    variance = float((errors[dummies] ** 2).sum()) + (together - 1) * float(found.lasting[dummies].sum())
    return _number(most * (1 - float(shares[dummies].sum())), most * math.sqrt(variance), most)


def _number(value: float, error: float, most: int) -> Number:
    low, high = (min(max(value + side * NORMAL * error, 0.0), float(most)) for side in (-1, 1))
    return Number(min(max(value, 0.0), float(most)), low, high)
