"""Waiting at the start of a process for a service that does not answer yet."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

RETRY_S = 1.0
TELL_EVERY = 60  # attempts after which an unchanged reason is told again


class Away(Exception):
    """A service cannot be reached or does not answer. Another attempt may succeed without anybody's help."""


class Stopped(Exception):
    """The process was told to stop while it waited."""


def is_away(error: Exception) -> bool:
    """Whether the error is an `Away`."""
    return isinstance(error, Away)


def wait_for(
    what: str,
    ask: Callable[[], T],
    stop: Callable[[float], bool],
    tell: Callable[[str], object],
    away: Callable[[Exception], bool] = is_away,
) -> T:
    """Ask a service until it answers; without a limit, as processes wait for an outage later.

    Args:
        what: the service and its address, for the person who waits.
        ask: the question.
        stop: waits so many seconds; true asks for the end.
        tell: is given a line when the waiting begins, when the reason changes, and once in a while.
        away: whether an error of `ask` means that the service is away; any other error is raised.

    Returns:
        What `ask` returns.

    Raises:
        Stopped: if `stop` returned true.

    >>> answers = iter([Away("Kafka at here:9092 cannot be reached: Connection refused"), None])
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
            if not away(error):
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
