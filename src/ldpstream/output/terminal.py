"""Output of commands on the terminal: results on standard output, progress on standard error."""

import sys
import textwrap
from typing import Never

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

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
    indent = " " * (len(heading) + len(line) - len(line.lstrip()))
    tell(textwrap.fill(heading + line, console.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))


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
        empty.add_column(column, justify="left" if i < texts else "right", overflow="fold")
    return empty
