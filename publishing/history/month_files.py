"""Files of estimates for data tools, one per attribute and month: a row per survey, step, span, cohort, estimator and value.

The cross table of a pair adds rows with the names of `TABLE` as estimators.

    FOLDER/attribute=mode/month=2026-03/estimates.parquet

The names of the folders are Hive partitions: DuckDB and Spark read the whole folder as one table with the additional columns
`attribute` and `month`. A month is that of the step's start, in UTC.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl

from ldpstream.engines.folder.data_folder import sync
from ldpstream.publishing.estimates.cross_table import CrossTable, TableShares
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.runtime.files import write_file
from ldpstream.surveys import Survey
from ldpstream.surveys.errors import UserError

MonthOf = tuple[str, str]  # attribute and month, such as 2026-03

SCHEMA = pl.Schema({
    "survey": pl.String(),  # the survey's name
    "fingerprint": pl.String(),
    "step": pl.Int64(),
    "start": pl.Datetime("ms", "UTC"),  # start of the step
    "end": pl.Datetime("ms", "UTC"),
    "span": pl.String(),  # step, window or filtered
    "cohort": pl.String(),  # null for all people
    "reports": pl.Int64(),
    "complete": pl.Boolean(),
    "estimator": pl.String(),
    "value": pl.Int32(),  # index of the value in the survey
    "label": pl.String(),
    "frequency": pl.Float64(),
    "standard_error": pl.Float64(),
    "low": pl.Float64(),  # 95 % interval
    "high": pl.Float64(),
})  # fmt: skip
KEY = ["fingerprint", "step", "span", "cohort"]  # columns that identify a publication within a file
TABLE = {  # estimator of the rows -> part of the cross table
    "joint": "cells",
    "joint_rows": "rows",
    "joint_columns": "columns",
    "joint_within_rows": "within_rows",
    "joint_within_columns": "within_columns",
}


class MonthFileError(UserError):
    """A file of an earlier run cannot be read."""


def month_of(survey: Survey, publication: Publication) -> MonthOf:
    return publication.attribute, f"{_time(survey.opens_ms(publication.step)):%Y-%m}"


def rows_of(survey: Survey, publications: Iterable[Publication]) -> pl.DataFrame:
    """Returns the rows of some publications of one attribute. A number that an estimate lacks is null. A cohort below its least
    size has no rows."""
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA}
    for p in publications:
        index = survey.index(p.attribute)
        attribute = survey.attributes[index]
        opens = _time(survey.opens_ms(p.step))
        same: dict[str, Any] = {"survey": survey.name, "fingerprint": p.fingerprint, "step": p.step, "start": opens}
        same |= {"end": opens + timedelta(seconds=survey.step_seconds)}
        same |= {"span": p.span, "cohort": p.cohort, "reports": p.reports, "complete": p.complete}

        def add(name: str, labels: Sequence[str], numbers: Sequence[list[float | None]], same: dict[str, Any] = same) -> None:
            for column, constant in (same | {"estimator": name}).items():
                columns[column] += [constant] * len(labels)
            columns["value"] += range(len(labels))
            columns["label"] += labels
            for column, of in zip(("frequency", "standard_error", "low", "high"), numbers, strict=True):
                columns[column] += of

        for name, frequencies in p.estimators.items():
            estimate = frequencies.estimate()
            numbers = (estimate.frequencies, estimate.standard_errors, *estimate.interval())
            add(name, attribute.labels, [array.tolist() for array in numbers])
        if isinstance(p.table, CrossTable):
            first, second = (survey.attributes[member].labels for member in survey.members(index) or ())
            of_margins = {"rows": first, "columns": second}
            for name, part in TABLE.items():
                shares: TableShares = getattr(p.table, part)
                labels = of_margins.get(part, attribute.labels)
                add(name, labels, [shares.shares, [None] * len(labels), shares.low, shares.high])
    return pl.DataFrame(columns, schema=SCHEMA).fill_nan(None)


def merged(kept: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Joins two tables. Of two publications with one key, the better one stays (`schedule.quality`)."""
    both, order = pl.concat([kept.with_columns(newer=False), new.with_columns(newer=True)]), ["complete", "reports", "newer"]
    best = both.select(*KEY, *order).unique().sort(order).unique(KEY, keep="last", maintain_order=True)
    rows = both.join(best, on=[*KEY, *order], how="semi", nulls_equal=True)
    return rows.drop("newer").sort(*KEY, "estimator", "value")


class MonthFiles:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, month: MonthOf) -> Path:
        attribute, name = month
        return self._folder / f"attribute={attribute}" / f"month={name}" / "estimates.parquet"

    def read(self, month: MonthOf) -> pl.DataFrame:
        """Returns the rows of a month's file, none if there is no file.

        Raises:
            MonthFileError: if the file is damaged or has other columns.
        """
        path = self.path(month)
        if not path.exists():
            return pl.DataFrame(schema=SCHEMA)
        try:
            return pl.read_parquet(path, schema=SCHEMA, hive_partitioning=False)
        except pl.exceptions.PolarsError:
            raise MonthFileError(f"{path}: is damaged or not written by an export; export into a new folder") from None

    def add(self, month: MonthOf, rows: pl.DataFrame) -> None:
        """Adds rows to a month's file; a crash leaves the old file or the new file."""
        path = self.path(month)
        path.parent.mkdir(parents=True, exist_ok=True)
        file = BytesIO()
        merged(self.read(month), rows).write_parquet(file, compression="zstd")
        write_file(path, file.getvalue())
        sync(path.parent)


def _time(unix_ms: int) -> datetime:
    return datetime.fromtimestamp(unix_ms / 1000, UTC)
