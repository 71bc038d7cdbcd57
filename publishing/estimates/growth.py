"""Differences of two publications, and the growth of the value that devices report for texts that are not listed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import msgspec
import numpy as np

from ldpstream.estimators.differences import chances, difference_errors, separate_errors, unchanged_errors
from ldpstream.estimators.estimate import NORMAL, Estimate
from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.publishing.estimates.catalogue import INVERSION
from ldpstream.publishing.estimates.publication import Publication, Span, publication_key
from ldpstream.publishing.estimates.thresholds import ALARM_CHANCE, GROWTH_PEOPLE
from ldpstream.publishing.progress import Source
from ldpstream.surveys import Survey

Basis = Literal["inversion", "separate", "any"]


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


def errors_of(
    mechanisms: Sequence[Mechanism], span: Span, estimates: tuple[Estimate, Estimate], people: float, *, raw: bool, apart: bool
) -> tuple[Basis, FloatArray]:
    """Returns the basis of the standard errors of the second estimate minus the first, and the standard errors, (k,).

    Args:
        people: the larger number of people of the two estimates.
        raw: true if both estimates are raw inversions.
        apart: true if the estimates are of two cohorts.
    """
    one, other = estimates
    if apart and span == "step":  # a device reports in one cohort
        return "separate", separate_errors(one, other)
    if raw and len(mechanisms) == 1 and mechanisms[0].reading.unbiased and people:
        m, most = mechanisms[0], mechanisms[0].choices or 1  # one of `most` members is drawn: times this, people
        drawn = [replace(e, frequencies=e.frequencies / most, standard_errors=e.standard_errors / most) for e in estimates]
        return "inversion", most * difference_errors(drawn[0], drawn[1], m, people)
    return "any", difference_errors(one, other)


def people_of(survey: Survey, p: Publication) -> float:
    """Returns reports divided by the most reports of one person: a lower bound of the number of people who reported."""
    width = survey.window_steps if p.span == "window" else 1
    most = max(m.reports_in(width) for m in survey.mechanisms[survey.index(p.attribute)])
    return p.reports / max(1, min(most, p.panes))


def growth_of(survey: Survey, source: Source, name: str, step: int) -> Growth | None:
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
    if first is None or second is None:
        return None
    each = people_of(survey, first), people_of(survey, second)
    if min(each) < GROWTH_PEOPLE:
        return None
    found = [p.estimators[INVERSION] for p in (first, second) if INVERSION in p.estimators]
    if len(found) < 2 or any(one.interval_withheld for one in found):
        return None
    estimates, v = (found[0].estimate(), found[1].estimate()), attribute.labels.index(attribute.catch_all)
    mechanisms = survey.mechanisms[survey.index(name)]
    errors = errors_of(mechanisms, "window", estimates, max(each), raw=True, apart=False)[1][v : v + 1]
    tested = np.maximum(errors, unchanged_errors(*estimates, each)[v : v + 1])
    differences = (estimates[1].frequencies - estimates[0].frequencies)[v : v + 1]
    if not (differences[0] > 0 and chances(differences, tested)[0] <= ALARM_CHANCE):
        return None
    size, half = float(differences[0]), NORMAL * float(errors[0])
    return Growth(label=attribute.catch_all, before_step=before, difference=size, low=size - half, high=size + half)
