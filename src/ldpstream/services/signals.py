"""The end of a command at SIGTERM and Ctrl-C."""

import signal
from collections.abc import Callable
from threading import Event

from ldpstream.runtime.process import shutdown_starter


def ends_on_signal(
    within_s: float | None = None,
    told: Callable[[], object] = lambda: None,
    last_words: Callable[[], object] = lambda: None,
    late_status: Callable[[int], int] = lambda signum: 0,
) -> Event:
    """Returns an event that SIGTERM or SIGINT sets. If the process still runs `within_s` seconds later, it is ended.

    Args:
        told: called by the thread that sets the event.
        last_words, late_status: as for `shutdown_starter`.
    """
    stop = Event()

    def tell() -> None:
        stop.set()
        told()

    start = shutdown_starter(within_s, tell, last_words, late_status)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda signum, _: start(signum))
    return stop
