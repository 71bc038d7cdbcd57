"""A device keeps one memo for each key and one report for each step despite crashes and parallel processes.

A crash leaves the file and its journal as they are. The crash tests copy both files before every SQL statement of a life, and
use each copy. SQLite then undoes the transaction that the crash interrupted. With the settings that `test_device.py` checks,
SQLite guarantees that commits reach the disk.

The second round of the mechanism almost never changes the memo, so every envelope shows its memo.
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ldpstream.device import Device
from ldpstream.surveys import load_survey
from tests.small_survey import small_text

from .test_device import payload, rows

T = TypeVar("T")
# with k = 1000 a report differs from its memo with probability 2e-9
NEARLY_CERTAIN = {"name": "a", "mechanism": "L-GRR", "eps_inf": 1.0, "eps_1": 1.0 - 1e-9}
TEXT = small_text(
    {"name": "q0", "size": 1000, "level": [NEARLY_CERTAIN]}, collection="spl", window_steps=1, lateness_steps=200
)  # fmt: skip
RIVAL = """
import json, random, sys
from ldpstream.device import Device
from ldpstream.surveys import load_survey

device, steps = Device(load_survey(sys.argv[1]), sys.argv[2], consent="simulated"), list(range(60))
random.Random(sys.argv[3]).shuffle(steps)
print(json.dumps([(step, device.report("q0", step * 37 % 300, step).hex()) for step in steps]))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Returns a folder in memory if possible: it is faster than a disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


@contextmanager
def crashing(file: Path, patch: pytest.MonkeyPatch, known: Callable[[], T]) -> Iterator[list[T]]:
    """Copies the file and its journal before every SQL statement. Yields a list that gets what was `known` at each copy."""
    connect, found = sqlite3.connect, list[T]()

    def copy(_: str) -> None:
        for suffix in ("", "-journal"):
            with suppress(FileNotFoundError):
                shutil.copy(f"{file}{suffix}", file.with_name(f"{len(found)}{suffix}"))
        found.append(known())

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        connection.set_trace_callback(copy)
        return connection

    with patch.context() as patched:
        patched.setattr(sqlite3, "connect", traced)
        yield found


def test_a_crash_before_any_statement_keeps_the_memo_and_the_reports(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "survey.toml").write_text(TEXT)
    survey, file, emitted = load_survey(folder / "survey.toml"), folder / "file", list[bytes | None]()
    with crashing(file, monkeypatch, emitted.copy) as found:
        for step in range(3):
            emitted.append(Device(survey, file, consent="simulated").report("q0", 7, step))
    for number, before in enumerate(found):
        device = Device(survey, folder / str(number), consent="simulated")
        reports = [device.report("q0", 7, step) or b"" for step in range(3)]
        assert reports[: len(before)] == before
        [(memo,)] = rows(folder / str(number), "SELECT memo FROM memo")
        assert {payload(survey, raw, step) for step, raw in enumerate(reports)} == {memo}
        assert rows(folder / str(number), "SELECT reports FROM enrolment") == [(3,)]
    assert {len(before) for before in found} == {0, 1, 2}


def test_parallel_processes_on_one_file_are_one_device(folder: Path) -> None:
    (folder / "survey.toml").write_text(TEXT)
    survey, file, by_step = load_survey(folder / "survey.toml"), folder / "file", dict[int, str]()
    commands = [
        [sys.executable, "-W", "ignore", "-c", RIVAL, str(folder / "survey.toml"), str(file), str(seed)] for seed in range(3)
    ]
    rivals = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    outputs = [rival.communicate(timeout=900)[0] for rival in rivals]
    memos = dict(rows(file, "SELECT key, memo FROM memo"))
    for step, raw in (pair for output in outputs for pair in json.loads(output)):
        assert by_step.setdefault(step, raw) == raw
        assert payload(survey, bytes.fromhex(raw), step) == memos[step * 37 % 300]
    assert by_step.keys() == set(range(60))
    assert rows(file, "SELECT reports FROM enrolment") == [(60,)]
    assert rows(file, "PRAGMA integrity_check") == [("ok",)]
