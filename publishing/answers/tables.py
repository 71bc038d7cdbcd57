"""The numbers of the cross tables of the API."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ldpstream.estimators.estimate import PUBLISHED_LEVEL
from ldpstream.estimators.pairs import Independence, Shares
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.publishing.answers.schema import TableSide
from ldpstream.publishing.answers.shares import JOINT
from ldpstream.publishing.estimates.cross_table import CrossTable, TableShares
from ldpstream.publishing.estimates.frequencies import Frequencies, Withheld, plain
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.surveys import Attribute, Cohort


class Parts(NamedTuple):
    """The fields of `schema.Table` that differ between the two kinds of tables."""

    estimator: str
    rows: TableSide
    columns: TableSide
    cells: TableShares
    within_rows: TableShares
    within_columns: TableShares
    independence: Independence | None
    interval_withheld: Withheld | None


def of_pair(first: Attribute, second: Attribute, table: CrossTable | None) -> Parts:
    if table is None:
        rows, columns, cells = (_nothing(n) for n in (first.k, second.k, first.k * second.k))
        return Parts(JOINT, _side(first, rows, 0), _side(second, columns, 0), cells, cells, cells, None, None)
    return Parts(
        JOINT, _side(first, table.rows, table.first_reports), _side(second, table.columns, table.second_reports), table.cells,
        table.within_rows, table.within_columns, table.independence, table.interval_withheld,
    )  # fmt: skip


def by_cohort(cohort: Cohort, attribute: Attribute, everybody: Publication, found: Sequence[Publication | None]) -> Parts:
    """The table of cohorts and values.

    Of the people with a value, the share w_c f_c / Σ w f is in cohort c. w_c is the cohort's share of the reports. f_c is the
    value's share in the cohort.
    """
    shown = [p if p is not None and not p.below_least else None for p in found]
    of_each = [Frequencies.nothing(attribute.k) if p is None else p.estimators[p.main] for p in shown]
    reports = np.array([0 if p is None else p.reports for p in found])
    weights = reports / max(1, reports.sum())
    f, low, high = _numbers(of_each)
    known = np.array([p is not None for p in shown])
    # people of cohorts below the least size are missing from the cells, so shares within a column are of the other cohorts
    one, at_least, at_most = (np.where(known[:, None], weights[:, None] * x, 0) for x in (f, low, high))
    with np.errstate(invalid="ignore", divide="ignore"):
        within = one / one.sum(axis=0)
        lowest = at_least / (at_least + at_most.sum(axis=0) - at_most)
        highest = at_most / (at_most + at_least.sum(axis=0) - at_least)
    within, lowest, highest = (np.where(known[:, None], x, np.nan) for x in (within, lowest, highest))
    total = everybody.estimators[everybody.main]
    ends = _numbers([total])
    shares = TableShares(shares=plain(weights), low=[None] * len(weights), high=[None] * len(weights))
    withheld = next((of.interval_withheld for of in of_each if of.interval_withheld is not None), None)
    return Parts(
        everybody.main, TableSide(name=cohort.name, kind="cohort", labels=list(cohort.values), reports=0, shares=shares),
        _side(attribute, _shares(*(x[0] for x in ends)), 0), _shares(*(weights[:, None] * x for x in (f, low, high))),
        _shares(f, low, high), _shares(within, lowest, highest), None, withheld,
    )  # fmt: skip


def _numbers(found: Sequence[Frequencies]) -> tuple[FloatArray, FloatArray, FloatArray]:
    estimates = [of.estimate() for of in found]
    ends = [estimate.interval(PUBLISHED_LEVEL) for estimate in estimates]
    low, high = (np.clip([end[i] for end in ends], 0, 1) for i in (0, 1))
    return np.array([estimate.frequencies for estimate in estimates]), low, high


def _shares(shares: FloatArray, low: FloatArray, high: FloatArray) -> TableShares:
    return TableShares.of(Shares(shares, low, high), withheld=False)


def _nothing(n: int) -> TableShares:
    return TableShares(shares=[None] * n, low=[None] * n, high=[None] * n)


def _side(attribute: Attribute, shares: TableShares, reports: int) -> TableSide:
    return TableSide(name=attribute.name, kind="attribute", labels=list(attribute.labels), reports=reports, shares=shares)
