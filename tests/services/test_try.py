"""`ldpstream try` runs the service with simulated devices, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.ports import free_ports
from ldpstream.runtime.process import start_child
from ldpstream.services.trial.child import get

from .rig import PATIENCE_S, wait_until

ROOT = Path(__file__).parents[2]
USERS = 300


def children(parent: int) -> dict[int, str]:
    """Command lines of a process's running children, by process id."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"PPid:\t{parent}\n" in (path / "status").read_text():
                found[int(path.name)] = command_line(int(path.name))
        except OSError:  # the process has ended
            continue
    return found


def command_line(pid: int) -> str:
    """Returns "" if there is no such process, or it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


@pytest.fixture
def options() -> list[str]:
    return []


@pytest.fixture
def running(kernels: None, tmp_path: Path, options: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    page, gateway = free_ports(2)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "LDPSTREAM_KAFKA": "nowhere:1"}
    env |= {"LDPSTREAM_PAGE_PORT": str(page), "LDPSTREAM_GATEWAY_PORT": str(gateway)}
    command = [sys.executable, "-m", "ldpstream", "try", "--users", str(USERS), "--step-seconds", "2", *options]
    with (tmp_path / "out").open("wb") as out:
        process = start_child(command, cwd=tmp_path, env=env, stdout=out, stderr=out, start_new_session=True)
    yield process, page, gateway
    process.send_signal(signal.SIGINT)
    process.wait(PATIENCE_S)


@pytest.mark.parametrize("options", [[], ["--relay"]], ids=["serve", "relay"])
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes by /proc")
def test_the_whole_pipeline_runs_until_ctrl_c_and_leaves_nothing(
    running: tuple[subprocess.Popen[bytes], int, int], tmp_path: Path, options: list[str]
) -> None:
    trial, page, gateway = running

    def said() -> str:
        return (tmp_path / "out").read_text()

    def published() -> bool:
        assert trial.poll() is None, said()
        return f": {USERS} reports counted and published." in said()

    wait_until(published, said)
    assert f"The live page: http://127.0.0.1:{page}/\n" in said()
    info = json.loads(get(page, "/api/v1/survey") or b"")
    assert info["relay"] == ("required" if "--relay" in options else None)  # then the gateway took no plain report
    assert b"<html" in (get(page, "/") or b"")
    assert get(gateway, "/ready") is not None
    started = children(trial.pid)
    assert [" serve " in line for line in started.values()] == [True], started
    folder = Path(os.readlink(f"/proc/{next(iter(started))}/cwd"))
    assert folder.is_relative_to(tempfile.gettempdir())
    trial.send_signal(signal.SIGINT)
    trial.send_signal(signal.SIGINT)  # impatient users press Ctrl-C again
    assert trial.wait(PATIENCE_S) == 0, said()
    assert said().endswith("Everything has ended.\n")
    assert not any(line == command_line(pid) for pid, line in started.items())
    assert not folder.exists()
