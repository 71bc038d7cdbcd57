"""A device keeps one memo for each key and one report for each step despite killed or parallel processes.

All processes are real: `drive` runs in a separate interpreter, forks children that report, and kills them with SIGKILL. The
second round of the mechanism almost never changes the memo, so every envelope shows its memo. If a device draws a second memo,
the test detects this with probability 0.999.

A kill differs from a power cut: after a kill, the system still writes the data that it received from the process. With the
settings that `test_device.py` checks, SQLite guarantees that commits reach the disk.
"""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ldpstream.device import Device
from ldpstream.surveys import Survey

from .test_device import payload, rows, survey

ROOT = Path(__file__).parents[3]
# imports this folder under another name, because other distributions have packages named "tests"
CODE = f"""
import sys, types
here = sys.modules["here"] = types.ModuleType("here")
here.__path__ = [{str(Path(__file__).parent)!r}]
from here.test_device_crashes import main
main()
"""
# with k = 1000 a report differs from its memo with probability 2e-9
NEARLY_CERTAIN = {"mechanism": "L-GRR", "eps_inf": 1.0, "eps_1": 1.0 - 1e-9}
CRASH_SURVEY = survey((NEARLY_CERTAIN,), k=1000, lateness_steps=10)
RIVAL_SURVEY = survey((NEARLY_CERTAIN,), k=1000, lateness_steps=200)
LAST_STATEMENT = 40  # enrolment and the first report need fewer SQL statements than this
Emitted = list[tuple[int, str]]  # step and envelope, as hexadecimal digits, in the order of emission


def value_at(step: int) -> int:
    """Returns a true value: mostly a new value, sometimes an old value."""
    return step * 37 % 300


def child(run: Callable[[Callable[[int, bytes | None], None]], None]) -> tuple[int, int]:
    """Forks a process that emits envelopes into a pipe. Returns the process's id and the pipe's reading end."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            with os.fdopen(write, "w", buffering=1) as pipe:  # one write per line
                run(lambda step, raw: print(step, raw.hex() if raw else "", file=pipe))
        finally:
            os._exit(0)
    os.close(write)
    return pid, read


def first_lines(read: int, n: int) -> bytes:
    """Waits until a child has emitted n lines, and returns its output so far."""
    output = more = os.read(read, 2**16)
    while output.count(b"\n") < n and more:
        more = os.read(read, 2**16)
        output += more
    return output


def emitted(pid: int, read: int, begun: bytes = b"") -> Emitted:
    """Waits until a child ends and returns all its complete lines. `begun` is the output read before."""
    with os.fdopen(read, "rb") as pipe:
        lines = (begun + pipe.read()).decode().splitlines(keepends=True)
    os.waitpid(pid, 0)
    return [(int(line.split()[0]), line.split()[1]) for line in lines if line.endswith("\n")]


def drive(mode: str, file: Path) -> Emitted:
    """Runs the children of one test, in the separate interpreter."""
    out: Emitted = []
    if mode == "rivals":

        def rival(seed: int, emit: Callable[[int, bytes | None], None]) -> None:
            steps = list(range(60))
            random.Random(seed).shuffle(steps)
            device = Device(RIVAL_SURVEY, file)
            for step in steps:
                emit(step, device.report("q0", value_at(step), step))

        children = [child(partial(rival, seed)) for seed in range(3)]
        return [line for pid, read in children for line in emitted(pid, read)]

    if mode == "statement":  # crashes before each SQL statement of enrolment and the first report; each crash has a new file
        for nth in range(1, LAST_STATEMENT):
            fresh = file.with_name(f"{file.name} {nth}")

            def run(emit: Callable[[int, bytes | None], None], fresh: Path = fresh, nth: int | None = None) -> None:
                if nth is not None:
                    die_at_statement(nth)
                for step in (0, 1, 2):
                    emit(step, Device(CRASH_SURVEY, fresh).report("q0", value_at(0), step))

            lines = emitted(*child(partial(run, nth=nth)))
            lines += emitted(*child(run))
            out += [(1000 * nth + step, raw) for step, raw in lines]
        return out

    for turn in range(60 if mode == "kill" else 12):
        first = max(0, max((step for step, _ in out), default=0) - 5)
        used = file
        if mode == "amnesia":  # the control: a device's memory that is lost with the process
            used = file.with_name("copy")
            shutil.copy(file, used) if file.exists() else None

        def report_on(emit: Callable[[int, bytes | None], None], used: Path = used, first: int = first) -> None:
            device = Device(CRASH_SURVEY, used)
            for step in range(first, first + 1000):
                emit(step, device.report("q0", value_at(step), step))

        pid, read = child(report_on)
        begun = first_lines(read, 8) if turn % 2 else b""  # half of the children report new steps, even on a slow machine
        time.sleep(random.uniform(0.002, 0.03))
        os.kill(pid, signal.SIGKILL)
        out += emitted(pid, read, begun)
    return out


def main() -> None:
    """Entry point of the separate interpreter."""
    json.dump(drive(sys.argv[1], Path(sys.argv[2])), sys.stdout)


def die_at_statement(nth: int) -> None:
    """Makes this process kill itself before its nth SQL statement from now."""
    connect, count = sqlite3.connect, iter(range(1, 10**6))

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        connection.set_trace_callback(lambda _: os.kill(os.getpid(), signal.SIGKILL) if next(count) == nth else None)
        return connection

    vars(sqlite3)["connect"] = traced


def driven(mode: str, file: Path) -> Emitted:
    """Runs `drive` in a separate interpreter and returns what its children emitted."""
    command = [sys.executable, "-W", "ignore", "-c", CODE, mode, str(file)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return [(step, raw) for step, raw in json.loads(done.stdout)]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Returns a folder in memory if possible: after a kill, files in memory have the same contents as files on a disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


def require_consistent(asked: Survey, file: Path, lines: Emitted) -> dict[int, str]:
    """Checks that each step has one envelope, drawn from the file's only memo of the step's value. Returns step -> envelope."""
    by_step: dict[int, str] = {}
    memos = dict(rows(file, "SELECT key, memo FROM memo"))
    for step, raw in lines:
        assert by_step.setdefault(step, raw) == raw
        assert payload(asked, bytes.fromhex(raw), step) == memos[value_at(step)]
    [(reported,)] = rows(file, "SELECT reports FROM enrolment")
    assert reported == sum(count for (count,) in rows(file, "SELECT reports FROM memo")) >= len(by_step)
    assert rows(file, "PRAGMA integrity_check") == [("ok",)]
    return by_step


def test_a_device_killed_at_any_time_keeps_its_memos(folder: Path) -> None:
    by_step = require_consistent(CRASH_SURVEY, folder / "file", driven("kill", folder / "file"))
    assert len(by_step) > 30


def test_the_crash_test_notices_lost_memos(folder: Path) -> None:
    Device(CRASH_SURVEY, folder / "file")
    lines = driven("amnesia", folder / "file")
    assert lines
    with pytest.raises((AssertionError, KeyError)):
        require_consistent(CRASH_SURVEY, folder / "copy", lines)


def test_a_device_killed_before_any_statement_keeps_its_memo(folder: Path) -> None:
    lines = driven("statement", folder / "file")
    emitted_before_the_crash = set()
    for nth in range(1, LAST_STATEMENT):
        mine = [(step % 1000, raw) for step, raw in lines if step // 1000 == nth]
        assert {step for step, _ in mine} == {0, 1, 2}
        assert len(set(mine)) == 3
        [(memo,)] = rows(folder / f"file {nth}", "SELECT memo FROM memo")
        assert {payload(CRASH_SURVEY, bytes.fromhex(raw), step) for step, raw in mine} == {memo}
        emitted_before_the_crash.add(len(mine) - 3)
    assert emitted_before_the_crash >= {0, 1}  # crashes happened before and after the first report


def test_parallel_processes_on_one_file_are_one_device(folder: Path) -> None:
    lines = driven("rivals", folder / "file")
    assert len(lines) == 180
    assert require_consistent(RIVAL_SURVEY, folder / "file", lines).keys() == set(range(60))
    assert rows(folder / "file", "SELECT reports FROM enrolment") == [(60,)]
