"""Errors that several rooms raise and catch, the exit status of a process that an error ends, and the wait for a service."""

import errno
import socket
import sqlite3
from collections.abc import Callable
from typing import Final, TypeVar

from ldpstream.surveys.errors import Unreachable, UserError

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


T = TypeVar("T")

RETRY_S = 1.0
TELL_EVERY = 60  # after this many attempts, an unchanged reason is reported again


class Stopped(Exception):
    """The process received a stop request while it waited."""


def wait_for(
    what: str,
    ask: Callable[[], T],
    stop: Callable[[float], bool],
    tell: Callable[[str], object],
    unreachable: Callable[[Exception], bool] = lambda error: isinstance(error, Unreachable),
) -> T:
    """Retries every second until a service answers, without a time limit.

    Args:
        stop: waits for the given seconds; returns true if the process has to stop.
        unreachable: returns true if an error of `ask` means "unreachable"; any other error is raised.

    Raises:
        Stopped: if `stop` returned true.

    >>> answers = iter([Unreachable("Kafka at here:9092 cannot be reached: Connection refused"), None])
    >>> def ask():
    ...     if (error := next(answers)) is not None:
    ...         raise error
    >>> wait_for("Kafka at here:9092", ask, stop=lambda seconds: False, tell=print)
    waiting for Kafka at here:9092: cannot be reached: Connection refused
    Kafka at here:9092 answers
    """
    told, attempts = "", 0
    while True:
        try:
            answer = ask()
        except Exception as error:
            if not unreachable(error):
                raise
            reason = str(error).removeprefix(what).lstrip(": ") or type(error).__name__
            if reason != told or attempts % TELL_EVERY == 0:
                tell(f"waiting for {what}: {reason}")
            told, attempts = reason, attempts + 1
        else:
            if attempts:
                tell(f"{what} answers")
            return answer
        if stop(RETRY_S):
            raise Stopped
