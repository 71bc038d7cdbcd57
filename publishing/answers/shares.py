"""The shares of a publication as the answers show them."""

import math
from typing import Any

from msgspec import UNSET

from ldpstream.estimators.estimate import PUBLISHED_LEVEL
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.publishing.estimates.catalogue import estimators
from ldpstream.publishing.estimates.cross_table import joint_shares
from ldpstream.publishing.estimates.frequencies import Frequencies, plain, plain_number
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.surveys import Attribute, Survey

JOINT = "joint"  # the estimator of `estimators.pairs`, the default of a pair's steps and windows


def names_of(p: Publication) -> list[str]:
    """Returns the names of a publication's estimators, the default first."""
    return list(p.estimators) if p.table is UNSET else [JOINT, *p.estimators]


def default_estimator(survey: Survey, p: Publication) -> str:
    return estimators(survey.mechanisms[survey.index(p.attribute)])[0].name if p.below_least else names_of(p)[0]


def result_of(p: Publication, estimator: str, k: int) -> Frequencies:
    """Returns the result of an estimator, without numbers for a cohort below its least size and for an unknown estimator."""
    if estimator == JOINT and p.table is not UNSET and not p.below_least:
        return joint_shares(p.table, k)
    return p.estimators.get(estimator) or Frequencies.nothing(k)


def too_few(p: Publication, attribute: Attribute) -> bool:
    """True if the reports are too few to tell which values are more frequent: see `schema.Shares`."""
    if not p.reports or p.below_least:
        return False
    n = attribute.k - (attribute.most or 0)
    low, high = (end[:n] for end in result_of(p, names_of(p)[0], attribute.k).estimate().interval(PUBLISHED_LEVEL))
    # NaN, from shares or intervals that are missing, makes the comparisons false
    return bool(low.max() <= high.min() and (high - low).mean() / 2 >= 1 / n)


def ends_ms(survey: Survey, p: Publication) -> tuple[int, int]:
    """Returns the beginning and the end of a publication's span."""
    width = survey.window_steps if p.span == "window" else 1
    return survey.opens_ms(max(0, p.step - width + 1)), survey.opens_ms(p.step + 1)


def people_of(survey: Survey, p: Publication) -> float:
    """Returns reports divided by the most reports of one person: a lower bound of the number of people who reported."""
    width = survey.window_steps if p.span == "window" else 1
    most = max(m.reports_in(width) for m in survey.mechanisms[survey.index(p.attribute)])
    return p.reports / max(1, min(most, p.panes))


def of_span(survey: Survey, p: Publication) -> dict[str, Any]:
    """Returns the fields of `OfSpan`."""
    start_ms, end_ms = ends_ms(survey, p)
    least = 0 if survey.cohort is None or p.cohort is None or p.below_least else survey.cohort.least
    return {
        "step": p.step, "start_ms": start_ms, "end_ms": end_ms, "panes": p.panes, "reports": p.reports,
        "people_at_least": max(least, math.ceil(people_of(survey, p))), "complete": p.complete,
    }  # fmt: skip


def shares_of(
    survey: Survey, p: Publication, estimator: str, shares: FloatArray, ends: tuple[FloatArray, FloatArray], values: IntArray
) -> dict[str, Any]:
    """Returns the fields of `Shares` for some values of a publication, with these shares and intervals of all values."""
    attribute = survey.attributes[survey.index(p.attribute)]
    hidden = len(values) < attribute.k and attribute.most is None
    return of_span(survey, p) | {
        "attribute": p.attribute, "span": p.span, "estimator": estimator, "below_least": p.below_least,
        "too_few": too_few(p, attribute), "interval_withheld": result_of(p, estimator, attribute.k).interval_withheld,
        "values": values.tolist(), "labels": [attribute.label(v) for v in values], "frequencies": plain(shares[values]),
        "low": plain(ends[0][values]), "high": plain(ends[1][values]), "numbers": p.numbers,
        "others": plain_number(shares.sum() - shares[values].sum()) if hidden else None,
    }  # fmt: skip
