"""Writes the files that a user names."""

import errno
import os
import secrets
import stat
import sys
from contextlib import suppress
from pathlib import Path

STREAMS = (1, 2)  # standard output and standard error


def write_file(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Writes a regular file, either the whole file or nothing; writes to anything else (a pipe, a device) as it is.

    A link stays, and the file that it names is written. An existing file keeps its mode and, if we may set it, its owner. If
    the path names our own standard output or standard error, the data go there.

    Args:
        mode: rights of a new file, before the umask.

    Raises:
        OSError: if the file cannot be written. Its `filename` is the path.
    """
    try:
        _write(path, data, mode)
    except OSError as error:  # it names the file beside the path, or none
        raise OSError(error.errno, error.strerror, str(path)) from None


def _write(path: Path, data: bytes, mode: int) -> None:
    found = _found(path)
    if found is None or (stat.S_ISREG(found.st_mode) and _stream(found) is None):
        _replace(Path(os.path.realpath(path)), data, mode, found)
        return
    stream = _stream(found)
    if stream is not None and sys.stdout is not None:
        sys.stdout.flush()
    # without O_CREAT: Linux refuses it for another user's pipe in a shared folder
    with open(os.dup(stream) if stream is not None else os.open(path, os.O_WRONLY), "wb") as file:
        file.write(data)


def check_writable(path: Path, probe: bytes) -> None:
    """Checks that `write_file` can write there. Writes and deletes a small file beside a regular file.

    Raises:
        OSError: if it cannot.
    """
    found = _found(path)
    if found is None or stat.S_ISREG(found.st_mode):
        part = _part(Path(os.path.realpath(path)))
        try:
            part.write_bytes(probe)
        finally:
            _delete(part)


def _replace(target: Path, data: bytes, mode: int, found: os.stat_result | None) -> None:
    part = _part(target)
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode if found is None else 0o600)
        with open(descriptor, "wb") as file:
            if found is not None:
                with suppress(PermissionError):
                    os.fchown(descriptor, found.st_uid, found.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(found.st_mode))
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        part.replace(target)
    finally:
        _delete(part)


def _found(path: Path) -> os.stat_result | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    if _stream(found) is None and not os.access(path, os.W_OK):  # a rename would replace the file all the same
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return found


def _stream(found: os.stat_result) -> int | None:
    for descriptor in STREAMS:
        with suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), found):
                return descriptor
    return None


def _part(target: Path) -> Path:
    return target.with_name(f".{secrets.token_hex(8)}.part")


def _delete(part: Path) -> None:
    with suppress(OSError):  # on a read-only file system, `unlink` fails even if the file does not exist
        part.unlink()
