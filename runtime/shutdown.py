"""The end of a process: the line in its log, and the shutdown deadline."""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

TOLD_TO_END = "told to end"  # every service logs this line at SIGTERM and Ctrl-C
ALARM_AFTER_S = 1.0  # the alarm ends the process this many seconds after the deadline
_status = 0  # exit status of the process, as far as `noting_status` knows it


def end_within(seconds: float, last_words: Callable[[], object] = lambda: None) -> None:
    """Ends the process after `seconds`, or earlier, when the interpreter exits. Later calls have no effect.

    The exit status is that of the block of `noting_status`, or 0 before the block has failed. If the interpreter is blocked,
    SIGALRM kills the process 1 s later.

    Args:
        last_words: called before the thread ends the process.
    """

    def end() -> None:
        last_words()
        os._exit(_status)

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
    os._exit(_status)


@contextmanager
def noting_status() -> Iterator[None]:
    """Notes the exit status of an exception that ends the process, for `end_within`: an exit hook cannot ask for it."""
    global _status
    try:
        yield
    except SystemExit as error:
        _status = error.code if isinstance(error.code, int) else int(error.code is not None)
        raise
    except BaseException:
        _status = 1
        raise
