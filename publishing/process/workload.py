"""Decides whether a process that needs too much time for its estimates leaves out research estimators.

Without them, the process publishes the default, the raw matrix inversion and the filtered curve.
"""

from collections import deque
from collections.abc import Callable
from time import monotonic

from ldpstream.publishing.estimates.thresholds import LOAD_MOST

RECENT = 3  # number of steps whose smallest load counts, so that one slow step (the first compiles code) has no effect
TRY_AGAIN_S = 600.0  # time without research estimators, until they are tried again


class Workload:
    """The load of an estimator process: the time for one step of each survey, divided by the step's duration, summed."""

    def __init__(self, now_s: Callable[[], float] = monotonic) -> None:
        self._now_s, self._reduced_until_s = now_s, now_s()
        self._loads: dict[bytes, deque[float]] = {}  # loads with all estimators, by the survey's fingerprint

    @property
    def research(self) -> bool:
        return self._now_s() >= self._reduced_until_s

    def add(self, survey: bytes, load: float) -> None:
        self._loads.setdefault(survey, deque(maxlen=RECENT)).append(load)
        if sum(map(self.of, self._loads)) > LOAD_MOST:
            self._reduced_until_s = self._now_s() + TRY_AGAIN_S

    def of(self, survey: bytes) -> float:
        loads = self._loads.get(survey, ())
        return min(loads) if len(loads) == RECENT else 0.0

    def drop(self, survey: bytes) -> None:
        self._loads.pop(survey, None)
