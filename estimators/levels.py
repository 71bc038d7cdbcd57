"""Tests whether the levels of an attribute have the same histogram.

Estimates over all levels together assume that people choose a level independently of their value.
"""

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from ldpstream.estimators.estimate import Group, Steps, of_each_group
from ldpstream.estimators.matrix_inversion import matrix_inversion


@dataclass(frozen=True, slots=True)
class LevelsDifference:
    """The least probable difference between the frequencies of a value in two levels.

    Attributes:
        pair: indices of the two levels.
        value: index of the value.
        sigma: the difference in standard errors.
        p: p-value by Bernstein's inequality, with Bonferroni's correction; at most 1.
    """

    pair: tuple[int, int]
    value: int
    sigma: float
    p: float


def levels_difference(groups: list[Group], steps: Steps = 1) -> LevelsDifference | None:
    """Compares the matrix inversions of all pairs of levels with information and an `unbiased` mechanism, value by value.

    The difference D of a value is a sum of independent contributions, one per person, each within b of its mean. If both levels
    have the same histogram, Bernstein's inequality holds, with the variance V of D:

        Pr[|D| >= d] <= 2 exp(-d² / (2 (V + b d / 3)))

    `p` is this bound, with estimates of V, times the number of values and the number of pairs (Bonferroni).

    Args:
        steps: as in `matrix_inversion`.

    Returns:
        None if fewer than two levels carry information and have mechanisms that are `unbiased`.

    Source: Boucheron, Lugosi and Massart 2013, Theorem 2.10 (Bernstein).
    """
    telling = [i for i, (m, table) in enumerate(groups) if table.n and m.p != m.q and m.reading.unbiased]
    found: list[LevelsDifference] = []
    pairs = list(combinations(telling, 2))
    reports = of_each_group(groups, steps)
    for pair in pairs:
        two = [groups[i] for i in pair]
        of_pair = [reports[i] for i in pair]
        together = matrix_inversion(two, steps=of_pair).frequencies
        own = [matrix_inversion([group]).frequencies for group in two]
        difference = np.abs(own[0] - own[1])
        variance = np.zeros(difference.size)
        reach = 0.0
        for (m, table), frequencies, each in zip(two, own, of_pair, strict=True):
            people = table.n / each
            of_own, of_both = (m.reading.inversion_variances(m.reading.possible(f), 1, each) for f in (frequencies, together))
            variance += np.maximum(of_own, of_both) / people
            reach = max(reach, m.reading.largest_contribution / people)
        exponent = difference**2 / np.maximum(2 * (variance + reach * difference / 3), 1e-300)
        value = int(exponent.argmax())
        log_p = math.log(2 * len(pairs) * difference.size) - float(exponent[value])
        sigma = float(difference[value] / math.sqrt(max(variance[value], 1e-300)))
        found.append(LevelsDifference(pair, value, sigma, math.exp(min(0.0, log_p))))
    return min(found, key=lambda difference: difference.p, default=None)
