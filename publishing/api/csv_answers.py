"""CSV tables of the HTTP API. Times are in UTC. With a time zone, two more columns have the local times.

Labels and names are those of the survey, unchanged, as in the files of an export.
"""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from fastapi.responses import Response

from ldpstream.publishing.answers.responses import NotAllowed
from ldpstream.publishing.answers.schema import Comparison, Histogram, NumberSeries, Series, Table

HISTOGRAM_COLUMNS = (
    "value", "label", "frequency", "standard_error", "low", "high", "truth",
    "step", "start", "end", "reports", "complete", "interval_withheld", "cohort",
)  # fmt: skip
SERIES_COLUMNS = (
    "step", "reports", "complete", "value", "label", "frequency", "low", "high", "start", "end", "interval_withheld",
    "cohort",
)  # fmt: skip
COMPARISON_COLUMNS = (
    "value", "label", "before", "after", "difference", "standard_error", "low", "high", "clear", "truth",
    "before_step", "after_step", "before_end", "after_end", "basis", "interval_withheld", "before_cohort", "cohort",
)  # fmt: skip
TABLE_COLUMNS = (
    "row", "column", "row_label", "column_label", "share", "low", "high", "within_row", "within_row_low", "within_row_high",
    "within_column", "within_column_low", "within_column_high", "truth", "step", "start", "end", "reports", "complete",
    "interval_withheld", "independence_p",
)  # fmt: skip
NUMBER_COLUMNS = ("step", "reports", "complete", "number", "value", "low", "high", "truth", "start", "end", "cohort")


SOURCE_COLUMNS = ("survey", "attribute", "span", "estimator")  # the last columns of every table

Estimates = Histogram | Series | NumberSeries | Comparison | Table


class Csv(Response):
    media_type = "text/csv"


def file_name(of: Estimates, kind: str) -> str:
    steps = [of.before.step, of.after.step] if isinstance(of, Comparison) else _steps(of)
    subtracted = of.before.cohort if isinstance(of, Comparison) and of.before.cohort != of.cohort else None
    own = None if isinstance(of, Table) else of.cohort
    cohort = own if subtracted is None else f"{own} minus {subtracted}"
    what = {Histogram: "", Series: "series", NumberSeries: "numbers", Comparison: "comparison", Table: "table"}[type(of)]
    post = of.post if isinstance(of, Histogram) and of.post != "none" else ""
    parts = (of.survey, of.attribute, cohort, what, of.span, of.estimator, post, "step", *steps)
    return "-".join(re.sub(r"[^A-Za-z0-9._]+", "_", str(part)) for part in parts if part not in (None, "")) + f".{kind}"


def _steps(of: Histogram | Series | NumberSeries | Table) -> list[int]:
    return [of.step] if isinstance(of, Histogram | Table) else [of.steps[0], of.steps[-1]]


def time_zone(name: str | None) -> ZoneInfo | None:
    """Returns the time zone with this IANA name; None for None.

    Raises:
        NotAllowed: if this computer has no such time zone.
    """
    try:
        return None if name is None else ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise NotAllowed(f"zone must be the IANA name of a time zone, such as Europe/Berlin, got {name!r}") from None


def histogram_csv(h: Histogram, zone: ZoneInfo | None) -> Response:
    columns: list[Sequence[Any]] = [
        h.values, h.labels, h.frequencies, h.standard_errors, h.low, h.high, h.truth or [None] * len(h.values),
    ]  # fmt: skip
    same = (h.step, utc(h.start_ms), utc(h.end_ms), h.reports, h.complete, h.interval_withheld, h.cohort)
    times = _local(zone, h.start_ms, h.end_ms)
    return _csv(h, HISTOGRAM_COLUMNS, zone, ("start", "end"), ((*row, *same, *times) for row in zip(*columns, strict=True)))


def series_csv(s: Series, zone: ZoneInfo | None) -> Response:
    rows = (
        (step, s.reports[i], s.complete[i], line.value, line.label, line.frequencies[i], line.low[i], line.high[i],
         utc(s.start_ms[i]), utc(s.end_ms[i]), s.interval_withheld[i], s.cohort, *_local(zone, s.start_ms[i], s.end_ms[i]))
        for i, step in enumerate(s.steps)
        for line in s.lines
    )  # fmt: skip
    return _csv(s, SERIES_COLUMNS, zone, ("start", "end"), rows)


def comparison_csv(c: Comparison, zone: ZoneInfo | None) -> Response:
    columns: list[Sequence[Any]] = [
        c.values, c.labels, c.before.frequencies, c.after.frequencies, c.differences, c.standard_errors, c.low, c.high, c.clear,
        c.truth or [None] * len(c.values),
    ]  # fmt: skip
    ends = (utc(c.before.end_ms), utc(c.after.end_ms))
    same = (c.before.step, c.after.step, *ends, c.basis, c.interval_withheld, c.before.cohort, c.cohort)
    times = _local(zone, c.before.end_ms, c.after.end_ms)
    rows = ((*row, *same, *times) for row in zip(*columns, strict=True))
    return _csv(c, COMPARISON_COLUMNS, zone, ("before_end", "after_end"), rows)


def table_csv(t: Table, zone: ZoneInfo | None) -> Response:
    places = [(i, j, one, other) for i, one in enumerate(t.rows.labels) for j, other in enumerate(t.columns.labels)]
    truth: Sequence[float | None] = t.truth or [None] * len(places)
    parts = (part for of in (t.cells, t.within_rows, t.within_columns) for part in (of.shares, of.low, of.high))
    numbers = zip(*parts, truth, strict=True)
    tested = None if t.independence is None else t.independence.p
    same = (t.step, utc(t.start_ms), utc(t.end_ms), t.reports, t.complete, t.interval_withheld, tested)
    times = _local(zone, t.start_ms, t.end_ms)
    rows = ((*place, *of, *same, *times) for place, of in zip(places, numbers, strict=True))
    return _csv(t, TABLE_COLUMNS, zone, ("start", "end"), rows)


def numbers_csv(s: NumberSeries, zone: ZoneInfo | None) -> Response:
    rows = (
        (step, s.reports[i], s.complete[i], line.name, line.values[i], line.low[i], line.high[i],
         line.truth[i] if line.truth else None, utc(s.start_ms[i]), utc(s.end_ms[i]), s.cohort,
         *_local(zone, s.start_ms[i], s.end_ms[i]))
        for i, step in enumerate(s.steps)
        for line in s.lines
    )  # fmt: skip
    return _csv(s, NUMBER_COLUMNS, zone, ("start", "end"), rows)


def utc(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _local(zone: ZoneInfo | None, *times_ms: int) -> list[str]:
    if zone is None:
        return []
    return [datetime.fromtimestamp(time_ms / 1000, zone).isoformat(timespec="milliseconds") for time_ms in times_ms]


def _csv(
    of: Estimates, columns: tuple[str, ...], zone: ZoneInfo | None, times: tuple[str, ...], rows: Iterable[Iterable[Any]]
) -> Response:
    text = io.StringIO()
    writer = csv.writer(text)
    source = (of.survey, of.attribute, of.span, of.estimator)
    writer.writerow((*columns, *(() if zone is None else (f"{name}_local" for name in times)), *SOURCE_COLUMNS))
    writer.writerows(("" if cell is None else cell for cell in (*row, *source)) for row in rows)
    return Csv(text.getvalue(), headers={"Content-Disposition": f'attachment; filename="{file_name(of, "csv")}"'})
