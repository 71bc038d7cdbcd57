"""Tests of processes that end with the process that started them, whichever signal ends it."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.children import start_child
from tests.services.rig import PATIENCE_S, wait_until

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes by /proc"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="without setpriv, a process outlives a killed parent"),
]

# A program that ignores SIGINT and SIGTERM, and then prints a line.
DEAF = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(3600)
"""
# Each parent starts processes, prints their ids, and waits.
POPEN = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "deaf.py"], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
child.stdout.read()
"""
BENCH = """
import time
from pathlib import Path
from lab.bench.service_site import Process
child = Process("deaf", [], {}, Path("log"))
child._process.stdout.readline()
print(child.pid, flush=True)
time.sleep(3600)
"""


def running(pid: int) -> bool:
    """False if the process has ended, even if nobody has read its exit status."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children_of(parent: str, number: signal.Signals, folder: Path) -> list[int]:
    """Ends a parent by a signal. Returns the ids of the processes that the parent had started."""
    (folder / "deaf.py").write_text(DEAF)
    (folder / "parent.py").write_text(parent)
    command = [sys.executable, "parent.py"]
    with start_child(
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        started = [int(pid) for pid in process.stdout.readline().split()]
        assert started
        assert all(map(running, started))
        process.send_signal(number)
        process.wait(PATIENCE_S)
    return started


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_no_process_survives_the_one_that_started_it(number: signal.Signals, tmp_path: Path) -> None:
    started = children_of(BENCH, number, tmp_path)
    wait_until(lambda: not any(map(running, started)), lambda: f"processes of {started} still run")


def test_control_a_plain_child_survives(tmp_path: Path) -> None:
    [pid] = children_of(POPEN, signal.SIGTERM, tmp_path)
    try:
        assert running(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
