"""The differences of two estimates of an attribute, with their intervals, and the growth of texts that are not listed."""

from dataclasses import replace
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from scipy.special import ndtri

from ldpstream.estimators.differences import chances, difference_errors, evidence, separate_errors, unchanged_errors
from ldpstream.estimators.estimate import PUBLISHED_LEVEL
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.publishing.answers.shares import JOINT, people_of, result_of
from ldpstream.publishing.estimates.catalogue import FILTER, INVERSION
from ldpstream.publishing.estimates.frequencies import Frequencies, NumberEstimate
from ldpstream.publishing.estimates.publication import Publication, publication_key
from ldpstream.publishing.estimates.thresholds import ALARM_CHANCE, GROWTH_PEOPLE
from ldpstream.publishing.results import KeptResults
from ldpstream.surveys import Survey

Numbers = dict[str, NumberEstimate]
Basis = Literal["inversion", "separate", "any"]


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


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """Growth of the share of the value that devices report for texts that are not listed, such as "other".

    `difference` is the growth from the first kept whole window, which ends with `before_step`, to the latest window. `low` and
    `high` are the ends of its 95 % interval.
    """

    label: str
    before_step: int
    difference: float
    low: float
    high: float


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
    basis: Basis = "any"
    if apart and sides[0].span == "step":  # a device reports in one cohort
        basis, errors = "separate", separate_errors(first, second)
    elif not unbiased and len(mechanisms) == 1 and mechanisms[0].reading.unbiased and max(people):
        m, most = mechanisms[0], mechanisms[0].choices or 1  # one of `most` members is drawn: times this, people
        drawn = [replace(e, frequencies=e.frequencies / most, standard_errors=e.standard_errors / most) for e in raw]
        basis, errors = "inversion", most * difference_errors(drawn[0], drawn[1], m, max(people))
    else:
        errors = difference_errors(first, second)
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


def growth_of(survey: Survey, source: KeptResults, name: str, step: int) -> Growth | None:
    """Compares the window that ends with a step with the first kept whole window, if both have no step in common.

    Returns:
        None unless the share of the value for texts that are not listed has clearly grown.
    """
    attribute, width, progress = survey.attributes[survey.index(name)], survey.window_steps, source.progress()
    if attribute.catch_all is None or progress is None:
        return None
    before = max(progress.first_step, step - survey.retention_steps + 1) + width - 1
    if before > step - width:
        return None
    first, second = source.get([publication_key(name, "window", at) for at in (before, step)])
    if first is None or second is None or min(people_of(survey, first), people_of(survey, second)) < GROWTH_PEOPLE:
        return None
    results = result_of(first, INVERSION, attribute.k), result_of(second, INVERSION, attribute.k)
    of = differences_of(survey, (first, second), results, INVERSION, PUBLISHED_LEVEL, apart=False)
    v = attribute.labels.index(attribute.catch_all)
    difference, low, high = (float(numbers[v]) for numbers in (of.differences, of.low, of.high))
    if not (difference > 0 and of.p[v] <= ALARM_CHANCE):  # NaN without intervals
        return None
    return Growth(label=attribute.catch_all, before_step=before, difference=difference, low=low, high=high)
