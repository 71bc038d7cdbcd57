"""Reproduced tables and figures on the terminal, as Markdown, and as pictures."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.table import Table

from experiments.reproduction import Outcome, Panel, Reproduced, ReproductionError, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NONE = "–"
VERDICTS = {True: "yes", False: "NO", None: NONE}
COLUMNS = ("", "published", "ours", "difference", "± chance", "agrees", "best", "gain")


def cells(row: Row) -> list[str]:
    """A row's texts, in the order of `COLUMNS`."""
    return [
        row.label + (f" ({row.note})" if row.note else ""),
        number(row.published),
        number(row.ours),
        number(row.difference),
        NONE if row.published is None else number(row.spread),
        VERDICTS[row.within],
        number(row.best),
        NONE if row.gain is None else f"×{row.gain:.3g}",
    ]


def number(x: float | None) -> str:
    """Four significant digits."""
    if x is None or math.isnan(x):
        return NONE
    return f"{x:.4g}"


def summary(rows: Sequence[Row]) -> str:
    """How many of the published values agree."""
    compared = [row.within for row in rows if row.published is not None]
    return f"{sum(map(bool, compared))} of {len(compared)} published values agree" if compared else "no published numbers"


def table(found: Reproduced) -> Table:
    """A target's rows."""
    shown = Table(*COLUMNS, title=f"{found.target.title} ({found.target.name})", caption=summary(found.outcome.rows))
    for row in found.outcome.rows:
        shown.add_row(*cells(row))
    return shown


def markdown(name: str, title: str, outcome: Outcome, picture: str = "") -> str:
    """A target as a section of a Markdown document, with its picture if there is one."""
    lines = [f"### {title}", "", f"`ldpstream reproduce {name}`: {summary(outcome.rows)}.", ""]
    if outcome.rows:
        lines += ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells(row)) + " |" for row in outcome.rows]
        lines.append("")
    if picture:
        lines += [f"![{title}]({picture})", ""]
    for note in outcome.notes:
        lines += [note, ""]
    return "\n".join(lines)


def document(found: Reproduced) -> dict[str, Any]:
    """A target as a document for JSON; `outcome` reads it."""
    content: dict[str, Any] = msgspec.to_builtins(found.outcome)
    for row, out in zip(found.outcome.rows, content["rows"], strict=True):
        out |= {"difference": row.difference, "within": row.within, "gain": row.gain}
    return {"name": found.target.name, "title": found.target.title, **content}


def outcome(written: dict[str, Any]) -> Outcome:
    """What `document` wrote; a number that JSON cannot hold comes back as NaN."""
    for curve in (curve for panel in written["panels"] for curve in panel["curves"]):
        curve["y"] = [math.nan if y is None else y for y in curve["y"]]
        curve["spread"] = curve["spread"] and [math.nan if y is None else y for y in curve["spread"]]
    rows = [row if row["ours"] is not None else row | {"ours": math.nan} for row in written["rows"]]
    return msgspec.convert({**written, "rows": rows}, Outcome)


def draw(drawn: Outcome, title: str, path: Path) -> None:
    """Draw a target's panels, at most three beside one another.

    Raises:
        ReproductionError: if Matplotlib is missing, or the file's ending names no format that it knows.
    """
    try:
        from matplotlib.figure import Figure  # only here: it is an extra
    except ImportError:
        raise ReproductionError("pictures need Matplotlib: pip install matplotlib") from None
    panels = drawn.panels
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    figure = Figure(figsize=(4.6 * across, 3.6 * down), layout="constrained")
    figure.suptitle(title, fontsize="medium", wrap=True)
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for axis, panel in zip(axes, panels, strict=False):
        _panel(axis, panel)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    try:
        figure.savefig(path, dpi=110)
    except ValueError as error:
        raise ReproductionError(f"{path}: {error}") from None


def _panel(axis: "Axes", panel: Panel) -> None:
    for i, curve in enumerate(panel.curves):
        line, mark = ("-", "--", ":")[i // 10 % 3], "os^vD"[i % 5]
        axis.errorbar(
            curve.x, curve.y, yerr=curve.spread, label=curve.label,
            linewidth=1, color=f"C{i % 10}", linestyle=line, marker=mark, markersize=3,
        )  # fmt: skip
    axis.set_title(panel.title, fontsize="small")
    axis.set_xlabel(panel.x, fontsize="small")
    axis.set_ylabel(panel.y, fontsize="small")
    axis.set_xscale("log" if panel.log_x else "linear")
    axis.set_yscale("log" if panel.log_y else "linear")
    axis.tick_params(labelsize="small")
    axis.grid(visible=True, alpha=0.3)
    if any(curve.label for curve in panel.curves):
        axis.legend(fontsize="x-small")
