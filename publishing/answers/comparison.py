"""The differences of two estimates of an attribute, with their intervals."""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from ldpstream.estimators.differences import chances, evidence, unchanged_errors
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.publishing.answers.shares import JOINT
from ldpstream.publishing.estimates.catalogue import FILTER, INVERSION
from ldpstream.publishing.estimates.frequencies import Frequencies, NumberEstimate
from ldpstream.publishing.estimates.growth import Basis, errors_of, people_of
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.surveys import Survey

Numbers = dict[str, NumberEstimate]


class Differences(NamedTuple):
    """The fields of `schema.Comparison`, one entry per value of the attribute.

    Attributes:
        p: the chance of so large a difference if the shares are equal; 1 if the shown difference has the opposite sign.
        clearest: sorts the values.
    """

    basis: Basis
    differences: FloatArray
    standard_errors: FloatArray
    low: FloatArray
    high: FloatArray
    p: FloatArray
    clearest: IntArray


def differences_of(
    survey: Survey, sides: tuple[Publication, Publication], results: tuple[Frequencies, Frequencies], estimator: str,
    confidence: float, *, apart: bool,
) -> Differences:  # fmt: skip
    """Returns the second side minus the first one.

    Two estimates with a prior or with limits can have a common bias, also if their shares are equal, and the smaller side has
    more of it. So the standard errors, the intervals and the test are those of the raw inversions. Only the filter and the
    joint shares of a pair, which have no such bias, have their own. Without raw inversions there are no intervals.

    Args:
        results: the estimates of both sides by `estimator`.
        apart: true if the sides are two cohorts.
    """
    one, other = (result.estimate() for result in results)
    raw = [p.estimators.get(INVERSION, Frequencies.nothing(one.frequencies.size)).estimate() for p in sides]
    unbiased = estimator in (FILTER, JOINT)
    first, second = (one, other) if unbiased else raw
    mechanisms = survey.mechanisms[survey.index(sides[0].attribute)]
    people = people_of(survey, sides[0]), people_of(survey, sides[1])
    basis, errors = errors_of(mechanisms, sides[0].span, (first, second), max(people), raw=not unbiased, apart=apart)
    errors = np.where(np.isnan(one.standard_errors + other.standard_errors), np.nan, errors)
    differences, centres = other.frequencies - one.frequencies, second.frequencies - first.frequencies
    half = float(-ndtri((1 - confidence) / 2)) * errors
    low, high = np.minimum(centres - half, differences), np.maximum(centres + half, differences)
    if estimator != INVERSION:  # its shares can differ by more than 1
        low, high = np.maximum(low, -1), np.minimum(high, 1)
    tested = errors if unbiased or not min(people) else np.maximum(errors, unchanged_errors(first, second, people))
    p = np.maximum(chances(centres, tested), centres * differences <= 0)
    clearest = np.lexsort((-np.abs(differences), -evidence(centres, errors)))  # the last key counts first
    return Differences(basis, differences, errors, low, high, p, clearest)


def number_differences(first: Numbers, second: Numbers) -> Numbers:
    found = {}
    for name, after in second.items():
        if (before := first.get(name)) is not None:
            ends = (after.low, before.high), (after.high, before.low)
            low, high = (None if one is None or other is None else one - other for one, other in ends)
            found[name] = NumberEstimate(value=after.value - before.value, low=low, high=high)
    return found
