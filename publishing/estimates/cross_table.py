"""The cross table of a pair of attributes, as it is published: `estimators.pairs` in numbers for JSON.

Lists of cells go row by row: the cell (i, j) has the index i k₂ + j.

The published shares of the cells are the unbiased ones, projected onto the simplex (norm-sub). All other shares follow from
them. An interval is that of the unbiased share, extended to the published share.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from ldpstream.estimators.levels import levels_difference
from ldpstream.estimators.pairs import Counted, Independence, PairEstimate, Shares, independence, pair_estimate
from ldpstream.estimators.post_processing import post_process
from ldpstream.publishing.estimates.frequencies import Frequencies, Withheld, plain
from ldpstream.publishing.estimates.thresholds import ALARM_CHANCE


class TableShares(msgspec.Struct, frozen=True, kw_only=True):
    """Shares, and the ends of their 95 % intervals. None: unknown; `low` and `high` are all None if intervals are withheld."""

    shares: list[float | None]
    low: list[float | None]
    high: list[float | None]

    @classmethod
    def of(cls, found: Shares, withheld: bool) -> "TableShares":
        ends = np.fmin(found.low, found.shares), np.fmax(found.high, found.shares)
        shares, low, high = (plain(numbers.ravel()) for numbers in (found.shares, *ends))
        nothing: list[float | None] = [None] * len(shares)
        return cls(shares=shares, low=nothing if withheld else low, high=nothing if withheld else high)


class CrossTable(msgspec.Struct, frozen=True, kw_only=True):
    """The joint shares of two attributes; see `estimators.pairs`.

    If a row or column may have no people, the shares within it are None, and their intervals reach from 0 to 1.

    Attributes:
        first_reports, second_reports: number of the first and of the second attribute's own reports that the table uses in
            addition to the pair's reports. It never uses those of levels with Square Wave. Both numbers are 0 if these reports
            clearly disagree with the pair's: the table then uses the pair's reports alone.
        cells: of all people, the shares with both values.
        cell_errors: standard errors of the unbiased shares of the cells; empty in tables of earlier versions.
        rows, columns: the shares of the values of each attribute: the sums of the cells.
        within_rows: of the people with the row's value, the shares with the column's value.
        within_columns: of the people with the column's value, the shares with the row's value.
        independence: None if the reports are too few for the test, or if the intervals are withheld.
        interval_withheld: "levels" if the histograms of the levels differ clearly, for the pair or one of its attributes;
            otherwise None.
    """

    first: str
    second: str
    first_reports: int
    second_reports: int
    cells: TableShares
    rows: TableShares
    columns: TableShares
    within_rows: TableShares
    within_columns: TableShares
    independence: Independence | None
    interval_withheld: Withheld | None
    cell_errors: list[float | None] = []


def joint_shares(table: CrossTable | None, k: int) -> Frequencies:
    """Returns the shares of a pair's cells as an estimate of the pair's values."""
    if table is None:
        return Frequencies.nothing(k)
    withheld = table.interval_withheld
    low, high = (None, None) if withheld else (table.cells.low, table.cells.high)
    return Frequencies(
        frequencies=table.cells.shares, standard_errors=table.cell_errors or [None] * k, iterations=0, converged=True,
        low=low, high=high, interval_withheld=withheld,
    )  # fmt: skip


def cross_table(
    names: tuple[str, str], counts: Sequence[Counted], shape: tuple[int, int], same_people: bool
) -> CrossTable | None:
    """Estimates the cross table of a pair.

    Args:
        shape: (k₁, k₂).
        same_people: true if the same people answer all three questions.

    Returns:
        None if the pair's counts carry no information.
    """
    found = pair_estimate(counts, shape, same_people)
    if found is None:
        return None
    differences = [levels_difference(list(of.groups), of.steps) for of in counts]
    withheld = any(one is not None and one.p < ALARM_CHANCE for one in differences)
    if found.agreement is not None and found.agreement < ALARM_CHANCE:  # people who miss one value differ from the others
        counts = [counts[0], Counted([]), Counted([])]
        found = pair_estimate(counts, shape, same_people)
        assert found is not None
    tested = None if withheld else independence(counts, shape, same_people)
    return _published(names, found, tested, withheld, (_reports(counts[1]), _reports(counts[2])))


def _published(
    names: tuple[str, str], found: PairEstimate, tested: Independence | None, withheld: bool, reports: tuple[int, int]
) -> CrossTable:
    projected = post_process(found.shares.ravel(), "norm-sub").reshape(found.shares.shape)
    sums = [projected.sum(axis=1 - axis, keepdims=True) for axis in (0, 1)]
    within = [np.divide(projected, whole, out=np.full(projected.shape, np.nan), where=whole > 0) for whole in sums]
    ends = [found.cells(), *(of(axis) for of in (found.margin, found.within) for axis in (0, 1))]
    unknown = np.zeros((1, 1), bool)
    parts = [(projected, unknown), *((whole.ravel(), unknown[0]) for whole in sums)]
    parts += [(share, np.isnan(of.shares)) for share, of in zip(within, ends[3:], strict=True)]
    cells, rows, columns, within_rows, within_columns = (
        TableShares.of(Shares(np.where(hidden, np.nan, share), of.low, of.high), withheld)
        for (share, hidden), of in zip(parts, ends, strict=True)
    )
    errors = plain(found.cell_errors())
    return CrossTable(
        first=names[0], second=names[1], first_reports=reports[0], second_reports=reports[1],
        cells=cells, rows=rows, columns=columns, within_rows=within_rows, within_columns=within_columns,
        independence=tested, interval_withheld="levels" if withheld else None,
        cell_errors=[None] * len(errors) if withheld else errors,
    )  # fmt: skip


def _reports(counted: Counted) -> int:
    return sum(table.n for (_, table), _ in counted.informative())
