"""Output files of commands."""

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from ldpstream.runtime.files import write_file
from ldpstream.surveys.errors import UserError


class OutputError(UserError):
    """A file cannot be written."""


def writable(param: typer.CallbackParam, path: Path | None) -> Path | None:
    """Returns the path of an option, before the command's work.

    Raises:
        OutputError: if the path is a folder, or its folder does not exist or cannot be written.
    """
    if path is None:
        return None
    try:
        if path.is_dir() or not path.name or not path.absolute().parent.is_dir():
            raise OutputError(f"{param.opts[0]} {path}: is a folder, or its folder does not exist")
    except OSError as error:  # for example, a name that is too long
        raise OutputError(f"{param.opts[0]} {path}: cannot be written: {error.strerror}") from None
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise OutputError(f"{param.opts[0]} {path}: cannot be written: Permission denied")
    return path


JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", callback=writable, help="also write the output as JSON")
]


def write_json(path: Path | None, document: Any) -> None:
    """Writes the document as JSON (`write_output`).

    Raises:
        OutputError: if a text is not UTF-8, such as the name of a file, or the file cannot be written.
    """
    if path is not None:
        try:
            data = msgspec.json.encode(document)
        except UnicodeEncodeError as error:
            raise OutputError(f"{path}: cannot be written: not UTF-8: {error.object!a}") from None
        write_output(path, data + b"\n")


def write_output(path: Path, data: bytes | str) -> None:
    """Writes a file that the user named (`runtime.files.write_file`).

    Raises:
        OutputError: if the file cannot be written.
    """
    try:
        write_file(path, data.encode() if isinstance(data, str) else data)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from None
