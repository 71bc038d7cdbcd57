"""A wallet keeps its accounts and its devices' promises despite crashes.

The crash test opens the copies of `test_device_crashes.crashing` as wallets.
"""

from pathlib import Path
from typing import Any

import pytest

from ldpstream.device import Device, SurveySpent, Wallet, WalletFull

from .test_device import rows
from .test_device_crashes import crashing, folder  # noqa: F401  # a fixture
from .wallet_rig import survey

LIMITS: dict[str, Any] = {"per_window": 1e6, "window_s": 60, "for_ever": 8.5}
SURVEYS = {name: survey(name, {"mechanism": "GRR", "eps": 1.0, "lifetime_reports": 3}) for name in ("a", "b", "c")}
STEP = 10**9  # a step after every enrolment
Emitted = dict[tuple[str, int], bytes | None]


def life(file: Path, emitted: Emitted) -> None:
    """Joins two surveys, leaves one of them, joins the third survey, and is refused by the wallet."""
    wallet = Wallet(file, **LIMITS)
    emitted["a", STEP] = Device(SURVEYS["a"], wallet, consent="simulated").report("q0", 1, STEP)
    device = Device(SURVEYS["b"], wallet, consent="simulated")
    for step in (STEP, STEP + 1):
        emitted["b", step] = device.report("q0", 2, step)
    device.forget(confirm="b")
    Device(SURVEYS["c"], wallet, consent="simulated")
    with pytest.raises(WalletFull):
        Device(SURVEYS["b"], wallet, consent="simulated")


def require_whole(file: Path, emitted: Emitted) -> tuple[SurveySpent, ...]:
    """Checks the accounts in a copy of the file. The enrolled devices return what they had returned before the crash."""
    wallet = Wallet(file, **LIMITS)
    accounts = wallet.spent().surveys
    for row in accounts:
        assert (row.for_ever, row.spent) == (row.reports if row.left else 3.0, row.reports)
        assert row.reports >= sum(name == row.survey for name, _ in emitted)
    assert sum(row.for_ever for row in accounts) <= 8.5
    assert {name for name, _ in emitted} <= {row.survey for row in accounts}
    if not file.exists() or not file.stat().st_size:  # nobody has agreed yet
        return accounts
    enrolled = rows(file, "SELECT number FROM survey WHERE reports IS NULL ORDER BY number")
    assert rows(file, "SELECT survey FROM enrolment ORDER BY survey") == enrolled
    assert {*rows(file, "SELECT survey FROM memo"), *rows(file, "SELECT survey FROM sent")} <= {*enrolled}
    left = {row.survey for row in accounts if row.left}
    for (name, step), envelope in emitted.items():
        if name not in left:
            assert Device(SURVEYS[name], wallet, expect_enrolled=True, consent="simulated").report("q0", 4, step) == envelope
    return accounts


def test_a_crash_before_any_statement_keeps_the_accounts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811  # a fixture
    file, emitted = folder / "wallet", Emitted()
    with crashing(file, monkeypatch, emitted.copy) as known:
        life(file, emitted)
    assert len(known) > 100
    states = {require_whole(folder / str(number), before) for number, before in enumerate(known)}
    states.add(require_whole(file, emitted))
    found = {tuple((row.survey, row.left, row.reports) for row in state) for state in states}
    a, b, c = ("a", False, 1), ("b", True, 2), ("c", False, 0)
    lives = [(), (("a", False, 0),), (a,), *((a, ("b", False, n)) for n in range(3)), (a, b), (a, b, c)]
    assert found == set(lives)
