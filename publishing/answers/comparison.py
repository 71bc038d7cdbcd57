"""The differences of two estimates of an attribute, with their intervals."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from ldpstream.estimators.differences import clear_differences, evidence
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.publishing.estimates.catalogue import INVERSION
from ldpstream.publishing.estimates.frequencies import Frequencies, NumberEstimate
from ldpstream.publishing.estimates.growth import Basis, errors_of, inverts, people_of
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.surveys import Survey

Numbers = dict[str, NumberEstimate]


class Differences(NamedTuple):
    """The fields of `schema.Comparison`, one entry per value of the attribute; `clearest` sorts the values."""

    basis: Basis
    differences: FloatArray
    standard_errors: FloatArray
    low: FloatArray
    high: FloatArray
    clear: npt.NDArray[np.bool_]
    clearest: IntArray


def differences_of(
    survey: Survey,
    sides: tuple[Publication, Publication],
    results: tuple[Frequencies, Frequencies],
    estimator: str,
    confidence: float,
    *,
    default: bool,
    apart: bool,
) -> Differences:
    """Returns the second side minus the first one.

    Args:
        results: the estimates of both sides by `estimator`.
        default: true if `estimator` is the attribute's default.
        apart: true if the sides are two cohorts.
    """
    mechanisms = survey.mechanisms[survey.index(sides[0].attribute)]
    people = max(people_of(survey, p) for p in sides)
    one, other = results[0].estimate(), results[1].estimate()
    basis, errors = errors_of(mechanisms, sides, (one, other), estimator, people, apart=apart)
    differences = centres = other.frequencies - one.frequencies
    raw = [p.estimators.get(INVERSION) for p in sides]
    if default and not apart and inverts(mechanisms) and raw[0] and raw[1]:
        inverted = raw[0].estimate(), raw[1].estimate()
        sharper = errors_of(mechanisms, sides, inverted, INVERSION, people, apart=False)
        if sharper[1].sum() < errors.sum():  # the widths hardly depend on the shares, so this choice adds no bias
            (basis, errors), centres = sharper, inverted[1].frequencies - inverted[0].frequencies
    half = float(-ndtri((1 - confidence) / 2)) * errors
    low, high = np.fmin(centres - half, differences), np.fmax(centres + half, differences)
    if estimator != INVERSION:  # its shares can differ by more than 1
        low, high = np.maximum(low, -1), np.minimum(high, 1)
    low, high = (np.where(np.isnan(errors), np.nan, end) for end in (low, high))
    clear = clear_differences(centres, errors, 1 - confidence) & (centres * differences > 0)
    clearest = np.lexsort((-np.abs(differences), -evidence(centres, errors)))  # the last key counts first
    return Differences(basis, differences, errors, low, high, clear, clearest)


def number_differences(first: Numbers, second: Numbers) -> Numbers:
    found = {}
    for name, after in second.items():
        if (before := first.get(name)) is not None:
            ends = (after.low, before.high), (after.high, before.low)
            low, high = (None if one is None or other is None else one - other for one, other in ends)
            found[name] = NumberEstimate(value=after.value - before.value, low=low, high=high)
    return found
