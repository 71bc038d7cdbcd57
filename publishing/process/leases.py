"""Keeps the leases of the surveys that an estimator leads while it works on another survey."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from ldpstream.engines.count_store import StoreUnavailable

RENEW_S = 1.2  # time between two renewals; a lease lasts 5 s
MAX_TURN_S = 60.0  # after a turn of this length, other estimators may take the surveys that wait over


class Lease(Protocol):
    """The lease of one survey, as in `RedisResults`."""

    def renew(self) -> None:
        """Renews the lease if this estimator has it; otherwise has no effect."""


class LeaseKeeper:
    """Renews leases in a thread. During its own turn, a survey renews its lease itself."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._turned_s = clock, clock()
        self._kept: list[Lease] = []  # replaced, never changed: the thread reads it
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    @contextmanager
    def turn(self, lease: Lease, leads: Callable[[], bool]) -> Iterator[None]:
        self.drop(lease)
        self._turned_s = self._clock()
        yield
        if leads():
            self._kept = [*self._kept, lease]

    def drop(self, lease: Lease) -> None:
        self._kept = [kept for kept in self._kept if kept is not lease]

    def renew(self) -> None:
        if self._clock() - self._turned_s < MAX_TURN_S:
            for lease in self._kept:
                with suppress(StoreUnavailable):
                    lease.renew()

    def _run(self) -> None:
        while not self._end.wait(RENEW_S):
            self.renew()

    def close(self) -> None:
        """Stops the thread."""
        self._end.set()
