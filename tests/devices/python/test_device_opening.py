"""A device refuses another survey than the application expects: by its pin, by its file, and by its largest loss."""

import math
from pathlib import Path
from typing import Any

import pytest

from ldpstream.device import CostlySurvey, Device, StoreCleared, Wallet, WrongSurvey
from ldpstream.surveys import Survey
from tests.small_survey import small_survey

MEMOIZED = {"name": "memoized", "mechanism": "L-GRR", "eps_inf": 2.0, "eps_1": 1.0}
DEAR = {"name": "dear", "mechanism": "L-GRR", "eps_inf": 30.0, "eps_1": 20.0}
SPACED = {"name": "spaced", "mechanism": "GRR", "eps": 0.5, "every_steps": 2, "lifetime_reports": 9}
ONCE = {"name": "once", "mechanism": "GRR", "eps": 0.5}


def survey(*levels: dict[str, Any], name: str = "study", n: int = 1, **keys: Any) -> Survey:
    questions = ({"name": f"q{i}", "size": 6, "level": list(levels)} for i in range(n))
    return small_survey(*questions, **{"name": name, "window_steps": 4, "lateness_steps": 1, **keys})


@pytest.mark.parametrize(
    ("asked", "levels", "loss"),
    [
        (survey(MEMOIZED), {}, 2.0),
        (survey(MEMOIZED, DEAR), {}, 2.0),
        (survey(MEMOIZED, DEAR), {"q0": "dear"}, 30.0),
        (survey(SPACED), {}, 4.5),
        (survey(SPACED, ends=6), {}, 1.5),
        (survey(ONCE), {}, math.inf),
        (survey(ONCE, ends=10), {}, 5.0),
        (survey(MEMOIZED, n=3), {}, 2.0),
        (survey(MEMOIZED, n=3, collection="spl"), {}, 2.0),
        (survey(ONCE, n=3, ends=10, collection="spl"), {}, 5.0),
        (survey(MEMOIZED, n=3, collection="rs+fd"), {}, 2.0),
    ],
)
def test_a_survey_that_may_cost_more_is_refused(asked: Survey, levels: dict[str, str], loss: float, tmp_path: Path) -> None:
    file, less = tmp_path / "answers", 1e6 if loss == math.inf else loss - 1e-6
    with pytest.raises(CostlySurvey, match=f"study may cost {loss:g} nats .* the maximum is ") as caught:
        Device(asked, file, levels, max_eps=less, consent="simulated")
    assert caught.value.asked == pytest.approx(loss)
    assert caught.value.allowed == less
    wallet = Wallet(tmp_path / "wallet", for_ever=1e9, per_window=1e9, window_s=60)
    with pytest.raises(CostlySurvey):
        Device(asked, wallet, levels, max_eps=less, consent="simulated")
    assert wallet.spent().surveys == ()
    if loss < math.inf:
        Device(asked, file, levels, max_eps=loss, consent="simulated")  # the refusal has enrolled nothing
        with pytest.raises(CostlySurvey):
            Device(asked, file, max_eps=less, consent="simulated")  # the file has the levels
        Device(asked, file, max_eps=loss, consent="simulated")


def test_a_renamed_survey_gets_no_fresh_budget(tmp_path: Path) -> None:
    """The control: with a new file and without a pin, each of the surveys enrolls."""
    asked = survey(MEMOIZED)
    Device(asked, tmp_path / "answers", pin=asked.pin, max_eps=2.0, consent="simulated")
    for renamed in (survey(MEMOIZED, name="study-2"), survey(DEAR, name="study-3")):
        with pytest.raises(WrongSurvey, match="belongs to the survey with the pin"):
            Device(renamed, tmp_path / "answers", consent="simulated")
        with pytest.raises(WrongSurvey, match=f"has the pin {renamed.pin}, expected {asked.pin}"):
            Device(renamed, tmp_path / "other", pin=asked.pin, consent="simulated")
        assert not (tmp_path / "other").exists()
        Device(renamed, tmp_path / renamed.name, consent="simulated")


def twin_of(asked: Survey) -> Survey:
    """A dearer survey with the same fingerprint, as if its author had found two hashes that begin with the same 8 bytes."""
    twin = survey(DEAR)
    vars(twin)["pin"] = asked.pin[:16] + twin.pin[16:]
    assert twin.fingerprint == asked.fingerprint
    return twin


def test_a_twin_with_the_same_fingerprint_is_another_survey(tmp_path: Path) -> None:
    asked, answers, purse = survey(MEMOIZED, ends=9), tmp_path / "answers", tmp_path / "wallet"
    Device(asked, answers, pin=asked.pin, consent="simulated")
    other = (
        Device(asked, Wallet(purse, for_ever=100.0), consent="simulated").report("q0", 3, 10**6) is None
    )  # the survey has ended
    twin, wallet = twin_of(asked), Wallet(purse, for_ever=100.0)
    for refused in (answers, tmp_path / "new"):
        with pytest.raises(WrongSurvey, match=twin.pin):
            Device(twin, refused, pin=asked.pin if refused.name == "new" else None, consent="simulated")
    with pytest.raises(StoreCleared):
        Device(twin, wallet, expect_enrolled=True, consent="simulated")
    assert other
    assert [row.pin for row in wallet.spent().surveys] == [asked.pin]


@pytest.mark.parametrize("pin", ["", "0123456789abcdef", "A" * 64, "0" * 65])
def test_a_pin_is_a_whole_hash(pin: str, tmp_path: Path) -> None:
    """The fingerprint is refused, also if it is that of the survey: it would let a twin pass."""
    for given in (pin, survey(MEMOIZED).fingerprint.hex()):
        with pytest.raises(ValueError, match="pin must have 64 lower-case hexadecimal digits, as `ldpstream check` prints it"):
            Device(survey(MEMOIZED), tmp_path / "answers", pin=given, consent="simulated")
    assert not (tmp_path / "answers").exists()


@pytest.mark.parametrize("max_eps", [-1.0, math.nan, math.inf, True, "2"])
def test_a_maximum_that_is_no_number_of_nats_is_refused(max_eps: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_eps must be a number in"):
        Device(survey(MEMOIZED), tmp_path / "answers", max_eps=max_eps, consent="simulated")
