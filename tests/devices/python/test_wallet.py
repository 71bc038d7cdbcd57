"""The wallet: surveys are admitted by their claims, and a survey that does not fit changes nothing."""

from pathlib import Path

import pytest

from ldpstream.device import (
    Budget,
    Device,
    DeviceError,
    StepForgotten,
    StoreCleared,
    SurveySpent,
    Wallet,
    WalletFull,
    WalletSpent,
)
from ldpstream.device.files import memo_file

from .test_device import rows
from .wallet_rig import MEMO, ONCE, TWICE, Clock, survey


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "wallet"


def charges(wallet: Wallet) -> tuple[float, float]:
    spent = wallet.spent()
    return spent.charged_per_window, spent.charged_for_ever


# ---- admission


def test_surveys_are_admitted_until_the_budget_is_used(path: Path, clock: Clock) -> None:
    wallet = Wallet(path, for_ever=5.0)
    first = Device(survey("first", TWICE), wallet, consent="simulated")
    Device(survey("second", TWICE, ONCE), wallet, levels={"q0": "a"}, consent="simulated")
    before = wallet.spent()
    with pytest.raises(WalletFull) as caught:
        Device(survey("third", TWICE), wallet, consent="simulated")
    assert str(caught.value) == "third asks 2 nats for ever; the wallet has 1 nat left"
    assert (caught.value.survey, caught.value.window_s, caught.value.asked, caught.value.left) == ("third", None, 2.0, 1.0)
    assert wallet.spent() == before
    assert [row.survey for row in before.surveys] == ["first", "second"]
    assert first.report("q0", 3)
    Device(survey("fourth", ONCE | {"lifetime_reports": 1}), wallet, consent="simulated")
    assert charges(wallet) == (0.0, 5.0)


def test_a_window_holds_the_reports_of_all_steps_that_it_touches(path: Path, clock: Clock) -> None:
    wallet = Wallet(path, per_window=6.0, window_s=120)
    Device(survey("minutes", ONCE), wallet, consent="simulated")  # three steps of a minute
    Device(survey("hours", ONCE, step_seconds=3600), wallet, consent="simulated")  # two steps of an hour
    with pytest.raises(WalletFull) as caught:
        Device(survey("days", ONCE, step_seconds=86_400), wallet, consent="simulated")
    assert str(caught.value) == "days asks 2 nats within 120 s; the wallet has 1 nat left"
    assert caught.value.window_s == 120
    Device(survey("spaced", ONCE | {"every_steps": 3}), wallet, consent="simulated")
    assert charges(wallet) == (6.0, float("inf"))


def test_a_level_without_a_limit_does_not_fit_a_budget_for_ever(path: Path) -> None:
    wallet = Wallet(path, per_window=100.0, window_s=1, for_ever=1000.0)
    for level in (ONCE, MEMO):
        with pytest.raises(WalletFull) as caught:
            Device(survey("endless", level), wallet, consent="simulated")
        assert str(caught.value) == (
            "endless asks inf nats for ever: its level has no lifetime_reports and the survey has no end; the wallet has 1000 "
            "nats left"
        )


def test_a_second_call_for_a_survey_is_the_same_device(path: Path, clock: Clock) -> None:
    asked = survey("study", TWICE, MEMO)
    envelope = Device(asked, Wallet(path, for_ever=3.0), consent="simulated").report("q0", 1)
    again = Device(
        asked, Wallet(path, for_ever=3.0, expect_enrolled=True), {"q0": "a"}, expect_enrolled=True, consent="simulated"
    )
    assert again.report("q0", 2) == envelope
    assert charges(Wallet(path, for_ever=3.0)) == (0.0, 2.0)
    with pytest.raises(DeviceError, match="a second level would need a second privacy budget"):
        Device(asked, Wallet(path, for_ever=3.0), {"q0": "b"}, consent="simulated")


def test_a_device_changes_nothing_of_another_survey(path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo_file, "MAX_JOURNAL", 6)
    monkeypatch.setattr(memo_file, "MAX_DROPPED", 2)
    wallet = Wallet(path, per_window=1e6, window_s=60)
    surveys = [survey(name, MEMO, collection="spl", n_attributes=2) for name in ("before", "first", "after")]
    devices = [Device(asked, wallet, consent="simulated") for asked in surveys]
    first, others = devices[1], devices[::2]
    for device in devices:
        for step in range(4):
            device.answer({"q0": step, "q1": 0}, step)
            assert all(device.leaves(report.key, report.attribute) for report in device.waiting()[-2:])
        device.settle(device.waiting()[0])

    def rest() -> list[object]:
        return [rows(path, f"SELECT * FROM {table} WHERE survey != 2") for table in ("enrolment", "memo", "sent", "journal")]

    def told(device: Device) -> object:
        return device.waiting(), device.journal(), device.spent("q0"), device.spent("q1"), device.report("q0", 4, 2)

    heard, before, spent = [told(device) for device in others], rest(), wallet.spent().surveys[::2]
    for step in range(4, 40):
        first.answer({"q0": 4, "q1": 4}, step)
    for report in first.waiting():
        first.leaves(report.key, report.attribute)
        first.settle(report)
    assert [told(device) for device in others] == heard
    first.withdraw_consent("q1")
    assert rest() == before
    first.forget(confirm="first")
    assert (rest(), wallet.spent().surveys[::2]) == (before, spent)
    assert [told(device) for device in others] == heard


# ---- what the person sees


def test_spent_lists_every_survey_and_the_total(path: Path, clock: Clock) -> None:
    wallet = Wallet(path, per_window=100.0, window_s=60, for_ever=100.0)
    split = survey("split", {"mechanism": "GRR", "eps": 1.0, "lifetime_reports": 4}, collection="spl", n_attributes=2)
    sampled = survey("sampled", TWICE, n_attributes=3)
    fake = survey("fake", TWICE, collection="rs+fd", n_attributes=2)
    devices = [Device(asked, wallet, consent="simulated") for asked in (split, sampled, fake)]
    for step, names in enumerate((("q0", "q1", "q2"), ("q0", "q1"))):
        for device, asked in zip(devices, (split, sampled, fake), strict=True):
            for attribute in asked.attributes:
                if attribute.name in names or asked is sampled:
                    device.report(attribute.name, 1, step)
    assert wallet.spent() == WalletSpent(
        (
            SurveySpent("split", split.pin, False, 4, 2.0, 2.0, 4.0),
            SurveySpent("sampled", sampled.pin, False, 2, 2.0, 2.0, 2.0),
            SurveySpent("fake", fake.pin, False, 4, 2.0, 2.0, 2.0),
        ),
        6.0, 6.0, 8.0, Budget(100.0, 60, 100.0),
    )  # fmt: skip


def test_spent_does_not_depend_on_the_values(tmp_path: Path, clock: Clock) -> None:
    found = []
    for number, values in enumerate(((1, 1, 1, 1), (0, 1, 2, 3), (4, 4, 0, 0))):
        wallet = Wallet(tmp_path / str(number), per_window=1000.0, window_s=60)
        device = Device(survey("study", MEMO), wallet, consent="simulated")
        for step, value in enumerate(values):
            device.report("q0", value, step)
        found.append(wallet.spent())
    assert found[0] == found[1] == found[2]
    assert found[0].spent == pytest.approx(4 * survey("study", MEMO).mechanisms[0][0].claims.eps_per_report)


# ---- leaving


@pytest.mark.parametrize("by_device", [False, True])
def test_leaving_charges_what_was_spent(by_device: bool, path: Path, clock: Clock) -> None:
    wallet, asked = Wallet(path, for_ever=5.0), survey("study", ONCE | {"lifetime_reports": 4})
    device = Device(asked, wallet, consent="simulated")
    device.report("q0", 1, 0)
    device.forget(confirm="study") if by_device else wallet.leave(asked.pin)
    [row] = wallet.spent().surveys
    assert row == SurveySpent("study", asked.pin, True, 1, 1.0, 0.0, 1.0)
    assert not any(rows(path, f"SELECT * FROM {table}") for table in ("enrolment", "memo", "sent", "journal"))
    for use in (lambda: device.report("q0", 1, 1), device.waiting, lambda: device.spent("q0")):
        with pytest.raises(StoreCleared):
            use()
    assert Device(asked, wallet, consent="simulated").report("q0", 1, 1)
    assert charges(wallet) == (0.0, 5.0)
    with pytest.raises(WalletFull):
        Device(survey("other", TWICE), wallet, consent="simulated")


def test_a_survey_left_without_a_report_costs_nothing(path: Path) -> None:
    wallet, asked = Wallet(path, for_ever=2.0), survey("study", TWICE)
    for _ in range(3):
        Device(asked, wallet, consent="simulated")
        wallet.leave(asked.pin)
    assert wallet.spent().surveys == ()
    for unknown in (asked.pin, "", "zz"):
        with pytest.raises(ValueError, match="pin must be that of a survey in which the device is enrolled"):
            wallet.leave(unknown)


def test_a_window_is_charged_until_no_window_touches_the_reports(path: Path, clock: Clock) -> None:
    wallet = Wallet(path, per_window=3.0, window_s=120)
    old, new = survey("old", ONCE), survey("new", ONCE)
    device = Device(old, wallet, consent="simulated")
    for step in range(8):
        device.report("q0", 1, step)
    wallet.leave(old.pin)
    for clock.seconds in (480, 599):  # the last report is of the minute that ends at 480 s
        assert wallet.spent().charged_per_window == 3.0
        with pytest.raises(WalletFull):
            Device(new, wallet, consent="simulated")
    clock.seconds = 600
    assert wallet.spent().charged_per_window == 0.0
    assert Device(new, wallet, consent="simulated").report("q0", 1)
    assert wallet.spent().charged_per_window == 3.0


def test_a_survey_with_an_end_has_a_bound_for_ever_and_frees_the_window(path: Path, clock: Clock) -> None:
    wallet = Wallet(path, per_window=3.0, window_s=120, for_ever=100.0)
    asked = survey("ending", ONCE, ends=10)
    device = Device(asked, wallet, consent="simulated")
    assert charges(wallet) == (3.0, 10.0)
    assert [device.report("q0", 1, step) is not None for step in (9, 10)] == [True, False]
    clock.seconds = 719
    with pytest.raises(WalletFull):
        Device(survey("next", ONCE, ends=20), wallet, consent="simulated")
    clock.seconds = 720
    Device(survey("next", ONCE, ends=20), wallet, consent="simulated")
    assert charges(wallet) == (3.0, 30.0)
    wallet.leave(asked.pin)
    assert charges(wallet) == (3.0, 21.0)


def test_a_device_reports_no_step_before_its_enrolment(path: Path, clock: Clock) -> None:
    clock.seconds = 330
    device = Device(survey("study", ONCE), Wallet(path, per_window=2.0, window_s=60), consent="simulated")
    with pytest.raises(StepForgotten) as caught:
        device.report("q0", 1, 4)
    assert caught.value.earliest == 5
    assert device.report("q0", 1)
