"""The histograms of cohorts, each from the reports of one cohort alone.

A cohort's histograms come from the default estimator and from the raw matrix inversion, which differences need. There are none
if the reports may come from fewer people than the survey's `least`. A report counts for the cohort that it carries, also after
its sender has changed to another cohort.
"""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from ldpstream.estimators.levels import levels_difference
from ldpstream.mechanisms import CountTable
from ldpstream.publishing.estimates.catalogue import INVERSION, AttributeCounts, estimators
from ldpstream.publishing.estimates.conclusions import estimated, least_people, pooled
from ldpstream.publishing.estimates.finite import Attempts, finite
from ldpstream.publishing.estimates.frequencies import Frequencies, NumberEstimate, Withheld
from ldpstream.publishing.estimates.publication import Crowd, Diagnostics, Publication
from ldpstream.publishing.estimates.thresholds import ALARM_CHANCE
from ldpstream.surveys import Survey


def conclude_cohort(survey: Survey, cohort: int, everybody: Publication, panes: list[list[CountTable]]) -> Publication:
    """Estimates one attribute of one cohort over the panes of a span.

    Args:
        panes: for each step of the span, the cohort's count table of every level.
    """
    assert survey.cohort is not None
    attribute = survey.index(everybody.attribute)
    asked, mechanisms = survey.attributes[attribute], survey.mechanisms[attribute]
    groups, most_reports = pooled(mechanisms, panes)
    reports = sum(table.n for _, table in groups)
    found: dict[str, Frequencies] = {}
    numbers: dict[str, NumberEstimate] = {}
    attempts = Attempts()
    if least_people(panes, most_reports) >= survey.cohort.least:
        differ = attempts.of("levels", lambda: levels_difference(groups, most_reports), None)
        chances = (everybody.diagnostics.levels_p, differ.p if differ else None)
        withheld: Withheld | None = "levels" if any(p is not None and p < ALARM_CHANCE for p in chances) else None
        counts = AttributeCounts(groups, most_reports, asked.in_order, asked.edges)
        rows = [row for i, row in enumerate(estimators(mechanisms)) if i == 0 or row.name == INVERSION]
        found, numbers = estimated(asked, mechanisms, counts, rows, everybody.span, withheld, attempts)
    alone = [panes[-1]] if everybody.span == "step" else []
    made = msgspec.structs.replace(
        everybody,
        cohort=survey.cohort.values[cohort],
        below_least=not found,
        panes=sum(any(table.n for table in pane) for pane in panes),
        reports=reports,
        estimators=found,
        numbers=numbers,
        diagnostics=Diagnostics(mass_below_zero=None, fit_z={}),
        levels={},
        table=UNSET,
        crowd=crowd_of(survey, attribute, alone),
    )
    return finite(made, attempts.failed)


def crowd_of(survey: Survey, attribute: int, cohorts: Sequence[Sequence[CountTable]]) -> Crowd | UnsetType:
    """Returns the crowd of one attribute and step; unset for a survey without `crowd`, or if `cohorts` is empty."""
    if survey.crowd is None or not cohorts:
        return UNSET
    levels = survey.attributes[attribute].levels
    counted = zip(levels, zip(*cohorts, strict=True), strict=True)
    least = {level.name: min((table.n for table in tables if table.n), default=0) for level, tables in counted}
    return Crowd(
        assumed=survey.crowd, reports=least, reached=all(n == 0 or n >= survey.crowd for n in least.values()),
        memoized=[level.name for level, m in zip(levels, survey.mechanisms[attribute], strict=True) if m.memoized],
    )  # fmt: skip
