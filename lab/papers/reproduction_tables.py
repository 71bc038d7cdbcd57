import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from lab.papers.reproduction import Outcome, Reproduced, Row

NONE = "–"
VERDICTS = {True: "yes", False: "NO", None: NONE}
COLUMNS = ("", "paper", "ours", "differs", "±", "agrees", "best", "gain")


def reasons(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.note for row in rows if row.note))


def cells(row: Row, notes: list[str]) -> list[str]:
    return [
        row.label + (f" [{notes.index(row.note) + 1}]" if row.note else ""),
        number(row.published),
        number(row.ours),
        number(row.difference, 2),
        number(None if row.published is None else row.spread, 2),
        VERDICTS[row.within],
        number(row.best),
        NONE if row.gain is None else f"×{number(row.gain, 3)}",
    ]


def number(x: float | None, digits: int = 4) -> str:
    if x is None or math.isnan(x):
        return NONE
    return re.sub(r"e([+-])0*", lambda sign: "e" + sign[1].replace("+", ""), f"{x:.{digits}g}")


def summary(rows: Sequence[Row]) -> str:
    compared = [row.within for row in rows if row.published is not None]
    return f"{sum(map(bool, compared))} of {len(compared)} published values agree" if compared else "no published numbers"


def table(found: Reproduced) -> Table:
    shown = Table(*COLUMNS, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    shown.title, shown.caption = f"{found.target.title} ({found.target.name})", summary(found.outcome.rows)
    for column in shown.columns[1:]:
        column.justify, column.no_wrap = "right", True
    notes = reasons(found.outcome.rows)
    for row in found.outcome.rows:
        shown.add_row(*map(escape, cells(row, notes)))
    return shown


def sentences(outcome: Outcome) -> list[str]:
    return [*(f"[{i}] {note}" for i, note in enumerate(reasons(outcome.rows), 1)), *outcome.notes]


def markdown(name: str, title: str, outcome: Outcome, picture: str = "") -> str:
    lines = [f"### {title}", "", f"`python -m lab.papers {name}`: {summary(outcome.rows)}.", ""]
    if outcome.rows:
        notes = reasons(outcome.rows)
        lines += ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells(row, notes)) + " |" for row in outcome.rows]
        lines.append("")
    if picture:
        lines += [f"![{title}]({picture})", ""]
    for sentence in sentences(outcome):
        lines += [sentence, ""]
    return "\n".join(lines)


def document(found: Reproduced) -> dict[str, Any]:
    content: dict[str, Any] = msgspec.to_builtins(found.outcome)
    for row, out in zip(found.outcome.rows, content["rows"], strict=True):
        out |= {"difference": row.difference, "within": row.within, "gain": row.gain}
    return {"name": found.target.name, "title": found.target.title, **content}


def outcome(written: dict[str, Any]) -> Outcome:
    for curve in (curve for panel in written["panels"] for curve in panel["curves"]):
        curve["y"] = [math.nan if y is None else y for y in curve["y"]]
        curve["spread"] = curve["spread"] and [math.nan if y is None else y for y in curve["spread"]]
    rows = [row if row["ours"] is not None else row | {"ours": math.nan} for row in written["rows"]]
    return msgspec.convert({**written, "rows": rows}, Outcome)
