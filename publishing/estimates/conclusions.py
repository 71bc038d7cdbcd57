"""Computes the publication of an attribute over a span from its count tables."""

import math
from collections.abc import Sequence
from functools import partial

from msgspec import UNSET, UnsetType

from ldpstream.estimators.diagnostics import Fit, drift, fit, mass_below_zero
from ldpstream.estimators.estimate import Estimate, Group
from ldpstream.estimators.levels import levels_difference
from ldpstream.estimators.matrix_inversion import matrix_inversion
from ldpstream.estimators.pairs import Counted
from ldpstream.estimators.sets import mean_choices
from ldpstream.mechanisms import CountTable, Mechanism
from ldpstream.promises.outlook import spent
from ldpstream.publishing.estimates.catalogue import AttributeCounts, PublishedEstimator, estimators
from ldpstream.publishing.estimates.cross_table import CrossTable, cross_table
from ldpstream.publishing.estimates.finite import Attempts, finite
from ldpstream.publishing.estimates.frequencies import (
    Frequencies,
    NumberEstimate,
    Withheld,
    numbers_of,
    of_sets,
    plain,
    plain_number,
)
from ldpstream.publishing.estimates.publication import Crowd, Diagnostics, LevelEstimate, Publication, Span, edges_of
from ldpstream.publishing.estimates.thresholds import ALARM_CHANCE
from ldpstream.surveys import Attribute, Survey

MAX_LEVEL_NUMBERS = 10_000  # values times levels; if there are more, the levels' own estimates are not published


def conclude(
    survey: Survey,
    attribute: int,
    step: int,
    span: Span,
    panes: list[list[CountTable]],
    complete: bool,
    before: list[CountTable] | None = None,
    crowd: Crowd | UnsetType = UNSET,
    of_members: Sequence[list[list[CountTable]]] = (),
) -> Publication:
    """Estimates one attribute over the panes of a span.

    Args:
        span: ``"step"`` (one pane) or ``"window"``.
        panes: for each step of the span, the count table of every level.
        before: the count tables of the previous step, to compute the drift; None to skip the drift.
        crowd: the crowd at the step (`cohorts.crowd_of`), for the span ``"step"``.
        of_members: for a pair, the panes of its two attributes, for the cross table; none to leave it out.
    """
    asked = survey.attributes[attribute]
    mechanisms = survey.mechanisms[attribute]
    groups, reports = pooled(mechanisms, panes)
    counts, attempts = AttributeCounts(groups, reports, asked.in_order, asked.edges), Attempts()
    raw, most = counts.inversion, asked.most  # the shares of drawn members times `most` are shares of people
    moved = None
    if before is not None:
        moved = attempts.of("drift", lambda: drift(matrix_inversion(zip(mechanisms, before, strict=True)), raw), None)
    differ = attempts.of("levels", lambda: levels_difference(groups, reports), None)
    withheld: Withheld | None = "levels" if differ and differ.p < ALARM_CHANCE else None
    unknown = Fit(math.nan, math.nan, None, {})
    fits = {
        level.name: attempts.of(f"fit of {level.name}", partial(fit, *group, n), unknown)
        for level, group, n in zip(asked.levels, groups, reports, strict=True)
    }
    found, numbers = estimated(asked, mechanisms, counts, estimators(mechanisms), span, withheld, attempts)
    table: CrossTable | UnsetType | None = UNSET
    if of_members:
        table = attempts.of("table", partial(_table, survey, attribute, Counted(groups, reports), of_members), None)
    made = Publication(
        survey=survey.name,
        fingerprint=survey.fingerprint.hex(),
        attribute=asked.name,
        step=step,
        span=span,
        panes=sum(any(table.n for table in pane) for pane in panes),
        reports=counts.n,
        complete=complete,
        estimators=found,
        numbers=numbers,
        privacy={level.name: spent(m, step + 1) for level, m in zip(asked.levels, mechanisms, strict=True)},
        diagnostics=Diagnostics(
            mass_below_zero=plain_number(mass_below_zero(raw.times(most))),
            fit_z={level: plain_number(one.z) for level, one in fits.items()},
            fit_p={level: plain_number(one.p) for level, one in fits.items()},
            fit_sign={level: one.sign for level, one in fits.items()},
            drift_sigma=moved.sigma if moved else None,
            drift_value=moved.value if moved else None,
            drift_p=moved.p if moved else None,
            levels_sigma=differ.sigma if differ else None,
            levels_value=differ.value if differ else None,
            levels_pair=[asked.levels[i].name for i in differ.pair] if differ else None,
            levels_p=differ.p if differ else None,
        ),
        levels=_levels([level.name for level in asked.levels], groups, reports, most),
        crowd=crowd,
        table=table,
    )
    return finite(made, attempts.failed)


def estimated(
    asked: Attribute,
    mechanisms: Sequence[Mechanism],
    counts: AttributeCounts,
    rows: Sequence[PublishedEstimator],
    span: Span,
    withheld: Withheld | None,
    attempts: Attempts,
) -> tuple[dict[str, Frequencies], dict[str, NumberEstimate]]:
    """Returns the result of each estimator in `rows`, and the attribute's numbers, which come from the first one."""
    nothing, numbers = Estimate.of_nothing(asked.k, counts.n), dict[str, NumberEstimate]()
    estimates = [attempts.of(row.name, partial(row.estimate, counts), nothing) for row in rows]
    edges = edges_of(asked, mechanisms, span)
    if asked.most is not None:
        numbers = attempts.of("numbers", lambda: of_sets(mean_choices(counts.groups, counts.reports), withheld), numbers)
    else:
        numbers = attempts.of("numbers", lambda: numbers_of(estimates[0], edges, asked.bins is not None, withheld), numbers)
    found = {
        row.name: Frequencies.of(row.of_people(estimate, asked.most), withheld or row.withheld(estimate, counts))
        for row, estimate in zip(rows, estimates, strict=True)
    }
    return found, numbers


def _table(survey: Survey, pair: int, counted: Counted, of_members: Sequence[list[list[CountTable]]]) -> CrossTable | None:
    members = survey.members(pair)
    assert members is not None
    first, second = (survey.attributes[member] for member in members)
    of_each = [Counted(*pooled(survey.mechanisms[m], panes)) for m, panes in zip(members, of_members, strict=True)]
    same_people = survey.collection == "spl"
    return cross_table((first.name, second.name), [counted, *of_each], (first.k, second.k), same_people)


def pooled(mechanisms: Sequence[Mechanism], panes: list[list[CountTable]]) -> tuple[list[Group], list[int]]:
    groups: list[Group] = [(m, sum((pane[i] for pane in panes), m.empty_table())) for i, m in enumerate(mechanisms)]
    return groups, [_most_reports(m, panes) for m in mechanisms]


def least_people(panes: list[list[CountTable]], most_reports: Sequence[int]) -> int:
    """Lower bound of the number of people who made the reports of a span, if all devices keep to the protocol.

    A device has one level. It makes at most one report at a step, and at most `most_reports` of its level in the span.
    """
    of_levels = zip(zip(*([table.n for table in pane] for pane in panes), strict=True), most_reports, strict=True)
    return sum(max(*reports, -(-sum(reports) // most)) for reports, most in of_levels)


def _most_reports(m: Mechanism, panes: list[list[CountTable]]) -> int:
    w = m.every_steps
    most = max(sum(any(table.n for table in pane) for pane in panes[phase::w]) for phase in range(min(w, len(panes))))
    return max(1, most if m.lifetime_reports is None else min(most, m.lifetime_reports))


def _levels(names: list[str], groups: list[Group], reports: list[int], most: int | None) -> dict[str, LevelEstimate]:
    if len(groups) < 2 or len(groups) * groups[0][0].k > MAX_LEVEL_NUMBERS:
        return {}
    estimates = [matrix_inversion(m, table, steps=n).times(most) for (m, table), n in zip(groups, reports, strict=True)]
    return {
        name: LevelEstimate(reports=e.n, frequencies=plain(e.frequencies), standard_errors=plain(e.standard_errors))
        for name, e in zip(names, estimates, strict=True)
    }
