"""What the command says when it cannot begin."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agents.topics import TopicError, check_broker
from surveys.settings import Settings
from tests.services.rig import free_ports

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "surveys" / "samples" / "demo.toml"
COMMANDS = [["-m", "agents.app"], ["-m", "faust", "-A", "agents.app", "worker", "-l", "warn"]]


def run(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    named = {key: value for key, value in os.environ.items() if not key.startswith("LDPSTREAM_")}
    return subprocess.run(
        [sys.executable, *command],
        env=named | {"PYTHONPATH": str(ROOT)} | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS, ids=["module", "faust"])
def test_an_unreachable_broker_is_one_line_and_exit_code_2(command: list[str], tmp_path: Path) -> None:
    port = free_ports(1)[0]
    done = run(command, tmp_path, LDPSTREAM_SURVEY=str(SAMPLE), LDPSTREAM_KAFKA=f"127.0.0.1:{port}")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [f"ldpstream agent: Kafka at 127.0.0.1:{port} cannot be reached: Connection refused"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "LDPSTREAM_SURVEY must name the survey file"),
        ({"LDPSTREAM_SURVEY": "nowhere.toml"}, "nowhere.toml: cannot be read: No such file or directory"),
        ({"LDPSTREAM_SURVEY": str(SAMPLE), "LDPSTREAM_KAFKA": "here"}, "LDPSTREAM_KAFKA: "),
        ({"LDPSTREAM_SURVEY": str(SAMPLE), "LDPSTREAM_REDIS": "http://u:s3cr3t@h"}, "LDPSTREAM_REDIS: "),
    ],
)
def test_unusable_settings_are_one_line_and_exit_code_2(environment: dict[str, str], said: str, tmp_path: Path) -> None:
    done = run(COMMANDS[0], tmp_path, **environment)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"ldpstream agent: {said}")
    assert "s3cr3t" not in done.stderr + done.stdout


def test_a_process_of_which_nobody_says_that_all_is_well_ends(tmp_path: Path) -> None:
    lines = ["import time, agents.app as a", "a._Watchdog.TICK_S = 0.01", "a._Watchdog().start()", "time.sleep(30)"]
    assert run(["-c", "; ".join(lines)], tmp_path).returncode == 3


def test_a_broker_that_takes_connections_and_says_nothing_is_an_error_within_seconds() -> None:
    """As behind a proxy."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(TopicError, match=f"Kafka at {address}"):
            check_broker(Settings(kafka=address))
        assert time.monotonic() - began < 15
