"""Decides whether a process that needs too much time for its estimates leaves out research estimators.

Without them, the process publishes the default, the raw matrix inversion and the filtered curve.
"""

from collections import deque
from collections.abc import Callable
from threading import Lock
from time import monotonic

from ldpstream.publishing.thresholds import LOAD_MOST

RECENT = 3  # number of steps whose smallest load counts, so that one slow step (the first compiles code) has no effect
TRY_AGAIN_S = 600.0  # time without research estimators, until they are tried again


class Workload:
    """The load of an estimator process: the time for one step of each survey, divided by the step's duration, summed.

    While n surveys are estimated at once, each gets 1/n of the time. So the load is the share of the process's time that the
    estimates take. The methods may be called by several threads.
    """

    def __init__(self, now_s: Callable[[], float] = monotonic) -> None:
        self._now_s, self._reduced_until_s = now_s, now_s()
        self._loads: dict[bytes, deque[float]] = {}  # loads with all estimators, by the survey's fingerprint
        self._lock = Lock()
        self._running, self._shared_s, self._looked_s = 0, 0.0, now_s()  # surveys estimated now; sum of their shares so far

    def start(self) -> float:
        """Starts the estimates of a survey. Returns the argument for `stop`."""
        with self._lock:
            self._look()
            self._running += 1
            return self._shared_s

    def stop(self, started: float) -> float:
        """Returns the survey's share of the time since its `start`, in seconds."""
        with self._lock:
            self._look()
            self._running -= 1
            return self._shared_s - started

    def _look(self) -> None:
        now_s = self._now_s()
        self._shared_s += (now_s - self._looked_s) / max(1, self._running)
        self._looked_s = now_s

    @property
    def research(self) -> bool:
        return self._now_s() >= self._reduced_until_s

    def add(self, survey: bytes, load: float) -> None:
        with self._lock:
            self._loads.setdefault(survey, deque(maxlen=RECENT)).append(load)
            if sum(map(self.of, self._loads)) > LOAD_MOST:
                self._reduced_until_s = self._now_s() + TRY_AGAIN_S

    def of(self, survey: bytes) -> float:
        loads = self._loads.get(survey, ())
        return min(loads) if len(loads) == RECENT else 0.0

    def drop(self, survey: bytes) -> None:
        with self._lock:
            self._loads.pop(survey, None)
