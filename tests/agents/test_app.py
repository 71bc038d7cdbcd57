"""The agent command: errors at the start, unreachable brokers, the watchdog and the shutdown deadline."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.children import start_child
from ldpstream.engines.kafka import topics
from ldpstream.engines.kafka.topics import BrokerUnreachable, check_broker
from ldpstream.runtime.settings import Settings

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "surveys" / "samples" / "demo.toml"
FAUST = ["-m", "faust", "-A", "ldpstream.agents.app", "worker", "-l", "warn"]


def run(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    named = {key: value for key, value in os.environ.items() if not key.startswith("LDPSTREAM_")}
    return subprocess.run(
        [sys.executable, *command],
        env=named | {"PYTHONPATH": str(ROOT)} | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


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
    done = run(FAUST, tmp_path, **environment)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"ldpstream agent: {said}")
    assert "s3cr3t" not in done.stderr + done.stdout


def test_the_watchdog_ends_a_process_without_signs_of_life(tmp_path: Path) -> None:
    """Also if Faust's worker has replaced the standard error."""
    code = "import io, sys, time; from ldpstream.agents import stall_detector as s; sys.stderr = io.StringIO()"
    code += "; s.WATCHDOG_S = 0.1; s.alive(); time.sleep(30)"
    ended = run(["-c", code], tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.startswith("Timeout")


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_silent_listener_is_unreachable(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy or a hanging broker may send nothing. The client library would wait forever for the TLS handshake."""
    monkeypatch.setattr(topics, "ANSWER_MS", 500)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(BrokerUnreachable, match=f"Kafka at {address}"):
            check_broker(Settings.model_validate({"kafka": address, "kafka_security_protocol": protocol}))


@pytest.mark.parametrize(("busy", "status"), [("event-loop", 0), ("lock", -signal.SIGALRM), ("teardown", 0)])
def test_nothing_holds_up_the_shutdown_deadline(busy: str, status: int, tmp_path: Path) -> None:
    """The deadline starts with the signal. Even an orderly shutdown does not wait for the interpreter's teardown."""
    named = {"LDPSTREAM_SURVEY": str(SAMPLE), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", str(Path(__file__).with_name("busy_worker.py")), busy]
    with start_child(command, env=os.environ | named, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "busy\n"
        process.terminate()
        try:
            assert process.wait(240) == status
        finally:
            process.kill()
