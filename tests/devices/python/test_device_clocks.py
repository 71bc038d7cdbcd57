"""All short histories of a wrong clock, and some long ones. Whatever the clock shows:

1. a report is charged exactly if it is kept to be sent, and then it gets an answer of the gateway;
2. no step has two reports, and reports of a spaced level are `every_steps` apart; the lifetime is never exceeded;
3. when the clock is right again, the device reports at the next true step that it has not reported.
"""

from typing import Any

import pytest

from ldpstream.device import reports
from ldpstream.device.files import memo_file
from tests.devices.python.clock_rig import Rig, Seen, survey

ONCE = {"mechanism": "GRR", "eps": 1.0}
MEMO = {"mechanism": "L-GRR", "eps_inf": 2.0, "eps_1": 1.0}
LEVELS: list[tuple[dict[str, Any], int | None]] = [
    (MEMO, None), (ONCE | {"lifetime_reports": 3}, None), (ONCE | {"every_steps": 2}, None),
    (ONCE | {"every_steps": 3, "lifetime_reports": 2}, None), (ONCE, 7),
]  # fmt: skip
CALLS = 4
KEPT = 1 + 2 + reports.AHEAD_REPORTS  # envelopes without an answer, if `lateness_steps` is 1
CLOCKS = (0, 1, 3, 9)
ONLINE = [(True,) * CALLS, (False, False, True, False)]


def recovers(rig: Rig, seen: Seen, true: int) -> Seen:
    """The clock is right from the true step on, and the device is online. Returns what happened until all steps are over."""
    for step in range(true, 13):
        before = seen
        seen = rig.call(seen, step, step, online=True)
        finished = rig.level.lifetime_reports is not None and len(before.made) >= rig.level.lifetime_reports
        if step % rig.level.every_steps == rig.phase and not rig.asked.ended(step) and not finished:
            assert step in seen.made, (step, before)
            assert step in seen.counted or step in before.made
    return seen


@pytest.mark.parametrize("lateness", [0, 2])
@pytest.mark.parametrize(("level", "ends"), LEVELS, ids=["memo", "lifetime", "spaced", "spaced lifetime", "ends"])
def test_the_laws_hold_in_every_history_of_the_clock(
    level: dict[str, Any], ends: int | None, lateness: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, lives = Rig(survey(level, lateness, ends), monkeypatch), 0
    for online in ONLINE:
        for seen in rig.histories(CLOCKS, CALLS, online):
            with rig.store.returning():
                seen = recovers(rig, seen, CALLS)
            assert seen.ended == set(seen.made.values())  # no charged report is lost
            lives += 1
    assert lives == len(ONLINE) * len(CLOCKS) ** CALLS


@pytest.mark.parametrize("n_dropped", [1, 10_000])
@pytest.mark.parametrize(("level", "ends"), LEVELS[:3], ids=["memo", "lifetime", "spaced"])
def test_a_device_that_must_drop_envelopes_keeps_the_other_laws(
    level: dict[str, Any], ends: int | None, n_dropped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device keeps two envelopes and is offline, so it drops others. It recovers while it remembers the dropped steps."""
    monkeypatch.setattr(reports, "AHEAD_REPORTS", 0)
    monkeypatch.setattr(memo_file, "MAX_DROPPED", n_dropped)
    rig, dropped = Rig(survey(level, 0, ends), monkeypatch), 0
    for seen in rig.histories(CLOCKS, CALLS, (False,) * CALLS):
        with rig.store.returning():
            if n_dropped > CALLS:
                seen = recovers(rig, seen, CALLS)
            dropped += len(seen.made) - len(seen.ended)
    assert dropped > 0


def test_a_device_recovers_from_a_clock_that_was_far_ahead_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock shows 10⁹ steps too many during 40 reports. The device is online all the time."""
    rig, seen, ahead = Rig(survey(MEMO, 1), monkeypatch), Seen(), 10**9
    for true in range(5):
        seen = rig.call(seen, true, true, online=True)
    for true in range(5, 45):
        seen = rig.call(seen, ahead + true, true, online=True)
    for true in range(45, 60):
        seen = rig.call(seen, true, true, online=True)
        assert true in seen.counted
    assert [report.step for report in rig.device.waiting()] == [ahead + true for true in range(45 - KEPT, 44)]
    late = rig.call(seen, ahead + 44, ahead + 44, online=True)
    assert late.counted - seen.counted == {ahead + 43}  # a report of a future step counts when the step has come


def test_a_device_that_was_offline_drops_the_oldest_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, seen = Rig(survey(ONCE, 1), monkeypatch), Seen()
    for true in range(60):
        seen = rig.call(seen, true, true, online=False)
    assert [report.step for report in rig.device.waiting()] == list(range(60 - KEPT, 60))
    seen = rig.call(seen, 60, 60, online=True)
    assert seen.counted == {59, 60}
