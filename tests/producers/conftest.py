"""Fixtures of the gateway's tests: gateways on sockets, and a clock that only the test advances."""

from collections.abc import Iterator
from typing import Any

import pytest

from producers.gateway import intake

from .gateway_rig import Clock, MakeServed, Served


@pytest.fixture
def served() -> Iterator[MakeServed]:
    made: list[Served] = []

    def make(**options: Any) -> Served:
        made.append(Served(**options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replaces the monotonic clock of every intake. The wall clock `now_ms` is an argument of the intake."""
    clock = Clock()
    monkeypatch.setattr(intake, "time", clock)
    return clock
