"""Processes that start before Kafka and Redis wait for both services, then work."""

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ldpstream.rehearse import rehearse
from ldpstream.runtime.process import TOLD_TO_END

from .rig import KafkaNode, RedisNode, free_ports, get, start_command

ROOT = Path(__file__).parents[2]
DEADLINE_S = 240
NAMES = ("agent", "estimate", "gateway", "produce")


class Early:
    """All four processes, started while Kafka and Redis are down. Step 0 of the processes' survey lasts an hour."""

    def __init__(self, kafka: KafkaNode, redis: RedisNode, folder: Path) -> None:
        source = folder / "source.toml"
        text = (ROOT / "surveys" / "samples" / "demo.toml").read_text()
        source.write_text(text.replace('name = "demo"', f'name = "early-{os.getpid()}-{time.time_ns()}"'))
        rehearse(source, folder / "now.toml", 3600, now_s=time.time())
        self.folder, self.metrics, front = folder, dict(zip(NAMES, free_ports(4), strict=True)), free_ports(1)[0]
        env = {
            **os.environ, "PYTHONPATH": str(ROOT), "LDPSTREAM_KAFKA": kafka.bootstrap, "LDPSTREAM_REDIS": redis.url,
            "LDPSTREAM_PAGE_PORT": "0", "LDPSTREAM_GATEWAY_PORT": str(front),
        }  # fmt: skip
        self.started = [self.start(name, env) for name in NAMES]

    def start(self, name: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
        env = env | {"LDPSTREAM_METRICS_PORT": str(self.metrics[name])}
        options = ["--users", "500"] if name == "produce" else []
        return start_command(self.folder / f"{name}.log", env, name, "now.toml", *options)

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def get(self, name: str, path: str) -> tuple[int, str]:
        try:
            return get(f"http://127.0.0.1:{self.metrics[name]}{path}")
        except OSError:
            return 0, ""

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + DEADLINE_S
        while not condition():
            assert all(process.poll() is None for process in self.started), {name: self.said(name)[-2000:] for name in NAMES}
            assert time.monotonic() < end, {name: self.said(name)[-2000:] for name in NAMES}
            time.sleep(0.1)


@pytest.fixture
def early(kafka_node: KafkaNode, redis_node: RedisNode, tmp_path: Path) -> Iterator[Early]:
    kafka_node.stop()
    redis_node.stop()
    made = Early(kafka_node, redis_node, tmp_path)
    yield made
    for process in made.started:
        process.terminate()
    for process in made.started:
        process.wait(DEADLINE_S)


def test_all_processes_wait_for_kafka_and_redis(early: Early, kafka_node: KafkaNode, redis_node: RedisNode) -> None:
    early.until(lambda: all("waiting for Kafka at" in early.said(name) for name in NAMES))
    kafka_node.start()
    early.until(lambda: all("Kafka at" in early.said(name) and " answers" in early.said(name) for name in NAMES))
    early.until(lambda: "waiting for Redis at" in early.said("estimate"))
    redis_node.start()
    early.until(lambda: all(early.get(name, "/ready")[0] == 200 for name in ("agent", "estimate", "gateway")))
    early.until(lambda: counted(early.get("agent", "/metrics")[1]) == 500)
    for process in early.started:
        process.terminate()
    for process in early.started:
        process.wait(DEADLINE_S)
    assert [name for name in ("agent", "estimate", "gateway") if TOLD_TO_END not in early.said(name)] == []


def counted(metrics: str) -> int:
    """Number of reports that an agent has counted."""
    found = re.search(r"(?m)^ldpstream_reports_total (\S+)", metrics)
    return int(float(found[1])) if found else 0
