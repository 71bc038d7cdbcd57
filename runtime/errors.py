"""Errors that several folders of the project raise and catch, and the exit status of a process that an error ends."""

import errno
import socket
import sqlite3
from typing import Final

from ldpstream.surveys.errors import UserError

LASTING: Final = 2  # exit status of a process if a person must correct something before the next start
PASSING: Final = 1  # exit status if a later start may succeed: a supervisor should start the process again
_PASSING_ERRNO: Final = frozenset((
    errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EBUSY, errno.ETIMEDOUT,
    errno.ESTALE, errno.EADDRNOTAVAIL, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTUNREACH,
))  # fmt: skip
_PASSING_SQLITE: Final = frozenset((
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM,
))  # fmt: skip


class LogUnavailable(UserError):
    """The broker is unreachable, does not answer in time, or refuses a request. A retry may succeed."""


class Passing(UserError):
    """An error at the start that ends by itself."""


def exit_status(error: BaseException) -> int:
    """Returns the exit status of a process that ends with this error, from the error and the errors that led to it.

    >>> exit_status(OSError(errno.ENOSPC, "No space left on device")), exit_status(OSError(errno.EACCES, "Permission denied"))
    (1, 2)
    """
    cause: BaseException | None = error
    while cause is not None:
        if _passes(cause):
            return PASSING
        cause = cause.__cause__ or cause.__context__
    return LASTING


def _passes(error: BaseException) -> bool:
    if isinstance(error, socket.gaierror):
        return error.errno == socket.EAI_AGAIN
    if isinstance(error, OSError):
        return error.errno in _PASSING_ERRNO
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _PASSING_SQLITE
    return isinstance(error, Passing)
