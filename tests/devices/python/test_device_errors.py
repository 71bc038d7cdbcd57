"""The errors of a device: a class for each cause, no value in a message, and no second report of a step after the error."""

import errno
import os
import sqlite3
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab.papers.location.geometric import TruncatedGeometric
from ldpstream.device import (
    ClockWentBack,
    Device,
    DeviceError,
    StepForgotten,
    StoreCleared,
    StoreFull,
    StoreHeld,
    UnknownSurvey,
    WrongSurvey,
)
from ldpstream.surveys import Survey
from tests.producers.samples import level, make_survey

SURVEY = make_survey({"zone": (40_000, [level("L-OSUE")])})
VALUE = 31_415


@contextmanager
def held(file: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def full(file: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    connect = sqlite3.connect

    def small(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        connection.execute("PRAGMA max_page_count = 5")
        return connection

    with patch.context() as limited:
        limited.setattr(sqlite3, "connect", small)
        yield


@contextmanager
def away(file: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    file.rename(file.with_suffix(".away"))
    yield
    file.with_suffix(".away").rename(file)


@contextmanager
def emptied(file: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    kept = file.read_bytes()
    file.write_bytes(b"")
    yield
    file.write_bytes(kept)


@contextmanager
def exchanged(file: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    with away(file, patch):
        Device(make_survey({"zone": (4, [level("GRR")])}), file, consent="simulated")
        yield
        file.unlink()


@pytest.mark.parametrize(
    ("trouble", "error"),
    [(held, StoreHeld), (full, StoreFull), (away, StoreCleared), (emptied, StoreCleared), (exchanged, WrongSurvey)],
)
def test_an_error_releases_no_report(
    trouble: Callable[..., Any], error: type[DeviceError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    device = Device(SURVEY, file, wait_s=0.01, consent="simulated")
    before = device.report("zone", 0, 0) if error is not StoreFull else None
    with trouble(file, monkeypatch):
        for _ in range(2):
            with pytest.raises(DeviceError) as caught:
                device.report("zone", VALUE, 1)
            assert type(caught.value) is error
            shown = "".join(traceback.format_exception(caught.value)).replace(str(tmp_path), "")
            assert str(VALUE) not in shown
            assert str(caught.value).isprintable()
        if error in (StoreHeld, StoreCleared, WrongSurvey):
            with pytest.raises(error):
                Device(SURVEY, file, expect_enrolled=True, wait_s=0.01, consent="simulated")
    assert device.spent("zone").reports == len(device.waiting()) == (before is not None)
    raw = device.report("zone", VALUE, 1)
    assert raw is not None
    assert device.report("zone", 0, 1) == raw
    assert before is None or device.report("zone", VALUE, 0) == before


def test_a_cleared_file_is_noticed_only_by_an_application_that_expects_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with pytest.raises(StoreCleared, match="the file is missing, but the device had enrolled"):
        Device(SURVEY, file, expect_enrolled=True, consent="simulated")
    assert not file.exists()
    with pytest.raises(DeviceError, match="cannot be created: File name too long"):
        Device(SURVEY, tmp_path / ("x" * 300))
    Device(SURVEY, file, consent="simulated")
    assert Device(SURVEY, file, expect_enrolled=True, consent="simulated").report("zone", 1, 0)


def test_a_full_disk_prevents_the_first_enrolment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(StoreFull, match="cannot be created: No space left"):
        patch.setattr(os, "open", refuse)
        Device(SURVEY, tmp_path / "file", consent="simulated")
    assert Device(SURVEY, tmp_path / "file", consent="simulated").report("zone", 1, 0)


def test_a_clock_that_went_back_has_its_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def at(step: int) -> None:
        monkeypatch.setattr("time.time_ns", lambda: SURVEY.opens_ms(step) * 1_000_000)

    device, sent = Device(SURVEY, tmp_path / "file", consent="simulated"), {}
    for step in range(10):
        at(step)
        sent[step] = device.report("zone", VALUE)
        device.settle(device.waiting()[0])
    assert len(set(sent.values())) == 10
    at(2)
    with pytest.raises(ClockWentBack, match=r"the clock went back to step 2 of zone, .* the next is step 10") as caught:
        device.report("zone", VALUE)
    assert (caught.value.attribute, caught.value.step) == ("zone", 2)
    with pytest.raises(StepForgotten) as plain:
        device.report("zone", VALUE, 2)
    assert type(plain.value) is StepForgotten
    assert plain.value.earliest == caught.value.earliest
    at(9)
    assert device.report("zone", 0) == sent[9]
    at(10)
    assert device.report("zone", 0) not in sent.values()
    assert device.spent("zone").reports == 11
    at(-1)
    assert (device.report("zone", VALUE), device.silence("zone")) == (None, "survey not begun")


def test_a_survey_without_a_randomizer_is_refused_before_the_enrolment(tmp_path: Path) -> None:
    survey: Survey = make_survey({"zone": (4, [level("GRR")])})
    survey.__dict__["mechanisms"] = ((TruncatedGeometric(4, 1.0),),)
    with pytest.raises(UnknownSurvey, match="devices have no randomizer for"):
        Device(survey, tmp_path / "file", consent="simulated")
    assert not (tmp_path / "file").exists()
