"""CSV tables of the HTTP API. Times are in UTC.

Labels and names are those of the survey, unchanged, as in the files of an export.
"""

import csv
import io
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import product, repeat
from typing import Any

from fastapi.responses import Response

from ldpstream.publishing.answers.schema import Change, Comparison, Histogram, NumberSeries, Overview, Series, Table
from ldpstream.publishing.answers.usage import Usage
from ldpstream.publishing.estimates.cross_table import TableShares

Estimates = Histogram | Series | NumberSeries | Comparison | Table | Overview | Usage
Columns = dict[str, Any]  # by name: a list with the cell of every row, or one cell for all rows

OF_VALUE = {
    "value": "values", "label": "labels", "frequency": "frequencies", "low": "low", "high": "high",
    "difference": "differences", "difference_low": "difference_low", "difference_high": "difference_high", "clear": "clear",
}  # fmt: skip
OF_LINE = {
    Series: {"value": "value", "label": "label", "frequency": "frequencies", "low": "low", "high": "high"},
    NumberSeries: {"number": "name", "value": "values", "low": "low", "high": "high", "truth": "truth"},
}
OF_ATTRIBUTE = ("reports", "complete", "interval_withheld", "attribute", "span", "estimator")


class Csv(Response):
    media_type = "text/csv"


def file_name(of: Estimates, kind: str, what: str = "overview") -> str:
    if isinstance(of, Overview):
        return _named((of.survey, of.cohort, what, of.span, "step", of.step), kind)
    if isinstance(of, Usage):
        return _named((of.survey, "usage", "step", of.steps[0], of.steps[-1]), kind)
    steps = [of.before.step, of.after.step] if isinstance(of, Comparison) else _steps(of)
    subtracted = of.before.cohort if isinstance(of, Comparison) and of.before.cohort != of.cohort else None
    own = None if isinstance(of, Table) else of.cohort
    cohort = own if subtracted is None else f"{own} minus {subtracted}"
    what = {Histogram: "", Series: "series", NumberSeries: "numbers", Comparison: "comparison", Table: "table"}[type(of)]
    post = of.post if isinstance(of, Histogram) and of.post != "none" else ""
    parts = (of.survey, of.attribute, cohort, what, of.span, of.estimator, post, "step", *steps)
    return _named(parts, kind)


def _named(parts: Iterable[str | int | None], kind: str) -> str:
    return "-".join(re.sub(r"[^A-Za-z0-9._]+", "_", str(part)) for part in parts if part not in (None, "")) + f".{kind}"


def _steps(of: Histogram | Series | NumberSeries | Table) -> list[int]:
    return [of.step] if isinstance(of, Histogram | Table) else [of.steps[0], of.steps[-1]]


def csv_of(of: Estimates) -> Response:
    """Returns the table of an answer. The last columns of every table name its source."""
    columns = _columns(of) | {"survey": of.survey}
    if not isinstance(of, Overview | Usage):
        columns |= {"attribute": of.attribute, "span": of.span, "estimator": of.estimator}
    return _csv(columns, file_name(of, "csv"))


def _csv(columns: Columns, name: str) -> Response:
    n_rows = next(len(column) for column in columns.values() if isinstance(column, list))
    cells = (column if isinstance(column, list) else repeat(column, n_rows) for column in columns.values())
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(["" if cell is None else cell for cell in row] for row in zip(*cells, strict=True))
    return Csv(text.getvalue(), headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _columns(of: Estimates) -> Columns:
    match of:
        case Histogram():
            return {
                "value": of.values, "label": of.labels, "frequency": of.frequencies, "standard_error": of.standard_errors,
                "low": of.low, "high": of.high, "named": of.named, "truth": of.truth, **_span(of),
                "interval_withheld": of.interval_withheld, "cohort": of.cohort,
            }  # fmt: skip
        case Overview(attributes=attributes):
            places = [(one, i) for one in attributes for i in range(len(one.values))]
            cells = {name: [getattr(one, field)[i] for one, i in places] for name, field in OF_VALUE.items()}
            return cells | _period(of) | {name: [getattr(one, name) for one, _ in places] for name in OF_ATTRIBUTE}
        case Usage():
            return _columns_of_usage(of)
        case Series() | NumberSeries():
            rows = [(i, line) for i in range(len(of.steps)) for line in of.lines]
            cells = {name: [_at(getattr(line, field), i) for i, line in rows] for name, field in OF_LINE[type(of)].items()}
            why = {"interval_withheld": [of.interval_withheld[i] for i, _ in rows]} if isinstance(of, Series) else {}
            return _steps_of(of) | cells | why | {"cohort": of.cohort}
        case Comparison(before=before, after=after):
            return {
                "value": of.values, "label": of.labels, "before": before.frequencies, "after": after.frequencies,
                "difference": of.differences, "standard_error": of.standard_errors, "low": of.low, "high": of.high,
                "clear": of.clear, "truth": of.truth, "before_step": before.step, "after_step": after.step,
                "before_end": utc(before.end_ms), "after_end": utc(after.end_ms), "basis": of.basis,
                "interval_withheld": of.interval_withheld, "before_cohort": before.cohort, "cohort": of.cohort,
            }  # fmt: skip
        case Table():
            crossed = list(product(enumerate(of.rows.labels), enumerate(of.columns.labels)))
            return {
                "row": [i for (i, _), _ in crossed], "column": [j for _, (j, _) in crossed],
                "row_label": [label for (_, label), _ in crossed], "column_label": [label for _, (_, label) in crossed],
                "share": of.cells.shares, "low": of.cells.low, "high": of.cells.high,
                **_within("row", of.within_rows), **_within("column", of.within_columns), "truth": of.truth,
                **_span(of), "interval_withheld": of.interval_withheld,
                "independence_p": None if of.independence is None else of.independence.p,
            }  # fmt: skip


def _at(field: Any, i: int) -> Any:
    return field[i] if isinstance(field, list) else field


def _columns_of_usage(of: Usage) -> Columns:
    """A row for each step and number, and for each cell of the retention triangle: `after` is its number of steps.

    A row is complete if all steps of its number are.
    """
    several = f"people in {of.in_many} steps", of.in_many or 1, of.in_steps
    lines = ("people", 1, of.people), ("people a day", 1, of.a_day), several
    missing = {step for step, complete in zip(of.steps, of.complete, strict=True) if not complete}
    rows: list[Any] = [
        (i, missing.isdisjoint(range(step - many + 1, step + 1)), name, None, line.values[i], line.low[i], line.high[i])
        for i, step in enumerate(of.steps) for name, many, line in lines if line is not None
    ]  # fmt: skip
    for cohort in of.retention:
        step, back = cohort.step, cohort.shares
        for n, row in enumerate(zip(back.values, back.low, back.high, strict=True), 1):
            rows.append((of.steps.index(step), missing.isdisjoint({step, step + n}), "share back", n, *row))
    starts, ends = ([utc(at) for at in times] for times in (of.start_ms, of.end_ms))
    names = ("step", "start", "end", "complete", "number", "after", "value", "low", "high")
    cells = [(of.steps[i], starts[i], ends[i], *row) for i, *row in rows]
    return {name: [cell[place] for cell in cells] for place, name in enumerate(names)}


def changes_csv(of: Overview) -> Response:
    """Returns the clearest differences of an overview as a table."""
    columns = {name: [getattr(change, name) for change in of.changes] for name in Change.__struct_fields__}
    return _csv(columns | _period(of) | {"span": of.span, "survey": of.survey}, file_name(of, "csv", "changes"))


def _period(of: Overview) -> Columns:
    return {
        "step": of.step, "start": utc(of.start_ms), "end": utc(of.end_ms), "cohort": of.cohort,
        "before_step": of.before_step, "against": of.against,
    }  # fmt: skip


def _within(side: str, part: TableShares) -> Columns:
    return {f"within_{side}": part.shares, f"within_{side}_low": part.low, f"within_{side}_high": part.high}


def _span(of: Histogram | Table) -> Columns:
    return {
        "step": of.step, "start": utc(of.start_ms), "end": utc(of.end_ms), "reports": of.reports, "complete": of.complete,
    }  # fmt: skip


def _steps_of(of: Series | NumberSeries) -> Columns:
    """The columns of the steps: each step has a row for every line."""
    columns: Columns = {
        "step": of.steps, "start": [utc(at) for at in of.start_ms], "end": [utc(at) for at in of.end_ms],
        "reports": of.reports, "complete": of.complete,
    }  # fmt: skip
    return {name: [cell for cell in column for _ in of.lines] for name, column in columns.items()}


def utc(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
