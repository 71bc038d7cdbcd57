"""The device's guarantees: one memo for each key, one report for each step, and no value in any output."""

import logging
import os
import re
import sqlite3
import traceback
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ldpstream.device import Device, DeviceError, Spent, StoreCleared
from ldpstream.device.secure_random import SecureRandom
from ldpstream.gateway.http.bodies import KEY
from ldpstream.mechanisms import Longitudinal
from ldpstream.surveys import Survey, open_envelope
from tests.small_survey import small_survey

LONG = {"mechanism": "L-GRR", "eps_inf": 2.0, "eps_1": 1.0}
ONCE = {"mechanism": "OLH", "eps": 1.0}
HASHED = {"mechanism": "L-OLH", "eps_inf": 2.0, "eps_1": 1.0}
SUBSET = {"mechanism": "SS", "eps": 1.0}
WAVE = {"mechanism": "SW", "eps": 1.0, "every_steps": 1, "lifetime_reports": 9}
BITS = {"mechanism": "L-OSUE", "eps_inf": 2.0, "eps_1": 1.0}


def survey(
    *attributes: tuple[dict[str, Any], ...], collection: str = "spl", lateness_steps: int = 1, k: int = 5, window_steps: int = 1
) -> Survey:
    """Returns a survey of attributes q0, q1, … with k values each and with levels a, b, … of these parameters."""
    asked = [
        {"name": f"q{i}", "size": k, "level": [{"name": "abcd"[j], **level} for j, level in enumerate(levels)]}
        for i, levels in enumerate(attributes)
    ]
    return small_survey(*asked, name="study", window_steps=window_steps, lateness_steps=lateness_steps, collection=collection)


def rows(path: Path, sql: str) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def payload(asked: Survey, raw: bytes, step: int) -> bytes:
    envelope = open_envelope(asked, raw, asked.opens_ms(step))
    assert (envelope.step, envelope.n) == (step, 1)
    m = asked.mechanisms[envelope.attribute][envelope.level]
    assert m.tabulate(np.frombuffer(envelope.payload, m.report_dtype.base).reshape(-1, *m.report_dtype.shape)).n == 1
    return envelope.payload


# ---- one report a step


@pytest.mark.parametrize("level", [LONG, HASHED, BITS, ONCE, SUBSET, WAVE], ids=lambda x: x["mechanism"])
def test_a_step_has_one_report_even_after_a_restart(level: dict[str, Any], tmp_path: Path) -> None:
    asked = survey((level,), k=40)
    device = Device(asked, tmp_path / "study.device", consent="simulated")
    sent = {}
    for step in (0, 1, 7):
        raw = device.report("q0", 3, step)
        assert raw is not None
        payload(asked, raw, step)
        sent[step] = raw
    assert len(set(sent.values())) == 3
    for again in (device, Device(asked, tmp_path / "study.device", consent="simulated")):
        assert {step: again.report("q0", 3, step) for step in sent} == sent
        assert again.report("q0", 4, 7) == sent[7]  # another value for the same step: the first value decides
        assert again.spent("q0").reports == 3


# ---- one report in w steps

SPACED = {"mechanism": "GRR", "eps": 1.0, "every_steps": 4, "lifetime_reports": 3}


def test_a_device_reports_at_the_steps_of_its_phase_until_its_limit(tmp_path: Path) -> None:
    asked = survey((SPACED,), window_steps=4)
    device = Device(asked, tmp_path / "study.device", consent="simulated")
    made = [step for step in range(40) if device.report("q0", 1, step) is not None]
    assert made == [made[0] + 4 * i for i in range(3)]
    assert made[0] < 4
    assert device.spent("q0") == Spent(3, 3.0, 3.0)
    assert device.report("q0", 2, made[-1]) is not None  # the stored envelope, at no further cost
    assert device.report("q0", 2, made[-1] + 4) is None
    assert device.spent("q0").reports == 3


def test_a_device_says_why_it_makes_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each report, `silence` agrees with `report`, and has the same reason for any value."""
    asked = small_survey(
        *({"name": f"q{i}", "size": 5, "level": [{"name": "a"} | level]} for i, level in enumerate((SPACED, ONCE))), ends=16,
        window_steps=4,
    )  # fmt: skip
    seen = Counter[str | None]()
    for i in range(40):
        device, made = Device(asked, tmp_path / f"{i}.device", consent="simulated"), [-1, -1]
        for step in range(18):
            for a, name in enumerate(("q0", "q1")):
                why = device.silence(name, step)
                seen[why] += 1
                assert (device.report(name, step % 5, step) is None) == (why is not None)
                if why is None:
                    assert device.silence(name, step) is None  # the stored envelope
                    made[a] = step
                phase = made[0] % 4 if made[0] >= 0 else None
                match why:
                    case "survey ended":
                        assert step >= 16
                    case "other attribute":
                        assert made[a] == -1
                    case "other phase":
                        assert a == 0
                        assert phase is None or step % 4 != phase
                    case "lifetime reports made":
                        assert device.spent(name).reports == 3
                        assert step % 4 == phase
    assert set(seen) == {
        None,
        "other attribute",
        "other phase",
        "lifetime reports made",
        "survey ended",
    }  # false alarm: 2 ** -39
    monkeypatch.setattr("time.time_ns", lambda: 0)  # a clock at 1970
    whys = {Device(asked, tmp_path / f"{i}.device", consent="simulated").silence("q1") for i in range(40)}
    assert whys == {"other attribute", "survey not begun"}
    assert device.answer({"q0": 1, "q1": 1}) == {}
    assert {shown.silence for shown in device.preview({"q0": 1, "q1": 1})} == {"other attribute", "survey not begun"}
    for wrong in (("q2", 0), ("q0", -1)):
        with pytest.raises(ValueError, match="must be"):
            device.silence(*wrong)


def test_the_phase_is_one_uniform_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for phase in range(4):
        only_draw(monkeypatch, 4, phase)
        Device(survey((SPACED,), window_steps=4), tmp_path / str(phase), consent="simulated")
        assert rows(tmp_path / str(phase), "SELECT phase FROM enrolment") == [(phase,)]


def only_draw(patch: pytest.MonkeyPatch, below: int, drawn: int) -> None:
    """The device may draw one uniform integer below this number. Any other draw, or a second draw, is a KeyError."""
    left = {below: drawn}
    patch.setattr(SecureRandom, "below", lambda self, n: left.pop(n) if n > 1 else 0)


# ---- memos


@pytest.mark.parametrize("level", [LONG, HASHED, BITS], ids=lambda x: x["mechanism"])
def test_a_key_has_one_memo_that_never_changes(level: dict[str, Any], tmp_path: Path) -> None:
    asked = survey((level,), k=40)
    m = asked.mechanisms[0][0]
    assert isinstance(m, Longitudinal)
    seen: dict[int, bytes] = {}
    values = [value for step in range(3) for value in range(12)]
    for step, value in enumerate(values):
        Device(asked, tmp_path / "file", consent="simulated").report("q0", value, step)
        memos = dict(rows(tmp_path / "file", "SELECT key, memo FROM memo"))
        assert memos.items() >= seen.items()
        seen = memos
    function = rows(tmp_path / "file", "SELECT function FROM enrolment")[0][0]
    keys = m.memo_keys(np.array(values), np.full(len(values), function))
    assert seen.keys() == set(keys)
    assert (Device(asked, tmp_path / "file", consent="simulated").spent("q0").eps_t is None) == (len(seen) > 1)
    assert dict(rows(tmp_path / "file", "SELECT key, reports FROM memo")) == Counter(keys)
    if level is HASHED:
        assert len(seen) <= m.max_memos
        assert {int.from_bytes(memo[: m.report_dtype["function"].itemsize], "little") for memo in seen.values()} == {function}


def test_spent_counts_reports_and_memos(tmp_path: Path) -> None:
    asked = survey((LONG,), (ONCE,), (BITS,), k=6)
    device = Device(asked, tmp_path / "study.device", consent="simulated")
    grr, olh = asked.mechanisms[0][0], asked.mechanisms[1][0]
    for step, value in enumerate([0, 0, 0, 5, 5, 0]):
        for _ in range(2):  # a resend adds no loss
            device.report("q0", value, step)
            device.report("q1", value, step)
        t, unchanged = step + 1, value == 0 and step < 3
        assert device.spent("q0") == Spent(t, grr.eps_t(t) if unchanged else None, grr.eps_sequence(t).value)
        assert device.spent("q1") == Spent(t, t * olh.eps_1, t * olh.eps_1)
    assert device.spent("q2") == Spent(0, 0.0, 0.0)


# ---- enrolment


def test_a_level_is_chosen_once(tmp_path: Path) -> None:
    asked = survey((LONG, HASHED), (LONG, BITS))
    device = Device(asked, tmp_path / "study.device", levels={"q1": "b"}, consent="simulated")
    raw = device.report("q1", 0, 0)
    assert raw is not None
    assert open_envelope(asked, raw, asked.opens_ms(0)).level == 1
    for same in ({}, {"q1": "b"}, {"q0": "a"}):
        assert Device(asked, tmp_path / "study.device", levels=same, consent="simulated").report("q1", 0, 0) == raw
    for other in ({"q1": "a"}, {"q0": "b"}):
        with pytest.raises(DeviceError, match=r"permanently [ab], got [ab]; a second level would need a second privacy budget"):
            Device(asked, tmp_path / "study.device", levels=other, consent="simulated")
    for wrong in ({"q2": "a"}, {"q0": "c"}):
        with pytest.raises(ValueError, match="must be one of"):
            Device(asked, tmp_path / "new", levels=wrong, consent="simulated")
    assert not (tmp_path / "new").exists()


def test_a_device_samples_its_attribute_uniformly_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = survey((LONG,), (LONG,), (LONG,), collection="smp")
    for a in range(3):
        with monkeypatch.context() as patch:
            only_draw(patch, 3, a)
            device = Device(asked, tmp_path / str(a), consent="simulated")
        again = Device(asked, tmp_path / str(a), consent="simulated")
        for step, same in enumerate((device, again)):
            assert [other for other in range(3) if same.report(f"q{other}", 1, step) is not None] == [a]
        assert device.spent(f"q{(a + 1) % 3}").reports == 0


# ---- no value in any output


def test_a_value_is_never_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    caplog.set_level(logging.DEBUG)
    named = {"name": "city", "values": ["Ulm", "Bonn"], "level": [{"name": "a", **LONG}]}
    binned = {"name": "age", "bins": [0, 20, 90], "outside": "refuse", "level": [{"name": "a", **LONG}]}
    sized = {"name": "zone", "size": 7, "outside": "refuse", "level": [{"name": "a", **LONG}]}
    asked = small_survey(named, binned, sized, window_steps=1, lateness_steps=1, collection="spl")
    device = Device(asked, tmp_path / "file", consent="simulated")
    secrets: list[Any] = ["SECRET", 4711, -4711, 4711.5, "4711", "4711.5", 10**4711, "9" * 4711, float("nan"), True, None]
    secrets += [["SECRET"], {"SECRET"}, b"SECRET", np.int64(4711), np.array([4711]), 4711 + 1j]
    for attribute in ("city", "age", "zone"):
        for value in secrets:
            with pytest.raises(ValueError, match=f"^not a value of the attribute {attribute} ") as caught:
                device.report(attribute, value, 0)
            shown = "".join(traceback.format_exception(caught.value))
            assert not any(word in shown for word in ("SECRET", "4711", "9" * 50))
    hidden = "Bonn"
    assert device.report("zone", 3, 0) == device.report("zone", "3", 0)
    numpys: Any = np.int64(3)  # registered as an integer
    assert device.report("zone", numpys, 0)
    assert device.report("city", "Bonn", 0) == device.report("city", 1, 0)
    assert device.report("age", 25, 0)
    keys = rows(tmp_path / "file", "SELECT attribute, key FROM memo ORDER BY attribute")
    assert keys == [(0, 1), (1, 1), (2, 3)]
    (tmp_path / "file").write_bytes(b"no database" * 100)
    with pytest.raises(DeviceError, match="not a database") as broken:
        device.report("city", hidden, 1)
    assert hidden not in "".join(traceback.format_exception(broken.value))
    assert repr(device) == str(device) == "<Device>"
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    device = Device(survey((LONG,)), tmp_path / "study.device", consent="simulated")
    for step in list[Any]([-1, 0.5, True, 2**63]):
        with pytest.raises(ValueError, match="step must be an integer"):
            device.report("q0", 1, step)
    for ask in (lambda: device.report("other", 1, 0), lambda: device.spent("other")):
        with pytest.raises(ValueError, match="attribute must be one of q0, got 'other'"):
            ask()
    with pytest.raises(DeviceError, match="cannot be created: No such file"):
        Device(survey((LONG,)), tmp_path / "missing" / "file", consent="simulated")


# ---- the file


def test_the_file_is_private_and_synced(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        Device(survey((LONG,)), tmp_path / "study.device", consent="simulated")
        file = tmp_path / "study.device"
        device = Device(survey((LONG,)), file, consent="simulated")
        with device._transaction() as memory:
            memory.memo(0, 0, lambda: b"\0")
            assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
                "study.device": 0o600,
                "study.device-journal": 0o600,
            }
            pragmas = {
                p: memory._db.execute(f"PRAGMA {p}").fetchone()[0] for p in ("synchronous", "journal_mode", "secure_delete")
            }
        assert pragmas == {"synchronous": 3, "journal_mode": "delete", "secure_delete": 1}
        file.chmod(0o644)
        Device(survey((LONG,)), tmp_path / "study.device", consent="simulated")
        assert file.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(previous)


def test_an_unusable_file_is_never_replaced(tmp_path: Path) -> None:
    asked, file = survey((BITS,), k=40), tmp_path / "file"
    device = Device(asked, file, consent="simulated")
    device.report("q0", 1, 0)
    kept = file.read_bytes()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE memo SET memo = x'00ff'")
    with pytest.raises(DeviceError, match="the memo of q0 is damaged"):
        device.report("q0", 1, 1)
    file.write_bytes(kept[: len(kept) // 2])  # torn
    for use in (lambda: device.report("q0", 1, 1), lambda: Device(asked, file, consent="simulated")):
        with pytest.raises(DeviceError, match="malformed"):
            use()
    file.unlink()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("PRAGMA user_version = 9")
    with pytest.raises(DeviceError, match="format 9"):
        Device(asked, file, consent="simulated")


def test_a_report_keeps_one_key_until_it_is_settled(tmp_path: Path) -> None:
    asked, file = survey((LONG,), (BITS,), k=40), tmp_path / "file"
    device = Device(asked, file, consent="simulated")
    made = {("q0", 3): device.report("q0", 1, 3), ("q1", 2): device.report("q1", 1, 2), ("q1", 3): device.report("q1", 1, 3)}
    waiting = device.waiting()
    assert [(report.attribute, report.step) for report in waiting] == [("q1", 2), ("q0", 3), ("q1", 3)]
    assert {(report.attribute, report.step): report.envelope for report in waiting} == made
    assert len({report.key for report in waiting}) == 3
    assert all(re.fullmatch(KEY, report.key) for report in waiting)
    assert device.report("q0", 2, 3) == made["q0", 3]  # a repeated call changes no key
    assert Device(asked, file, consent="simulated").waiting() == waiting
    for _ in range(2):
        device.settle(waiting[0])
    assert device.report("q1", 1, 2) == made["q1", 2]  # settled
    assert Device(asked, file, consent="simulated").waiting() == waiting[1:]
    for step in range(4, 9):
        device.report("q0", 1, step)
        device.settle(device.waiting()[-1])
    assert [report.step for report in device.waiting()] == [3]  # the report of q1; the report of q0 is too late
    assert repr(waiting[0]).startswith("<")  # `repr` shows no contents


def test_forget_needs_confirmation_and_erases_everything(tmp_path: Path) -> None:
    asked, file = survey((BITS,), k=256), tmp_path / "file"
    device, other = Device(asked, file, consent="simulated"), Device(asked, file, consent="simulated")
    raw = device.report("q0", 200, 0)
    [(memo,)] = rows(file, "SELECT memo FROM memo")
    assert raw is not None
    assert memo in file.read_bytes()
    with pytest.raises(ValueError, match="confirm must be the survey's name, study"):
        device.forget(confirm="yes")
    assert device.report("q0", 200, 0) == raw
    device.forget(confirm="study")
    assert memo not in file.read_bytes()
    assert payload(asked, raw, 0) not in file.read_bytes()
    for forgotten in (device, other):
        with pytest.raises(StoreCleared, match="the enrolment was erased; make a new Device to enroll again"):
            forgotten.report("q0", 200, 0)
    assert Device(asked, file, consent="simulated").report("q0", 200, 0) != raw


def test_fake_data_hides_the_attribute_answered_truthfully(tmp_path: Path) -> None:
    """With GRR at ε = 700 a report equals its input.

    One attribute follows the true values; the other attributes never change.
    """
    sure = {"mechanism": "GRR", "eps": 700.0}
    asked = survey((sure,), (sure,), (sure,), collection="rs+fd", k=50)
    truly = Counter[str]()
    for person in range(12):
        device = Device(asked, tmp_path / f"{person}.device", consent="simulated")
        told: dict[str, list[int]] = {name: [] for name in ("q0", "q1", "q2")}
        for step, value in enumerate([3, 17, 44]):
            again = Device(asked, tmp_path / f"{person}.device", consent="simulated")
            for name, answers in told.items():
                raw = (device if step % 2 else again).report(name, value, step)
                assert raw is not None
                answers.append(payload(asked, raw, step)[0])
        followed = [name for name, answers in told.items() if answers == [3, 17, 44]]
        constant = [name for name, answers in told.items() if len(set(answers)) == 1]
        assert len(followed) == 1
        assert len(constant) == 2
        truly[followed[0]] += 1
    assert len(truly) > 1  # false alarm: all 12 draws are equal with probability 3^-11
