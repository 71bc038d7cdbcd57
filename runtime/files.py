"""Writes the files that a user names."""

import errno
import os
import secrets
import stat
import sys
from pathlib import Path
from typing import Final

STREAMS: Final = {"/dev/stdout": 1, "/dev/stderr": 2}


def write_file(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Writes a regular file, either the whole file or nothing; writes to anything else (a pipe, a device) as it is.

    A link stays, and the file that it names is written. An existing file keeps its mode. After `/dev/stdout` and `/dev/stderr`,
    our own output goes on.

    Args:
        mode: rights of a new file, before the umask.

    Raises:
        OSError: if the file cannot be written. Its `filename` is the path.
    """
    try:
        if _is_regular(path):
            _replace(Path(os.path.realpath(path)), data, mode)
            return
        stream = STREAMS.get(str(path))
        if stream is not None and sys.stdout is not None:
            sys.stdout.flush()
        # without O_CREAT: Linux refuses it for another user's pipe in a shared folder
        with open(os.dup(stream) if stream is not None else os.open(path, os.O_WRONLY), "wb") as file:
            file.write(data)
    except OSError as error:  # it names the file beside the path, or none
        raise OSError(error.errno, error.strerror, str(path)) from None


def _is_regular(path: Path) -> bool:
    """True for a regular file, and for a path without a file."""
    if str(path) in STREAMS:
        return False
    if path.exists() and not os.access(path, os.W_OK):  # a rename would replace the file all the same
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return path.is_file() or not path.exists()


def _replace(target: Path, data: bytes, mode: int) -> None:
    part = target.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            if target.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
