"""The wall clock, and a check that it does not jump.

A report is too late, and a step closed, by the time of a clock. A wrong time cannot be corrected later. `SteadyClock` therefore
compares the wall clock with the machine's running clock, which nobody sets.
"""

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final

import structlog
from prometheus_client import Gauge

from ldpstream.runtime.errors import LogUnavailable, Passing
from ldpstream.surveys import Survey


def now_ms() -> int:
    return time.time_ns() // 10**6


log = structlog.get_logger("ldpstream.clock")

_RUNNING: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # also runs while the machine is suspended
_SMALLEST_MS: Final = 1000  # no step is shorter
_AT_ONCE_MS: Final = 100  # longest time between two readings of the running clock that enclose a reading of the wall clock

jump_seconds = Gauge(
    "ldpstream_clock_jump_seconds",
    "Seconds by which the machine's clock has jumped, negative for a jump back; 0 while the process accepts the clock.",
)


class ClockJumped(LogUnavailable, Passing):
    """The wall clock has jumped by more than a step. It may return."""


def running_ms() -> int:
    """Returns the time since an arbitrary moment, in ms."""
    return time.clock_gettime_ns(_RUNNING) // 10**6


class SteadyClock:
    """The wall clock; several threads may share the object.

    A call returns the Unix time in ms. If the wall clock jumps by more than the shortest step, each call raises `ClockJumped`
    until the wall clock is back, within a step. A smaller jump is a correction, and is accepted. A new object accepts the
    present time: an operator accepts a new time by a restart.

    Args:
        surveys: returns the surveys whose steps limit a jump.
        wall_ms, running_ms: the two clocks, in ms.
    """

    def __init__(
        self,
        surveys: Callable[[], Iterable[Survey]],
        wall_ms: Callable[[], int] = now_ms,
        running_ms: Callable[[], int] = running_ms,
    ) -> None:
        self._surveys, self._wall_ms, self._running_ms = surveys, wall_ms, running_ms
        self._offset_ms: int | None = None  # the wall clock minus the running clock, at the last accepted reading
        self._jumped = False
        self()

    def __call__(self) -> int:
        wall_ms, offset_ms = self._read()
        jump_ms = 0 if self._offset_ms is None else offset_ms - self._offset_ms
        if abs(jump_ms) > _SMALLEST_MS and abs(jump_ms) > self._limit_ms():
            self._tell(jump_ms)
            raise ClockJumped(
                f"this machine's clock has jumped by {jump_ms / 1000:+,.1f} s: set it right, or restart this process if it is "
                "right now"
            )
        self._offset_ms = offset_ms
        if self._jumped:
            self._tell(0)
        return wall_ms

    def _read(self) -> tuple[int, int]:
        while True:
            before_ms, wall_ms, after_ms = self._running_ms(), self._wall_ms(), self._running_ms()
            if after_ms - before_ms <= _AT_ONCE_MS:  # otherwise the process was suspended in between
                return wall_ms, wall_ms - before_ms

    def _limit_ms(self) -> int:
        return min((survey.step_ms for survey in self._surveys()), default=_SMALLEST_MS)

    def _tell(self, jump_ms: int) -> None:
        jump_seconds.set(jump_ms / 1000)
        if self._jumped != bool(jump_ms):
            self._jumped = bool(jump_ms)
            if jump_ms:
                log.error("the clock has jumped: no report is accepted and no step published", seconds=jump_ms / 1000)
            else:
                log.warning("the clock agrees again")


def shown(unix_ms: int) -> str:
    """Returns a time as text, also beyond the range of `datetime`."""
    try:
        return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{unix_ms} ms"
