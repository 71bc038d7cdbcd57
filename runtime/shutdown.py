"""The end of a process: the line in its log, and the shutdown deadline."""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

TOLD_TO_END = "told to end"  # every service logs this line at SIGTERM and Ctrl-C
ALARM_AFTER_S = 1.0  # the alarm ends the process this many seconds after the deadline


def end_within(seconds: float, last_words: Callable[[], object] = lambda: None) -> None:
    """Ends the process with exit status 0 after `seconds`, or when the interpreter exits before. Later calls have no effect.

    If the interpreter is blocked, SIGALRM kills the process 1 s later.

    Args:
        last_words: called before the thread ends the process.
    """

    def end() -> None:
        last_words()
        os._exit(0)

    if signal.getitimer(signal.ITIMER_REAL)[0] == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds + ALARM_AFTER_S)
        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        atexit.register(_leave)


def _leave() -> None:
    with suppress(AttributeError, OSError, ValueError):  # standard output may be missing or closed
        sys.stdout.flush()
    os._exit(0)
