"""Files that commands write: asked for before the work, not after it."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

PICTURES = (".png", ".svg", ".pdf")


class OutputError(Exception):
    """A file that cannot be written: one line that names it."""


def writable(param: typer.CallbackParam, path: Path | None) -> Path | None:
    """The path of an option, if a file can be written there.

    Raises:
        OutputError: if it is a folder, or is in none.
    """
    if path is not None and (path.is_dir() or not path.name or not path.absolute().parent.is_dir()):
        raise OutputError(f"{param.opts[0]} {path}: is a folder, or is in none")
    return path


def drawable(param: typer.CallbackParam, path: Path | None) -> Path | None:
    """The path of an option, if a picture can be drawn there.

    Raises:
        OutputError: if it is a folder or in none, names no format that we draw, or Matplotlib is missing.
    """
    if (path := writable(param, path)) is not None:
        if path.suffix.lower() not in PICTURES:
            raise OutputError(f"{param.opts[0]} {path}: must end in one of {', '.join(PICTURES)}")
        if find_spec("matplotlib") is None:
            raise OutputError(f"{param.opts[0]} needs Matplotlib: pip install matplotlib")
    return path


JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", callback=writable, help="also write what is shown, as JSON")
]


def write_json(path: Path | None, document: Any) -> None:
    """Write the file whole or not at all."""
    if path is None:
        return
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(msgspec.json.encode(document) + b"\n")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
