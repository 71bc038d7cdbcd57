"""Random lives of a wallet: surveys join, leave and report in any order, and the clock jumps. No window exceeds the budget."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ldpstream.device import Device, StepForgotten, Wallet, WalletFull, WalletSpent
from ldpstream.producers.device.wallet_file import Accounts

from .wallet_rig import ONCE, TWICE, Clock, survey


@dataclass
class Model:
    """Surveys that join and leave, and the time of every report: the loss of each window follows from the definition."""

    wallet: Wallet
    clock: Clock
    devices: dict[str, Device] = field(default_factory=dict)
    reported: set[tuple[int, int, int, float]] = field(default_factory=set)  # enrolment, begin and end of the step, loss
    enrolment: dict[str, int] = field(default_factory=dict)

    def run(self, operations: list[tuple[str, int, int]]) -> None:
        for number, (operation, which, seconds) in enumerate(operations):
            asked = MODELLED[which]
            if operation == "wait":
                self.clock.seconds = max(0, self.clock.seconds + seconds)
            elif operation == "leave" and asked.name in self.devices:
                self.devices.pop(asked.name).forget(confirm=asked.name)
            elif operation == "join" and asked.name not in self.devices:
                try:
                    self.devices[asked.name] = self.wallet.device(asked)
                except WalletFull:
                    continue
                self.enrolment[asked.name] = number
            elif operation == "report" and asked.name in self.devices:
                step = max(0, (self.clock.seconds + seconds) // asked.step_seconds)
                try:
                    made = self.devices[asked.name].report("q0", 1, step)
                except StepForgotten:
                    continue
                if made is not None:
                    begin = step * asked.step_seconds
                    self.reported.add((self.enrolment[asked.name], begin, begin + asked.step_seconds, 1.0))

    def worst_window(self, window_s: int) -> float:
        """A worst window begins just before the end of a step."""
        losses = [
            sum(loss for _, begin, end, loss in self.reported if end > first - 0.5 and begin < first - 0.5 + window_s)
            for _, _, first, _ in self.reported
        ]
        return max(losses, default=0.0)


MODELLED = [
    survey("minutes", ONCE | {"lifetime_reports": 6}), survey("spaced", ONCE | {"every_steps": 3, "lifetime_reports": 4}),
    survey("hours", TWICE, step_seconds=3600, ends=2), survey("other", ONCE | {"every_steps": 2, "lifetime_reports": 3}),
]  # fmt: skip
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["join", "join", "leave", "report", "report", "report", "wait"]),
        st.integers(0, 3),
        st.integers(-300, 900),
    ),
    max_size=40,
)


def worst(operations: list[tuple[str, int, int]]) -> tuple[float, float, WalletSpent]:
    """Returns the loss of the worst window of 120 s, the loss for ever, and the wallet's numbers."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        wallet = Wallet(Path(folder) / "wallet", per_window=6.0, window_s=120, for_ever=12.0)
        model = Model(wallet, Clock(patch))
        model.run(operations)
        return model.worst_window(120), sum(loss for *_, loss in model.reported), wallet.spent()


JOIN_LEAVE_JOIN = [
    ("join", 0, 0), *[("report", 0, 60 * i) for i in range(3)], ("leave", 0, 0),
    ("join", 0, 0), *[("report", 0, 60 * i) for i in range(3)], ("leave", 0, 0),
    ("join", 2, 0), ("report", 2, 0), ("join", 3, 0), *[("report", 3, 60 * i) for i in range(3)],
]  # fmt: skip


@given(OPERATIONS)
@settings(max_examples=25)
def test_no_life_of_a_wallet_exceeds_its_budget(operations: list[tuple[str, int, int]]) -> None:
    """Surveys join, leave and report in any order, and the clock jumps."""
    per_window, for_ever, spent = worst(operations)
    assert per_window <= 6.0
    assert for_ever == pytest.approx(spent.spent)
    assert spent.spent <= spent.charged_for_ever <= 12.0


def forget_at_once(self: Accounts, number: int) -> None:
    LEAVE(self, number)
    self._db.execute("UPDATE survey SET until_ms = 0 WHERE number = ?", (number,))


def return_everything(self: Accounts, number: int) -> None:
    LEAVE(self, number)
    self._db.execute("DELETE FROM survey WHERE number = ?", (number,))


LEAVE = Accounts.leave


@pytest.mark.parametrize("faulty", [forget_at_once, return_everything])
def test_a_wallet_that_returns_a_charge_exceeds_its_budget(
    faulty: Callable[[Accounts, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the test above."""
    assert worst(JOIN_LEAVE_JOIN)[0] <= 6.0
    monkeypatch.setattr(Accounts, "leave", faulty)
    assert worst(JOIN_LEAVE_JOIN)[0] > 6.0
