"""Output of commands on the terminal: results on standard output, progress on standard error."""

import re
import sys
import textwrap
from copy import copy
from dataclasses import replace
from typing import Never

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

console = Console()
NONE = "–"  # stands for a missing value in a table
SAYS = "ldpstream: "  # begins every line of `say`


def say(message: str) -> None:
    sys.stderr.write(f"{SAYS}{message}\n")
    sys.stderr.flush()


def tell(line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def tell_wrapped(line: str, heading: str = "") -> None:
    """Prints a heading and a line, wrapped between words at the width of the terminal. Later lines are indented like the first
    one."""
    indent = re.match(r" *(?:[-*·] )?", line)
    assert indent is not None
    indented = " " * (len(heading) + indent.end())
    lines = textwrap.wrap(
        heading + line, console.width, subsequent_indent=indented, break_long_words=False, break_on_hyphens=False
    )
    tell("\n".join(lines))


def show_table(shown: Table, kept: int = 1) -> None:
    """Prints a table. In a narrow terminal, it becomes several tables, each with the first `kept` columns."""

    def width(column: Column) -> int:
        sizes = [Measurement.get(console, console.options, cell) for cell in (column.header, *column.cells)]
        return max(size.maximum if column.no_wrap else size.minimum for size in sizes) + 3

    first = shown.columns[:kept]
    room = console.width - 1 - sum(map(width, first))
    parts, left = [list[Column]()], room
    for column in shown.columns[kept:]:
        if parts[-1] and width(column) > left:
            parts.append([])
            left = room
        parts[-1].append(column)
        left -= width(column)
    for i, part in enumerate(parts):
        one = copy(shown)
        one.columns = [replace(column, _index=j) for j, column in enumerate([*first, *part])]
        one.title = shown.title if i == 0 else None
        one.caption = shown.caption if i == len(parts) - 1 else None
        console.print(one)


def fail(message: str, status: int = 2) -> Never:
    """Ends with one line on standard error."""
    say(message)
    sys.exit(status)


def progress_bar() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, console=Console(stderr=True))


def table(title: str | None, *columns: str, texts: int = 1, caption: str | None = None) -> Table:
    """The first `texts` columns hold texts, the other columns hold numbers."""
    empty = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for i, column in enumerate(columns):
        empty.add_column(column, justify="left" if i < texts else "right", no_wrap=i >= texts, overflow="fold")
    return empty
