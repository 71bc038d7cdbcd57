"""Waits at the start of a process for a service that is not reachable yet."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

RETRY_S = 1.0
TELL_EVERY = 60  # after this many attempts, an unchanged reason is reported again


class Unreachable(Exception):
    """A service is unreachable or does not answer."""


class Stopped(Exception):
    """The process received a stop request while it waited."""


def is_unreachable(error: Exception) -> bool:
    return isinstance(error, Unreachable)


def wait_for(
    what: str,
    ask: Callable[[], T],
    stop: Callable[[float], bool],
    tell: Callable[[str], object],
    unreachable: Callable[[Exception], bool] = is_unreachable,
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
