"""The terminal and the pictures of the laboratory's commands."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import typer
from rich.console import Console

from ldpstream.output.outputs import OutputError, writable
from ldpstream.output.terminal import progress_bar

PICTURES = (".png", ".svg", ".pdf")


@contextmanager
def activity() -> Iterator[Callable[[str], None]]:
    with Console(stderr=True).status("") as status:
        yield status.update


@contextmanager
def job_bar() -> Iterator[Callable[[int, int, str], None]]:
    """Shows a progress bar. The yielded function has the arguments jobs done, total jobs, name of the last job."""
    with progress_bar() as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total, name: progress.update(task, completed=done, total=total, description=name)


def drawable(param: typer.CallbackParam, path: Path | None) -> Path | None:
    """Returns the path of an option, if a picture can be drawn there.

    Raises:
        OutputError: if `writable` refuses the path, the picture's format is unknown, or Matplotlib is missing.
    """
    if (path := writable(param, path)) is not None:
        if path.suffix.lower() not in PICTURES:
            raise OutputError(f"{param.opts[0]} {path}: must end in one of {', '.join(PICTURES)}")
        if find_spec("matplotlib") is None:
            raise OutputError(f"{param.opts[0]} needs Matplotlib: pip install matplotlib")
    return path
