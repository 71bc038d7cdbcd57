import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
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


def marks(outcome: Outcome, shared: Mapping[str, str]) -> dict[str, str]:
    """Returns the mark of each note of a row: its letter if results share it, otherwise its number in this result."""
    own = [note for note in reasons(outcome.rows) if note not in shared]
    return {**shared, **{note: str(i) for i, note in enumerate(own, 1)}}


def cells(row: Row, marked: Mapping[str, str]) -> list[str]:
    return [
        row.label + (f" [{marked[row.note]}]" if row.note else ""),
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
    marked = marks(found.outcome, {})
    for row in found.outcome.rows:
        shown.add_row(*map(escape, cells(row, marked)))
    return shown


def sentences(outcome: Outcome, shared: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Returns the notes below a result. Those that results share stand once, elsewhere; one line names their letters."""
    marked = marks(outcome, shared)
    own = [f"[{marked[note]}] {note}" for note in reasons(outcome.rows) if note not in shared]
    elsewhere = sorted({shared[note] for note in (*reasons(outcome.rows), *outcome.notes) if note in shared})
    letters = [f"Notes of the whole page: {', '.join(elsewhere)}."] if elsewhere else []
    return [*own, *(note for note in outcome.notes if note not in shared), *letters]


def shared_notes(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Returns a letter for each note of at least two results, in the order of their first result."""
    counts = Counter(note for one in outcomes for note in dict.fromkeys([*reasons(one.rows), *one.notes]))
    return {note: chr(ord("A") + i) for i, note in enumerate(note for note, n in counts.items() if n > 1)}


def markdown(name: str, title: str, outcome: Outcome, picture: str, shared: Mapping[str, str]) -> str:
    lines = [f"## {title}", "", f"`python -m lab.papers {name}`: {summary(outcome.rows)}.", ""]
    if outcome.rows:
        marked = marks(outcome, shared)
        lines += ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells(row, marked)) + " |" for row in outcome.rows]
        lines.append("")
    if picture:
        lines += [f"![{title}]({picture})", ""]
    for sentence in sentences(outcome, shared):
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
