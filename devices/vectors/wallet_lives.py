"""Test vectors of wallets: joining and leaving surveys, with the charges after every call."""

import math
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

from ldpstream.device import Device, StepForgotten, Wallet, WalletFull
from ldpstream.surveys import Survey

Case = dict[str, Any]
Line = tuple[Any, ...]
HOUR_MS = 3_600_000

# each call: hours since the surveys' start, the call, the survey, and for a report the attribute, the value and the step
WINDOW: list[Line] = [
    (-0.5, "join", "ending"), (0, "report", "ending", "screen", "map", 0), (0.5, "report", "ending", "bits", 3, 0),
    (1.5, "report", "ending", "screen", "home", 1), (1.6, "report", "ending", "bits", 3, 1),
    (1.7, "report", "ending", "bits", 3, 2), (2.5, "join", "refusing"), (2.5, "join", "window"), (2.6, "leave", "ending"),
    (2.7, "report", "refusing", "wide", 7, 1), (2.8, "report", "refusing", "wide", 7, 2),
    (2.8, "report", "refusing", "symbol", 5, 1), (2.9, "report", "refusing", "symbol", 5, 2),
    (2.95, "report", "refusing", "set", 5, 2), (3, "leave", "refusing"), (3.25, "join", "refusing"), (3.75, "join", "refusing"),
    (4, "join", "refusing"), (4.1, "leave", "refusing"), (4.2, "leave", "refusing"), (5, "join", "window"),
    (5, "report", "window", "screen", "map", 5), (6, "report", "window", "page", 9, 6), (7, "report", "window", "page", 9, 7),
    (9.5, "join", "ending"), (9.6, "report", "ending", "screen", "map", 8), (9.7, "report", "ending", "screen", "map", 9),
    (11.25, "join", "refusing"), (11.75, "join", "refusing"), (12, "join", "refusing"), (12, "leave", "ending"),
    (13, "leave", "window"),
]  # fmt: skip
FOR_EVER: list[Line] = [
    (0, "join", "window"), (0, "join", "ending"), (0, "join", "ending"), (1, "report", "ending", "screen", 2, 1),
    (1, "report", "ending", "bits", 8, 1), (2, "report", "ending", "screen", 2, 2), (2, "join", "refusing"),
    (3, "leave", "ending"), (30, "join", "ending"), (31, "leave", "ending"), (31, "leave", "ending"),
]  # fmt: skip
LIVES: list[tuple[dict[str, Any], list[Line]]] = [
    ({"per_window": 20.5, "window_s": 5400, "for_ever": None}, WINDOW),
    ({"per_window": None, "window_s": None, "for_ever": 150.0}, FOR_EVER),
]


class Recorded(Protocol):
    """Predictable bytes, all of which are recorded."""

    drawn: bytes


def wallet_lives(surveys: dict[str, Survey], randoms: Iterable[Recorded]) -> Iterator[Case]:
    """Whole lives of wallets.

    Args:
        surveys: the surveys, by their names. All of them have the same start.
        randoms: the random bytes of each life.
    """
    for (limits, script), random in zip(LIVES, randoms):
        with tempfile.TemporaryDirectory() as folder, patch.object(Device, "_random", random):
            wallet, devices = Wallet(Path(folder) / "wallet", **limits), dict[str, Device]()
            calls = [_call(wallet, devices, surveys[line[2]], *line) for line in script]
        yield {"limits": limits, "random": random.drawn.hex(), "calls": calls}


def _call(wallet: Wallet, devices: dict[str, Device], survey: Survey, hours: float, what: str, name: str, *report: Any) -> Case:
    now_ms = survey.start_ms + round(hours * HOUR_MS)
    called: Case = {"now_ms": now_ms, "call": what, "fingerprint": survey.fingerprint.hex()}
    called |= dict(zip(("attribute", "value", "step"), report))
    with patch("time.time_ns", lambda: now_ms * 1_000_000):
        try:
            if what == "join":
                devices[name] = Device(survey, wallet, consent="simulated")
            elif what == "leave":
                wallet.leave(survey.pin)
            else:
                envelope = devices[name].report(*report)
                called["envelope"] = None if envelope is None else envelope.hex()
            called["error"] = None
        except (WalletFull, StepForgotten, ValueError) as error:
            called["error"] = type(error).__name__
        spent = wallet.spent()
    for_ever = None if math.isinf(spent.charged_for_ever) else spent.charged_for_ever
    return called | {"spent": spent.spent, "charged_per_window": spent.charged_per_window, "charged_for_ever": for_ever}
