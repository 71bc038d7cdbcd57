"""A process: its shutdown, which has a deadline, and its memory."""

import atexit
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

TOLD_TO_END = "told to end"  # every service logs this line at SIGTERM and Ctrl-C
ALARM_AFTER_S = 1.0  # the alarm ends the process this many seconds after the deadline
_status = 0  # exit status of the process, as far as `noting_status` knows it


def shutdown_starter(
    within_s: float | None = None,
    told: Callable[[], object] = lambda: None,
    last_words: Callable[[], object] = lambda: None,
    late_status: Callable[[int], int] = lambda signum: 0,
    exit_hooks: bool = False,
) -> Callable[[int], None]:
    """Returns a function for a signal handler. Its first call starts the shutdown; later calls have no effect.

    A handler interrupts the main thread, which may hold any lock. So the function takes no lock: it sets an alarm and writes
    to a pipe. A thread that runs already reads the pipe and does everything else.

    If the process still runs at the deadline, the thread ends it. If the interpreter is blocked, SIGALRM kills the process 1 s
    later.

    Args:
        within_s: the deadline, in seconds after the first call; None for no deadline.
        told: called by the thread at the start of the shutdown.
        last_words: called by the thread at the deadline.
        late_status: (number of the signal) -> exit status at the deadline. The status of a failure in the block of
            `noting_status` has priority.
        exit_hooks: False to end the process as soon as the interpreter exits, without other exit hooks and destructors.
    """
    reads, writes = os.pipe()
    signums: list[int] = []

    def start(signum: int) -> None:
        if signums:
            return
        if within_s is not None:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, within_s + ALARM_AFTER_S)
            if not exit_hooks:
                atexit.register(_leave)
        signums.append(signum)
        os.write(writes, b"\0")

    def follow() -> None:
        os.read(reads, 1)
        told()
        if within_s is not None:
            time.sleep(within_s)
            last_words()
            os._exit(_status or late_status(signums[0]))

    threading.Thread(target=follow, name="shutdown", daemon=True).start()
    return start


def _leave() -> None:
    with suppress(AttributeError, OSError, ValueError):  # standard output may be missing or closed
        sys.stdout.flush()
    os._exit(_status)


@contextmanager
def noting_status() -> Iterator[None]:
    """Notes the exit status of an exception that ends the process, for the deadline: an exit hook cannot ask for it."""
    global _status
    try:
        yield
    except SystemExit as error:
        _status = error.code if isinstance(error.code, int) else int(error.code is not None)
        raise
    except BaseException:
        _status = 1
        raise


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # option numbers in glibc's malloc.h
LARGEST_BYTES, KEPT_BYTES = 32 * 2**20, 64 * 2**20


def keep_freed_memory() -> None:
    """Makes glibc keep freed memory for reuse."""
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_MMAP_THRESHOLD, LARGEST_BYTES)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)


def return_freed_memory() -> None:
    """Makes the C library return its freed memory to the system."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
