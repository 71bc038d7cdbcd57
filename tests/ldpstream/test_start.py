"""Tests that processes log an unreachable Kafka at start-up at once, wait, answer probes, and end at a signal."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.children import start_child
from ldpstream.producers import kafka_sink
from ldpstream.producers.sinks import SinkError
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import load_survey
from tests.services.rig import free_ports, get, wait_until

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "surveys" / "samples" / "demo.toml"
DEADLINE_S = 240
FAUST = ["-m", "faust", "-A", "ldpstream.agents.app", "worker", "-l", "warn"]
STARTS = [
    ("produce", signal.SIGINT), ("agent", signal.SIGINT), ("estimate", signal.SIGTERM),
    ("gateway", signal.SIGTERM), ("faust", signal.SIGTERM),
]  # fmt: skip


class Waiting:
    """A process that cannot reach Kafka."""

    def __init__(self, command: list[str], folder: Path) -> None:
        kafka, self.metrics, front = free_ports(3)
        self.address = f"127.0.0.1:{kafka}"
        env = {key: value for key, value in os.environ.items() if not key.startswith("LDPSTREAM_")} | {
            "PYTHONPATH": str(ROOT), "LDPSTREAM_KAFKA": self.address, "LDPSTREAM_SURVEY": str(DEMO),
            "LDPSTREAM_METRICS_PORT": str(self.metrics), "LDPSTREAM_GATEWAY_PORT": str(front), "LDPSTREAM_PAGE_PORT": "0",
        }  # fmt: skip
        self.folder, self.log = folder / "empty", folder / "log"
        self.folder.mkdir()
        with self.log.open("wb") as log:
            self.process = start_child([sys.executable, *command], env=env, cwd=self.folder, stdout=log, stderr=log)

    def until_it_says(self, words: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while words not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.05)

    def status(self, path: str) -> int:
        """Waits until the port is open, and returns the HTTP status of a probe."""
        url = f"http://127.0.0.1:{self.metrics}{path}"
        wait_until(lambda: get(url), self.log.read_text)
        return get(url)[0]


@pytest.fixture
def waiting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Waiting]:
    name = request.getfixturevalue("name")
    made = Waiting(FAUST if name == "faust" else ["-m", "ldpstream", name, str(DEMO)], tmp_path)
    yield made
    made.process.kill()
    made.process.wait()


@pytest.mark.parametrize(("name", "end"), STARTS)
def test_every_process_waits_for_an_unreachable_kafka(waiting: Waiting, name: str, end: signal.Signals) -> None:
    waiting.until_it_says(f"waiting for Kafka at {waiting.address}: cannot be reached: Connection refused")
    if name != "produce":
        assert (waiting.status("/health"), waiting.status("/ready")) == (200, 503)
    waiting.process.send_signal(end)
    assert waiting.process.wait(DEADLINE_S) == (2 if name == "produce" else 0), waiting.log.read_text()
    said = waiting.log.read_text()
    assert (name == "produce") is (f"ldpstream: Kafka at {waiting.address} did not answer, and no report was sent\n" in said)
    assert said.count("waiting for Kafka") == 1
    assert "Traceback" not in said
    assert list(waiting.folder.iterdir()) == []


def test_produce_gives_up_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    (closed,) = free_ports(1)
    monkeypatch.setattr(kafka_sink, "PATIENCE_S", 0.0)
    said = list[str]()
    with pytest.raises(SinkError, match=rf"^Kafka at 127\.0\.0\.1:{closed} did not answer, and no report was sent$"):
        kafka_sink.await_kafka_sink(load_survey(DEMO), Settings(kafka=f"127.0.0.1:{closed}"), lambda _: False, said.append)
    assert len(said) == 1
