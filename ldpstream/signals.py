"""The end of a command at SIGTERM and Ctrl-C."""

import signal
from threading import Event
from types import FrameType

from ldpstream.runtime.shutdown import TOLD_TO_END, end_within


def ends_on_signal(within_s: float | None = None) -> Event:
    """Returns an event that SIGTERM or SIGINT sets. If the process still runs `within_s` seconds later, it is ended."""
    stop = Event()

    def handle(signum: int, frame: FrameType | None) -> None:
        stop.set()
        if within_s is not None:
            end_within(within_s)

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
    return stop


def log_when_told(stop: Event) -> None:
    import structlog  # only here: it loads slowly

    stop.wait()
    structlog.get_logger("ldpstream.estimator").info(TOLD_TO_END)
