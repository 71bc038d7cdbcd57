"""Processes that start before Kafka and Redis wait for both services, then work."""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from ldpstream.runtime.process import TOLD_TO_END
from ldpstream.services.rehearse import rehearse

from .rig import KafkaNode, RedisNode, Services, free_ports, get, wait_until

ROOT = Path(__file__).parents[2]
NAMES = ("agent", "estimate", "gateway", "produce")


def test_all_processes_wait_for_kafka_and_redis(
    kernels: None, kafka_node: KafkaNode, redis_node: RedisNode, tmp_path: Path
) -> None:
    """Step 0 of the survey lasts an hour."""
    kafka_node.stop()
    redis_node.stop()
    text = (ROOT / "surveys" / "samples" / "demo.toml").read_text()
    (tmp_path / "source.toml").write_text(text.replace('name = "demo"', f'name = "early-{os.getpid()}-{time.time_ns()}"'))
    rehearse(tmp_path / "source.toml", tmp_path / "now.toml", 3600, now_s=time.time())
    ports = dict(zip((*NAMES, "front"), map(str, free_ports(5)), strict=True))
    services = Services(kafka_node.bootstrap, redis_node.url, tmp_path)
    services.env |= {"LDPSTREAM_PAGE_PORT": "0", "LDPSTREAM_GATEWAY_PORT": ports["front"]}

    def said(number: int) -> str:
        return (tmp_path / f"{NAMES[number]}-{number}.log").read_text()

    def until(condition: Callable[[], bool]) -> None:
        def well() -> bool:
            assert all(process.poll() is None for process in services.running), services.logs()
            return condition()

        wait_until(well, services.logs)

    def ready(name: str) -> bool:
        return get(f"http://127.0.0.1:{ports[name]}/ready")[0] == 200

    try:
        for name in NAMES:
            options = ["--users", "500"] if name == "produce" else []
            services.start(name, tmp_path / "now.toml", *options, LDPSTREAM_METRICS_PORT=ports[name])
        until(lambda: all("waiting for Kafka at" in said(number) for number in range(4)))
        kafka_node.start()
        until(lambda: all(re.search("Kafka at .* answers", said(number)) for number in range(4)))
        until(lambda: "waiting for Redis at" in said(NAMES.index("estimate")))
        redis_node.start()
        until(lambda: all(map(ready, NAMES[:3])))
        until(lambda: counted(get(f"http://127.0.0.1:{ports['agent']}/metrics")[1]) == 500)
    finally:
        services.stop()
    assert all(TOLD_TO_END in said(number) for number in range(3))


def counted(metrics: str) -> int:
    """Number of reports that an agent has counted."""
    found = re.search(r"(?m)^ldpstream_reports_total (\S+)", metrics)
    return int(float(found[1])) if found else 0
