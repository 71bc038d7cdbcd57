"""The deadline of a process that was told to stop."""

import atexit
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress

ALARM_AFTER_S = 0.5  # the deadline


def end_within(seconds: float, last_words: Callable[[], object] = lambda: None) -> None:
    """End the process with exit status 0 so many seconds from now at the latest; for a signal handler. The first call counts.

    A thread ends the process. If nothing lets that thread run, the system's alarm does so half a second later. An orderly end
    skips the interpreter's teardown, which takes a second on a busy machine and stops that thread before it begins.

    Args:
        seconds: the deadline.
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
    with suppress(OSError, ValueError):  # nobody reads it any more
        print(end="", flush=True)  # noqa: T201
    os._exit(0)
