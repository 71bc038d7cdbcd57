"""Output of commands on the terminal: results on standard output, progress on standard error."""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


def fail(message: str, status: int = 2) -> Never:
    """Ends with one line on standard error."""
    say(message)
    sys.exit(status)


def progress_bar() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, console=Console(stderr=True))


@contextmanager
def job_bar() -> Iterator[Callable[[int, int, str], None]]:
    """Shows a progress bar. The yielded function has the arguments jobs done, total jobs, name of the last job."""
    with progress_bar() as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total, name: progress.update(task, completed=done, total=total, description=name)


@contextmanager
def activity() -> Iterator[Callable[[str], None]]:
    with Console(stderr=True).status("") as status:
        yield status.update


def number(x: float | None) -> str:
    """A number as text with four digits; None stands for infinity, as in JSON."""
    if x is None or math.isinf(x):
        return "∞"
    return NONE if math.isnan(x) else f"{x:.4g}"


def table(title: str, *columns: str, texts: int = 1) -> Table:
    """The first `texts` columns hold texts, the other columns hold numbers."""
    empty = Table(title=title, title_justify="left", caption_justify="left")
    for i, column in enumerate(columns):
        empty.add_column(column, justify="left" if i < texts else "right", no_wrap=i >= texts, overflow="fold")
    return empty
