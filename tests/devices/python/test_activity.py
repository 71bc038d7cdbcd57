"""The activity log: shared by processes, safe on a bad disk, and answered only for steps with use."""

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from devices.vectors.vectors import VECTORS
from ldpstream.device import Activity, Device, DeviceError, StoreCleared, StoreFull, StoreHeld
from ldpstream.surveys import Survey, load_survey
from tests.devices.python.test_device_errors import away, held

SURVEY = load_survey(VECTORS / "usage.toml")
DAY_NS = 86_400 * 10**9


def at(survey: Survey, day: float, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = survey.start_ms * 10**6 + int(day * DAY_NS)
    monkeypatch.setattr("ldpstream.device.activity.time.time_ns", lambda: now_ns)


def content(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return [*connection.execute("SELECT * FROM use ORDER BY day, event"), *connection.execute("PRAGMA user_version")]


def use(path: Path) -> None:
    for _ in range(20):
        Activity(path, consent="simulated").used("export")


def test_two_processes_count_together(tmp_path: Path) -> None:
    with ProcessPoolExecutor(2) as pool:
        for done in [pool.submit(use, tmp_path / "log") for _ in range(2)]:
            done.result()
    assert sum(n for _, _, n, _ in content(tmp_path / "log")[:-1]) == 40


def test_a_device_answers_only_steps_with_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    activity, device = Activity(tmp_path / "log", consent="simulated"), Device(SURVEY, tmp_path / "device", consent="simulated")
    at(SURVEY, -1, monkeypatch)
    activity.seen()
    assert activity.answer(device) == {}  # the survey has not begun
    at(SURVEY, 3, monkeypatch)
    assert activity.answer(device) == {}
    activity.took("build", seconds=12)
    made = activity.answer(device)
    assert set(made) == {attribute.name for attribute in SURVEY.attributes}
    assert activity.answer(device) == made
    assert {report.step for report in device.waiting()} == {0}
    with pytest.raises(ValueError, match="age has a recipe: give no value"):
        activity.answer(device, {"age": "new"})
    assert activity.values(SURVEY, 0)["age"] == 1
    activity.forget()
    assert activity.values(SURVEY, 0) == {}
    assert content(tmp_path / "log") == [(2001,)]


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 2002")


def damaged(path: Path) -> None:
    path.write_bytes(b"not a database" * 100)


@pytest.mark.parametrize(
    ("spoil", "message"), [(newer, "has format 2002, this program needs format 2001"), (damaged, "file is not a database")]
)
def test_a_log_that_cannot_be_read_is_refused_in_one_line_and_stays(
    spoil: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    Activity(path, consent="simulated").used("export")
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(DeviceError, match=message) as refused:
        Activity(path)
    assert "\n" not in str(refused.value)
    assert path.read_bytes() == before


@contextmanager
def full(file: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    connect = sqlite3.connect

    def small(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        connection.execute("PRAGMA max_page_count = 2")
        return connection

    with patch.context() as limited:
        limited.setattr(sqlite3, "connect", small)
        yield


@contextmanager
def read_only(file: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    connect = sqlite3.connect
    with patch.context() as limited:
        limited.setattr(sqlite3, "connect", lambda name, **options: connect(name.replace("mode=rw", "mode=ro"), **options))
        yield


@pytest.mark.parametrize(
    ("trouble", "error"), [(held, StoreHeld), (full, StoreFull), (away, StoreCleared), (read_only, DeviceError)]
)
def test_trouble_with_the_disk_loses_nothing(
    trouble: Callable[..., Any], error: type[DeviceError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    activity = Activity(tmp_path / "log", consent="simulated", wait_s=0.01)
    activity.seen()
    before = content(tmp_path / "log")
    with trouble(tmp_path / "log", monkeypatch), pytest.raises(error) as caught:
        for i in range(1000):
            activity.used(f"event{i % 90}".ljust(60, "x"))
            before = content(tmp_path / "log")
    assert "\n" not in str(caught.value)
    assert content(tmp_path / "log") == before


def test_names_and_durations_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    activity = Activity(tmp_path / "log", consent="simulated")
    for name in ("", "a b", "é", "x" * 65, 3):
        with pytest.raises(ValueError, match="event must be a name"):
            activity.used(name)  # type: ignore[arg-type] # 3 is no text
    for seconds in (-1, float("nan"), float("inf"), 1e7):
        with pytest.raises(ValueError, match="seconds must be"):
            activity.took("build", seconds)
    monkeypatch.setattr("ldpstream.device.activity.MOST_EVENTS", 3)
    for name in "abc":
        activity.used(name)
    with pytest.raises(ValueError, match="at most 3 names a day"):
        activity.used("d")
    activity.seen()
    activity.used("a")
    assert len(content(tmp_path / "log")) == 5


@pytest.mark.parametrize("switch", ["CI", "DO_NOT_TRACK"])
def test_a_switch_turns_the_log_off(switch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "DO_NOT_TRACK"):
        monkeypatch.delenv(name, raising=False)
    running = Activity(tmp_path / "log")
    running.used("export")
    before = content(tmp_path / "log")
    assert len(before) == 2
    monkeypatch.setenv(switch, "1")
    for activity in (running, Activity(tmp_path / "log"), Activity(tmp_path / "other")):
        activity.used("export")
    assert content(tmp_path / "log") == before
    assert not (tmp_path / "other").exists()
