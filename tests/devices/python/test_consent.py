"""Consent: without it nothing is drawn, stored or sent, and a withdrawal leaves nothing but itself.

Random sequences of operations of two devices on one file are compared with a model. Faulty devices are the control.
"""

import os
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ldpstream.device import (
    LOCAL,
    Device,
    DeviceError,
    Sender,
    Spent,
    StepForgotten,
    StoreCleared,
    StoreFull,
    Wallet,
    WalletFull,
    WrongSurvey,
)
from ldpstream.device.consent import consent as module
from ldpstream.device.consent.consent import ConsentMode, Consents
from ldpstream.device.files import memo_file
from ldpstream.device.files.memo_file import Transaction
from ldpstream.device.reports import Waiting
from ldpstream.device.routes import Answer
from ldpstream.device.secure_random import SecureRandom
from ldpstream.runtime.clock import now_ms
from tests.gateway.gateway_rig import Served
from tests.producers.samples import level
from tests.small_survey import small_survey, small_text

A, B = "mode", "zone"
QUESTIONS = (
    {"name": A, "values": ["car", "bus", "bicycle"], "level": [level("L-GRR")]},
    {"name": B, "size": 5, "level": [level("GRR")]},
)
HEAD: dict[str, Any] = {"name": "sample", "collection": "spl", "lateness_steps": 60, "ends": 60, "purpose": "Plan bus lines."}
SURVEY = small_survey(*QUESTIONS, **HEAD)
VALUES: dict[str, Any] = {A: "bus", B: 3}


@pytest.fixture(autouse=True)
def no_switch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in module.SWITCHES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "SWITCH_FILE", tmp_path / "off")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "answers"


class Gateway:
    """Accepts each report. `during` is called while a report is on its way."""

    def __init__(self, during: Callable[[], None] = lambda: None) -> None:
        self.got, self._during = list[bytes](), during

    def post(self, report: Waiting) -> Answer:
        self._during()
        self.got.append(report.envelope)
        return Answer(202)


def sender(device: Device, gateway: Gateway) -> Sender:
    made = Sender(device, LOCAL)
    made._way, made._local = gateway, False  # type: ignore[assignment]
    return made


# ---- consent × operation


class Counted(SecureRandom):
    drawn = 0

    def bytes(self, n: int) -> bytes:
        Counted.drawn += n
        return super().bytes(n)


def give(device: Device, off: Path) -> None:
    device.give_consent()
    device.answer(VALUES, 1)


def withdraw(device: Device, off: Path) -> None:
    give(device, off)
    device.withdraw_consent()


def switch_off(device: Device, off: Path) -> None:
    give(device, off)
    off.touch()


STATES: dict[str, Callable[[Device, Path], None]] = {
    "unknown": lambda device, off: None,
    "refused": lambda device, off: device.withdraw_consent(),
    "withdrawn": withdraw,
    "switched off": switch_off,
    "off from the start": lambda device, off: off.touch(),
}
SILENT: dict[str, Callable[[Device], Any]] = {
    "answer": lambda device: device.answer(VALUES, 2) == {},
    "report": lambda device: device.report(A, "bus", 2) is None,
    "waiting": lambda device: device.waiting() == [],
    "settle": lambda device: [device.settle(Waiting(A, 1, b"", "key"))] == [None],  # type: ignore[func-returns-value]
    "attempt": lambda device: sender(device, Gateway()).attempt()[:3] == (0, 0, 0),
    "preview": lambda device: [shown.silence for shown in device.preview(VALUES, 2)] == [device.silence(A, 2)] * 2,
    "spent": lambda device: device.spent(A).reports <= 1,
    "question": lambda device: "Plan bus lines." in device.question(),
    "to_ask": lambda device: (
        device.to_ask() == ([A, B] if device.consent() == "unknown" and device.silence(A) != "switched off" else [])
    ),
    "journal": lambda device: device.journal() == [],
    "another device": lambda device: Device(SURVEY, device._file.path).waiting() == [],
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("operation", SILENT)
def test_without_consent_nothing_is_drawn_kept_or_sent(
    state: str, operation: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Device, "_random", Counted())
    device = Device(SURVEY, file)
    STATES[state](device, tmp_path / "off")
    before, drawn = file.read_bytes() if file.exists() else None, Counted.drawn
    assert SILENT[operation](device)
    assert (file.read_bytes() if file.exists() else None) == before
    assert (before is None) == (state in ("unknown", "off from the start"))
    assert Counted.drawn == drawn or operation == "preview"


def test_given_consent_is_kept_and_a_withdrawal_keeps_nothing_else(file: Path) -> None:
    device, other = Device(SURVEY, file), Device(SURVEY, file)
    assert device.silence(A) == "consent unknown"
    device.give_consent()
    assert other.consent() == "given"
    assert set(other.answer(VALUES, 1)) == {A, B}
    assert len(Device(SURVEY, file).waiting()) == 2
    device.withdraw_consent()
    assert (other.consent(), other.silence(A), other.waiting()) == ("withdrawn", "consent withdrawn", [])
    with closing(sqlite3.connect(file)) as connection:
        for table in ("budget", "survey", "enrolment", "memo", "sent", "journal"):
            assert not connection.execute(f"SELECT * FROM {table}").fetchall()
        kept = f'{{"{A}":{{"state":"withdrawn"}},"{B}":{{"state":"withdrawn"}}}}'
        assert connection.execute("SELECT * FROM consent").fetchall() == [(SURVEY.pin, kept)]
    with pytest.raises(WrongSurvey):
        Device(replace(SURVEY, name="other"), file)
    Device(SURVEY, file, expect_enrolled=True)  # the withdrawal is known
    file.write_bytes(b"")
    with pytest.raises(StoreCleared):
        Device(SURVEY, file, expect_enrolled=True)


def test_consent_to_one_question(file: Path) -> None:
    device = Device(SURVEY, file)
    device.give_consent(A)
    assert (device.to_ask(), device.consent(A), device.consent(B), device.consent()) == ([B], "given", "unknown", "unknown")
    assert list(device.answer(VALUES, 1)) == [A]
    device.withdraw_consent(B)
    assert device.consent() == "given"
    device.give_consent(B)
    device.answer(VALUES, 1)
    device.withdraw_consent(A)
    assert [report.attribute for report in device.waiting()] == [B]
    assert [shown.silence for shown in device.preview(VALUES, 1)] == ["consent withdrawn", None]
    device.give_consent(A)
    device.report(A, "bus", 2)  # from another memo than the first report
    assert device.spent(A) == Spent(2, None, 2 * SURVEY.mechanisms[0][0].device.claims.eps_per_report)
    with pytest.raises(StepForgotten):
        device.report(A, "car", 1)  # a second report of the step would reveal more
    with pytest.raises(ValueError, match="attribute must be one of"):
        device.give_consent("other")


# ---- terms

SAME: tuple[dict[str, Any], ...] = ({"retention_steps": 10}, {}, {"contact": "a@example.org"})
WORSE: tuple[dict[str, Any], ...] = ({"retention_steps": 2000}, {"purpose": "Ads."}, {"owner": "Ads Inc."})


@pytest.mark.parametrize(("changed", "asked"), [*((head, []) for head in SAME), *((head, [A, B]) for head in WORSE)])
def test_worse_terms_of_the_same_survey_ask_again(changed: dict[str, Any], asked: list[str], file: Path) -> None:
    Device(SURVEY, file).give_consent()
    Device(SURVEY, file).answer(VALUES, 1)
    later = Device(small_survey(*QUESTIONS, **HEAD | changed), file)
    assert later.to_ask() == asked
    assert len(later.waiting()) == (0 if asked else 2)
    later.give_consent()
    assert len(later.waiting()) == 2


def test_a_wallet_charges_only_with_consent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: SURVEY.start_ms * 1_000_000)
    wallet = Wallet(tmp_path / "wallet", for_ever=500.0)
    monkeypatch.setenv("DO_NOT_TRACK", "1")
    Device(SURVEY, wallet, consent="given").give_consent()
    monkeypatch.delenv("DO_NOT_TRACK")
    device = Device(SURVEY, wallet)
    assert (wallet.spent().surveys, (tmp_path / "wallet").exists()) == ((), False)
    device.give_consent()
    assert Device(SURVEY, wallet).answer(VALUES, 1)
    with pytest.raises(WalletFull):
        Device(replace(SURVEY, name="second", ends=50_000), wallet)  # before anybody is asked
    device.withdraw_consent()
    ((row,), silence) = (wallet.spent().surveys, Device(SURVEY, wallet).silence(A))
    assert (row.left, silence) == (True, "consent withdrawn")
    Device(SURVEY, wallet).give_consent()
    assert device.answer(VALUES, 2)
    wallet.leave(SURVEY.pin)
    assert device.consent() == "unknown"


def test_an_application_with_its_own_consent(file: Path) -> None:
    device = Device(SURVEY, file, consent="given")
    assert device.answer(VALUES, 1)
    assert Device(SURVEY, file).to_ask() == [A, B]
    device.withdraw_consent()
    assert Device(SURVEY, file, consent="given").silence(A) == "consent withdrawn"
    with pytest.raises(ValueError, match="consent must be one of asked, given, simulated, got 'yes'"):
        Device(SURVEY, file, consent="yes")  # type: ignore[arg-type]  # a wrong word on purpose


# ---- switches


@pytest.mark.parametrize(("variable", "value", "off"), [
    ("DO_NOT_TRACK", "1", True), ("DO_NOT_TRACK", "true", True), ("DO_NOT_TRACK", "0", False), ("DO_NOT_TRACK", "", False),
    ("CI", "true", True), ("CI", "woodpecker", True), ("CI", "false", False),
])  # fmt: skip
def test_a_variable_switches_everything_off(
    variable: str, value: str, off: bool, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    modes: tuple[ConsentMode, ...] = ("asked", "given")
    for consent in modes:
        device = Device(SURVEY, file, consent=consent)
        device.give_consent()
        assert (device.silence(A, 1) == "switched off") == off
        assert bool(device.answer(VALUES, 1)) != off
        assert file.exists() != off
    assert Device(SURVEY, file, consent="simulated").answer(VALUES, 1)


def test_the_operators_file_switches_running_devices_off(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(SURVEY, file)
    give(device, file)
    (tmp_path / "off").touch()
    assert (device.silence(A, 1), device.waiting(), device.to_ask()) == ("switched off", [], [])
    (tmp_path / "off").unlink()
    assert len(device.waiting()) == 2
    monkeypatch.setattr(os, "stat", lambda path: (_ for _ in ()).throw(PermissionError))
    assert module.switched_off() == str(tmp_path / "off")


# ---- a report on its way, and faults of the store


def test_a_withdrawal_ends_sending_between_two_reports(file: Path) -> None:
    device, other = Device(SURVEY, file), Device(SURVEY, file)
    device.give_consent()
    for step in range(3):
        device.answer(VALUES, step)
    gateway = Gateway(other.withdraw_consent)
    assert sender(device, gateway).attempt()[:3] == (1, 0, 0)
    assert len(gateway.got) == 1
    assert device.journal() == []


SENDS = """
import sys
from ldpstream.device import Device, Sender
from ldpstream.surveys import load_survey

print(Sender(Device(load_survey(sys.argv[1]), sys.argv[2]), sys.argv[3]).attempt()[:3])
"""


def test_a_withdrawal_reaches_a_process_with_a_report_on_its_way(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = datetime.fromtimestamp(now_ms() / 1000 - 60, UTC).replace(microsecond=0)
    (tmp_path / "survey.toml").write_text(small_text(*QUESTIONS, **HEAD | {"start": start, "step_seconds": 86_400}))
    survey = small_survey(*QUESTIONS, **HEAD | {"start": start, "step_seconds": 86_400})
    device = Device(survey, file)
    device.give_consent()
    device.answer(VALUES, 0)
    with closing(Served(survey=survey, now_ms=now_ms)) as served:
        append = served.rig.log.append

        def withdrawing(*args: Any, **options: Any) -> Any:
            device.withdraw_consent()
            return append(*args, **options)

        monkeypatch.setattr(served.rig.log, "append", withdrawing)
        command = [sys.executable, "-c", SENDS, str(tmp_path / "survey.toml"), str(file), served.url]
        environment = {name: value for name, value in os.environ.items() if name not in module.SWITCHES}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "(1, 0, 0)"
        assert len(served.rig.log.counted()) == 1


def test_a_full_or_damaged_store_sends_nothing_after_a_withdrawal(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(SURVEY, file)
    give(device, file)
    with monkeypatch.context() as full:
        full.setattr(Transaction, "keep_consent", lambda *_: (_ for _ in ()).throw(StoreFull("the disk is full")))
        with pytest.raises(StoreFull):
            device.withdraw_consent()
    assert (device.silence(A), device.waiting()) == ("consent withdrawn", [])
    device.give_consent(A)
    assert (device.silence(A, 1), device.silence(B)) == (None, "consent withdrawn")
    device.withdraw_consent()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE consent SET answers = '{'")
    with pytest.raises(DeviceError, match="the consent to sample is damaged"):
        Device(SURVEY, file)


# ---- preview, journal and local mode


def test_a_preview_shows_what_leaves_and_keeps_nothing(file: Path) -> None:
    device = Device(SURVEY, file)
    first = device.preview(VALUES, 1)
    assert [(shown.attribute, shown.silence, shown.example) for shown in first] == [
        (A, "consent unknown", True),
        (B, "consent unknown", True),
    ]
    device.give_consent()
    before = file.read_bytes()
    examples = {device.preview(VALUES, 1)[1].envelope for _ in range(60)}
    assert len(examples) == 5  # of 5 values none is missing but with probability 5 (1 - 1/(4 + e))^60 < 0.001
    assert file.read_bytes() == before
    made = device.answer(VALUES, 1)
    for shown in device.preview(VALUES, 1):
        assert (shown.envelope, shown.silence, shown.example) == (made[shown.attribute], None, False)
        assert "".join(re.findall(r"(?m)^([0-9a-f]{2,})  ", str(shown))) == made[shown.attribute].hex()
    Sender(device, LOCAL).attempt()
    assert {shown.silence for shown in device.preview(VALUES, 1)} == {"already answered"}


def test_the_journal_has_what_left_and_no_true_value(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo_file, "MAX_JOURNAL", 9)
    device, gateway = Device(SURVEY, file), Gateway()
    device.give_consent()
    made = [envelope for step in range(6) for envelope in device.answer(VALUES, step).values()]
    sender(device, gateway).attempt()
    journal = device.journal()
    assert [left.envelope for left in journal] == gateway.got[-9:]
    assert {left.how for left in journal} == {"answered"}
    assert set(gateway.got) <= set(made)
    command = [sys.executable, "-m", "ldpstream.device", "journal"]
    told = subprocess.run([*command, str(file)], capture_output=True, text=True, check=True).stdout
    assert told == "".join(f"{left}\n" for left in journal)
    assert "bus" not in told
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 5")
    for other in (file, file / "missing"):
        assert subprocess.run([*command, str(other)], capture_output=True, check=False).returncode == 2


def test_the_local_mode_sends_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ldpstream.device.routes._exchange", None)
    device = Device(SURVEY, file)
    give(device, file)
    monkeypatch.setattr("time.time_ns", lambda: 0)
    assert Sender(device, LOCAL).attempt()[:3] == (2, 0, 0)
    assert {(left.at_ms, left.how) for left in device.journal()} == {(0, "local")}
    assert device.waiting() == []


# ---- random lives


@dataclass
class Model:
    """The device of the documents."""

    states: dict[str, str] = field(default_factory=lambda: dict.fromkeys((A, B), "unknown"))
    waiting: set[tuple[str, int]] = field(default_factory=set)
    reported: set[tuple[str, int]] = field(default_factory=set)
    gone: set[tuple[str, int]] = field(default_factory=set)  # steps whose report a withdrawal dropped
    left: list[tuple[str, int]] = field(default_factory=list)
    off: bool = False

    def answers(self, step: int) -> set[str]:
        return {name for name, state in self.states.items() if state == "given" and not self.off}

    def withdraw(self, names: list[str]) -> None:
        self.states |= dict.fromkeys(names, "withdrawn")
        every = set(self.states.values()) == {"withdrawn"}
        dropped = {(name, step) for name, step in self.reported if name in names}
        self.waiting -= dropped
        self.left = [] if every else [one for one in self.left if one[0] not in names]
        self.gone = set() if every else self.gone | dropped
        self.reported = set() if every else self.reported


def live(seed: int, file: Path) -> None:
    """One life of two devices on a file. Each operation is compared with the model."""
    rng, model, gateway = random.Random(seed), Model(), Gateway()
    devices = [Device(SURVEY, file), Device(SURVEY, file)]
    for _ in range(30):
        device = rng.choice(devices)
        names = rng.choice([[], [A], [B]])
        match rng.choice(["give", "withdraw", "report", "report", "report", "send", "switch", "forget"]):
            case "give":
                device.give_consent(*names)
                model.states |= {} if model.off else dict.fromkeys(names or [A, B], "given")
            case "withdraw":
                device.withdraw_consent(*names)
                model.withdraw(names or [A, B])
            case "report":
                name, step = rng.choice([A, B]), rng.randrange(4)
                if name in model.answers(step) and (name, step) in model.gone:
                    with pytest.raises(StepForgotten):
                        device.report(name, 1, step)
                else:
                    made = device.report(name, 1, step)
                    assert (made is not None) == (name in model.answers(step))
                    if made is not None and (name, step) not in model.reported:
                        model.reported.add((name, step))
                        model.waiting.add((name, step))
            case "send":
                leaving = {one for one in model.waiting if one[0] in model.answers(0)}
                gateway.got.clear()
                assert sender(device, gateway).attempt()[:3] == (len(leaving), 0, 0)
                assert len(gateway.got) == len(leaving)
                model.waiting -= leaving
                model.left += leaving
            case "switch":
                model.off = not model.off
                module.SWITCH_FILE.touch() if model.off else module.SWITCH_FILE.unlink()
            case "forget" if rng.random() < 0.3:
                device.forget(confirm=SURVEY.name)
                model = Model(off=model.off)
        for one in devices:
            assert {name: one.consent(name) for name in (A, B)} == model.states
            allowed = model.answers(0)
            assert {(report.attribute, report.step) for report in one.waiting()} == {
                x for x in model.waiting if x[0] in allowed
            }
            assert sorted((left.attribute, left.step) for left in one.journal()) == sorted(model.left)


def test_random_lives_keep_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Path("/dev/shm")  # faster than a disk
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        for seed in range(40):
            monkeypatch.setattr(module, "SWITCH_FILE", Path(folder) / f"{seed}.off")
            live(seed, Path(folder) / f"{seed}")


FAULTS: dict[str, tuple[Any, str, Any]] = {
    "reports without consent": (Consents, "muted", lambda *_: {}),
    "a withdrawal keeps the reports": (Transaction, "erase", lambda *_: None),
    "one question's withdrawal keeps its reports": (Transaction, "withdraw", lambda *_: None),
    "no switch": (module, "switched_off", lambda: None),
    "consent is not kept": (Transaction, "keep_consent", lambda *_: None),
    "a report leaves twice": (Transaction, "settle", lambda *_: None),
    "no journal": (Transaction, "journal", lambda *_: []),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_random_lives_find_faults(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises((AssertionError, DeviceError, pytest.fail.Exception)):
        test_random_lives_keep_to_the_model(monkeypatch)
