"""All short lives of a wallet with a wrong clock: two surveys join, report and leave, and each time the clock shows any time.

The wallet charges exactly the reports that its devices keep to be sent. No window of steps and no life exceeds the budget.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ldpstream.device import ClockWentBack, Device, Wallet, WalletFull
from tests.devices.python.clock_rig import Memory
from tests.devices.python.wallet_rig import ONCE, Clock, survey

WINDOW_S, PER_WINDOW, FOR_EVER = 120, 3.0, 5.0
SURVEYS = [survey("minutes", ONCE | {"lifetime_reports": 2}), survey("ends", ONCE, step_seconds=120, ends=2)]
TIMES_S = (0, 130, 700)
CALLS = 4


@dataclass(frozen=True)
class Life:
    """The present devices by survey, and the begin and end of the step of each report, in seconds, by its key."""

    devices: tuple[Device | None, ...] = (None, None)
    reports: tuple[tuple[str, int, int], ...] = ()


class Rig:
    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        self.returning: Callable[[], AbstractContextManager[None]] = Memory(patch).returning
        self.clock = Clock(patch)
        self.wallet = Wallet(path, per_window=PER_WINDOW, window_s=WINDOW_S, for_ever=FOR_EVER)

    def lives(self, calls: int, life: Life = Life()) -> Iterator[Life]:
        """Yields every life with this number of further operations."""
        self.check(life)
        if calls == 0:
            yield life
            return
        for seconds in TIMES_S:
            for which in range(len(SURVEYS)):
                for operation in (self.report, self.leave) if life.devices[which] else (self.join,):
                    with self.returning():
                        self.clock.seconds = seconds
                        yield from self.lives(calls - 1, operation(life, which))

    def join(self, life: Life, which: int) -> Life:
        try:
            device = Device(SURVEYS[which], self.wallet, consent="simulated")
        except WalletFull:
            return life
        return replace(life, devices=tuple(device if i == which else old for i, old in enumerate(life.devices)))

    def leave(self, life: Life, which: int) -> Life:
        self.wallet.leave(SURVEYS[which].pin)
        return replace(life, devices=tuple(None if i == which else old for i, old in enumerate(life.devices)))

    def report(self, life: Life, which: int) -> Life:
        device, seconds = life.devices[which], SURVEYS[which].step_seconds
        assert device is not None
        try:
            device.report("q0", 1)
        except ClockWentBack:
            return life
        known = {key for key, *_ in life.reports}
        fresh = [(w.key, w.step * seconds, (w.step + 1) * seconds) for w in device.waiting() if w.key not in known]
        return replace(life, reports=(*life.reports, *fresh))

    def check(self, life: Life) -> None:
        spent = self.wallet.spent()
        assert spent.spent == len(life.reports)  # every report loses one nat
        assert spent.spent <= spent.charged_for_ever <= FOR_EVER
        for _, _, first in life.reports:  # a worst window begins just before the end of a step
            touched = sum(end >= first and begin < first - 0.5 + WINDOW_S for _, begin, end in life.reports)
            assert touched <= PER_WINDOW


def test_no_life_with_a_wrong_clock_exceeds_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = [len(life.reports) for life in Rig(tmp_path / "wallet", monkeypatch).lives(CALLS)]
    assert len(most) > 3000
    assert max(most) == 2
