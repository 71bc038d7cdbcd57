"""`ldpstream try` runs the service with simulated devices, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.children import start_child
from deploy.local.ports import free_ports
from ldpstream.services.trial.ports import get

from .rig import PATIENCE_S, wait_until

ROOT = Path(__file__).parents[2]
USERS = 300


@pytest.fixture
def options() -> list[str]:
    return []


@pytest.fixture
def running(kernels: None, tmp_path: Path, options: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    page, gateway = free_ports(2)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "LDPSTREAM_KAFKA": "nowhere:1"}
    env |= {"LDPSTREAM_PAGE_PORT": str(page), "LDPSTREAM_GATEWAY_PORT": str(gateway)}
    env["TMPDIR"] = str(tmp_path)
    command = [sys.executable, "-m", "ldpstream", "try", "--users", str(USERS), "--step-seconds", "2", *options]
    with (tmp_path / "out").open("wb") as out:
        process = start_child(command, cwd=tmp_path, env=env, stdout=out, stderr=out, start_new_session=True)
    yield process, page, gateway
    process.send_signal(signal.SIGINT)
    process.wait(PATIENCE_S)


@pytest.mark.parametrize("options", [[], ["--relay"]], ids=["serve", "relay"])
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
    [folder] = [path for path in tmp_path.glob("ldpstream-*") if (path / "now.toml").exists()]
    trial.send_signal(signal.SIGINT)
    trial.send_signal(signal.SIGINT)  # impatient users press Ctrl-C again
    assert trial.wait(PATIENCE_S) == 0, said()
    assert said().endswith("Everything has ended.\n")
    assert not folder.exists()
