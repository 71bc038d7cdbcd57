"""The tables of `ledger`: losses and chances of t reports."""

import math
from itertools import groupby
from typing import Any

from rich.table import Table

from ldpstream.mechanisms.claims.guessing import percent, percent_up
from ldpstream.mechanisms.wording import up
from ldpstream.output.terminal import table
from ldpstream.surveys import Survey

HORIZONS = (1, 2, 3, 5, 10, 20, 50, 100, 1000)


def ledger_rows(survey: Survey) -> list[dict[str, Any]]:
    """Returns the privacy ledger: one row per attribute, level and horizon t.

    The last horizon is the largest number of reports of a device, if there is a limit.
    """
    rows = []
    for _, attribute, level, m in survey.levels:
        limit = survey.most_reports(m)
        for t in sorted({min(t, limit or t) for t in HORIZONS} | ({limit} if limit else set())):
            sequence = m.eps_sequence(t)
            chances = {"guess": m.guess(t), "guess_any_values": m.claims.guess_any_values(t)}
            rows.append({
                "attribute": attribute.name, "level": level.name, "mechanism": m.signature, "t": t, "eps_t": m.eps_t(t),
                "eps_inf": m.eps_inf, "eps_sequence": sequence.value, "eps_sequence_exact": sequence.exact,
                "every_steps": m.every_steps, "eps_window": m.eps_window, "eps_lifetime": m.eps_lifetime,
                **{name: float(chance) for name, chance in chances.items()},
                **{f"{name}_exact": chance.exact for name, chance in chances.items()},
            })  # fmt: skip
    return rows


def _right(row: dict[str, Any], name: str) -> str:
    return percent(row[name]) if row[f"{name}_exact"] else f"≤ {percent_up(row[name])}"


def ledger_tables(rows: list[dict[str, Any]]) -> list[Table]:
    tables = []
    for _, of_level in groupby(rows, key=lambda row: (row["attribute"], row["level"])):
        group = list(of_level)
        first = group[0]
        title = f"{first['attribute']} · {first['level']} · {first['mechanism']}"
        w, spaced = first["every_steps"], None
        if w > 1 or math.isfinite(first["eps_lifetime"]):
            spaced = f"ε_window {up(first['eps_window'])} within {w} step{'s' if w > 1 else ''}, "
            spaced += f"ε_lifetime {up(first['eps_lifetime'])}"
        columns = "t", "same\nvalue", "right\nguess", "any\nvalues", "right\nguess"
        shown = table(title, *columns, texts=0, caption=spaced)
        for row in group:
            mark = " " if row["eps_sequence_exact"] else "*"
            shown.add_row(
                str(row["t"]), up(row["eps_t"]), _right(row, "guess"), up(row["eps_sequence"]) + mark,
                _right(row, "guess_any_values"),
            )  # fmt: skip
        tables.append(shown)
    return tables
