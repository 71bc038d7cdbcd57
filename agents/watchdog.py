"""Ends a process that no longer makes progress."""

import os
import threading
import time

import structlog

log = structlog.get_logger("ldpstream.agent")

STALLED = 3  # exit code


class Watchdog(threading.Thread):
    """Ends the process after two minutes without a call of `alive`, so that a supervisor restarts it."""

    TICK_S = 5.0
    TICKS = 24  # counts ticks, not clock time: a process that was suspended for a while may continue

    def __init__(self) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._ticks = 0

    def alive(self) -> None:
        """Resets the watchdog."""
        self._ticks = 0

    def run(self) -> None:
        while self._ticks < self.TICKS:
            time.sleep(self.TICK_S)
            self._ticks += 1
        log.critical("stalled, ending the process")
        os._exit(STALLED)
