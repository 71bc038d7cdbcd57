"""Nodes for tests: a real Apache Kafka and a real Redis on loopback, in temporary folders, which tests may pause."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError
from redis import RedisError

from deploy.local import servers
from deploy.local.children import start_child
from deploy.local.nodes import Node, NodeError
from deploy.local.ports import LOOPBACK, free_ports
from ldpstream.engines.kafka.redis_connection import connect
from ldpstream.engines.kafka.redis_results import RedisResults
from ldpstream.publishing.progress import Progress
from ldpstream.publishing.results import KeptResults
from ldpstream.runtime.errors import wait_for
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import load_survey

T = TypeVar("T")

__all__ = [
    "ENDED_S", "LOOPBACK", "PATIENCE_S", "STOPPED", "KafkaNode", "NodeError", "Pausable", "RedisNode", "Services",
    "free_ports", "freeze", "get", "missing", "patiently", "read_records", "start_command", "temporary_folder", "wait_until",
]  # fmt: skip

PATIENCE_S = 240.0  # longest wait in a test, then the test fails; enough for a very busy machine
# A process ends within 10 s of SIGTERM, on a busy machine later. Without a deadline, an agent takes 88 s if Kafka hangs.
ENDED_S = 60.0
# Exit statuses of an agent after SIGTERM. On a busy machine the alarm of `runtime.process` may end the agent.
STOPPED = (0, -signal.SIGALRM)


def missing(*, kafka: bool = True, redis: bool = True) -> str | None:
    """Returns the reason why the nodes cannot run on this machine; None if they can run.

    Args:
        kafka: True if a `KafkaNode` is needed.
        redis: True if a `RedisNode` is needed.
    """
    reason = servers.missing(kafka=kafka, redis=redis)
    return reason and f"{reason} (deploy/local/setup_services.sh installs it)"


def wait_until(well: Callable[[], object], what: Callable[[], object]) -> None:
    """Waits until `well` returns true; an OSError or RedisError is treated as false. The failure message shows `what`."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(OSError, RedisError):
            if well():
                return
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what()}"
        time.sleep(0.05)


def get(url: str) -> tuple[int, str]:
    """Returns the status and the text of the answer to a GET, also of a refusal. Raises OSError without an answer."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


COLLECTOR = "a-collector-of-the-tests"
COLLECTS = {"Authorization": f"Bearer {COLLECTOR}"}


def with_collector(folder: Path) -> dict[str, str]:
    """Writes a tokens file with `COLLECTOR`, and returns the setting that names the file."""
    path = folder / "tokens"
    path.write_text(f"collector {COLLECTOR}\n")
    return {"LDPSTREAM_GATEWAY_TOKENS_FILE": str(path)}


def start_command(log: Path, env: Mapping[str, str], *command: object, through: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Starts a command of ldpstream in the folder of its log, and appends its output to the log.

    Args:
        through: a program that starts the command, with its arguments.
    """
    with log.open("ab") as out:
        line = [*through, sys.executable, "-m", "ldpstream", *map(str, command)]
        return start_child(line, env=env, cwd=log.parent, stdout=out, stderr=out)


def reached(progress: Progress | None, step: int) -> bool:
    """True if all steps through this one are final."""
    return progress is not None and progress.first_open > step


class Services:
    """Runs commands of ldpstream as processes."""

    def __init__(self, kafka: str, redis_url: str, folder: Path) -> None:
        self.metrics_port = free_ports(1)[0]
        self.folder = folder
        self.env = {
            **os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "LDPSTREAM_KAFKA": kafka, "LDPSTREAM_REDIS": redis_url,
            "LDPSTREAM_PARTITIONS": "4",
        }  # fmt: skip
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: object, **settings: str) -> subprocess.Popen[bytes]:
        log = self.folder / f"{arguments[0]}-{len(self.running)}.log"
        self.running.append(start_command(log, self.env | settings, *arguments))
        return self.running[-1]

    def estimate(self, survey_file: Path, last: int) -> dict[str, Any]:
        """Runs the estimator until all steps through `last` are final; returns the publications as in JSON, by key."""
        survey = load_survey(survey_file)
        process = self.start("estimate", survey_file, LDPSTREAM_PAGE_PORT="0", LDPSTREAM_METRICS_PORT=str(self.metrics_port))
        wait_until(lambda: get(f"http://127.0.0.1:{self.metrics_port}/ready")[0] == 200, self.logs)
        with closing(connect(Settings(redis=self.env["LDPSTREAM_REDIS"]))) as client:
            results = KeptResults(survey, RedisResults(survey, client))
            wait_until(lambda: reached(results.progress(), last), self.logs)
            process.terminate()
            self.finish(process, STOPPED)
            return {p.key: msgspec.to_builtins(p) for p in results.history()}

    def finish(self, process: subprocess.Popen[bytes], statuses: Sequence[int] = (0,)) -> None:
        """Waits for the process to end with one of these statuses."""
        try:
            status = process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            status = None
        assert status in statuses, (status, self.logs())

    def logs(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in sorted(self.folder.glob("*.log")))

    def stop(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.terminate()
        for process in self.running:
            process.wait(PATIENCE_S)


def patiently(ask: Callable[[], T]) -> T:
    """Retries while Kafka does not answer in time, as our processes do at their start."""
    deadline = time.monotonic() + PATIENCE_S

    def stop(seconds: float) -> bool:
        time.sleep(seconds)
        return time.monotonic() > deadline

    return wait_for("Kafka", ask, stop, print)


def read_records(kafka: str, topic: str, **options: Any) -> list[Any]:
    """Returns all records of a topic; those of a partition are in order.

    Starts again after an error: on a busy machine the broker's session may expire, and the broker then lists no brokers.
    """

    def read() -> list[Any]:
        with KafkaConsumer(bootstrap_servers=kafka, group_id=None, **options) as consumer:
            partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            ends, found = consumer.end_offsets(partitions), list[Any]()
            while any(consumer.position(partition) < ends[partition] for partition in partitions):
                found += [record for records in consumer.poll(timeout_ms=500).values() for record in records]
            return found

    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return read()
        except KafkaError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def freeze(process: subprocess.Popen[Any]) -> None:
    """Sends SIGSTOP and returns when every thread of `process` has stopped.

    `send_signal` alone returns earlier: on a busy machine the process still answers for some milliseconds.
    """
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def temporary_folder(name: str) -> Path:
    """A new folder for a node; `Pausable.close` deletes it."""
    return Path(tempfile.mkdtemp(prefix=f"ldpstream-{name}-"))


class Pausable(Node):
    """A node that tests may pause, and whose `close` deletes its folder."""

    def pause(self) -> None:
        """Stops every thread of the process: connections stay open but get no answer, as from a machine that hangs."""
        freeze(self._alive())

    def resume(self) -> None:
        """Sends SIGCONT: the process continues after `pause`."""
        self._alive().send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Stops the process and deletes its data. The node cannot be started again."""
        super().close()
        shutil.rmtree(self.folder, ignore_errors=True)


class KafkaNode(Pausable, servers.KafkaNode):
    """Kafka in a temporary folder.

        with KafkaNode() as node:
            KafkaProducer(bootstrap_servers=node.bootstrap)

    Args:
        n_ports: number of ports that the broker needs.
    """

    def __init__(self, n_ports: int = 2) -> None:
        super().__init__(free_ports(n_ports), temporary_folder("kafka"), PATIENCE_S)

    def resume(self) -> None:
        """Sends SIGCONT, and returns when the broker serves clients again."""
        super().resume()
        self._wait_until_serving(time.monotonic() + self.start_timeout_s)


class RedisNode(Pausable, servers.RedisNode):
    """Redis in a temporary folder.

        with RedisNode() as node:
            redis.Redis.from_url(node.url)

    Args:
        append_fsync, options: as in `servers.RedisNode`.
        n_ports: number of ports that the server needs.
    """

    def __init__(
        self,
        append_fsync: Literal["always", "everysec", "no"] | None = "everysec",
        options: Sequence[str] = (),
        n_ports: int = 1,
    ) -> None:
        super().__init__(free_ports(n_ports), temporary_folder("redis"), PATIENCE_S, append_fsync, options)
