"""Apache Kafka and Redis as nodes: one server process each, on loopback."""

import contextlib
import functools
import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import redis
from kafka import KafkaAdminClient
from kafka.errors import KafkaError, TopicAlreadyExistsError

from deploy.local import kafka_jars
from deploy.local.nodes import START_S, Node
from ldpstream.services.trial.ports import LOOPBACK

JAVA_RELEASE = 17  # the oldest release that runs a Kafka 4 broker
CLUSTER_ID = "bGRwc3RyZWFtLWxvY2FsMQ"  # any 16 bytes in URL-safe base 64


def missing(*, kafka: bool = True, redis: bool = True) -> str | None:
    """Returns what to install before the nodes can run on this machine; None if they can run."""
    reasons = []
    if kafka and (reason := _java_missing()):
        reasons.append(reason)
    if kafka and not kafka_jars.cached() and shutil.which("mvn") is None:
        reasons.append(f"no jars of Kafka in {kafka_jars.jars_dir()} and no Maven (mvn) to fetch them: install maven")
    if redis and shutil.which("redis-server") is None:
        reasons.append("no redis-server on PATH: install redis-server")
    return "; ".join(reasons) or None


def _java_path() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")


def _java_missing() -> str | None:
    command = _java_path()
    install = f"install Java {JAVA_RELEASE} or later, such as openjdk-{JAVA_RELEASE}-jre-headless"
    if command is None:
        return f"no java in JAVA_HOME or on PATH: {install}"
    return None if (release := _java_release(command)) >= JAVA_RELEASE else f"{command} is Java {release}: {install}"


@functools.cache  # starting a Java virtual machine takes 0.1 s
def _java_release(command: str) -> int:
    said = subprocess.run([command, "-version"], capture_output=True, text=True, errors="replace", check=False).stderr
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else 0


class KafkaNode(Node):
    """One Apache Kafka: broker and KRaft controller in one process, without automatic creation of topics.

    Raises:
        kafka_jars.JarsError: from the constructor, if the jars cannot be fetched.
        NodeError: from `start`, if the broker cannot start, or does not serve in time.
    """

    def __init__(self, ports: Sequence[int], folder: Path, start_timeout_s: float = START_S) -> None:
        jars = kafka_jars.fetch()
        super().__init__("kafka", ports, folder, start_timeout_s)
        self._class_path = str(jars / "*")
        self._settings = self.folder / "server.properties"
        lines = [f"{key}={value}\n" for key, value in self._properties().items()]
        self._settings.write_text("".join(lines), encoding="utf-8")

    @property
    def bootstrap(self) -> str:
        """`host:port` for a client's `bootstrap_servers`."""
        return f"{LOOPBACK}:{self._ports[0]}"

    @property
    def admin_options(self) -> dict[str, Any]:
        return {"bootstrap_servers": self.bootstrap}

    def _properties(self) -> dict[str, str | int | Path]:
        controller = f"{LOOPBACK}:{self._ports[1]}"
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.bootstrap.servers": controller,
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.folder / "data",
            "auto.create.topics.enable": "false",
            # Settings for one broker and for few internal partitions, which the first group or transaction creates.
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            # A killed broker can register again only after its old registration has expired, by default after 9 s.
            "broker.session.timeout.ms": 2000,
            "broker.heartbeat.interval.ms": 500,
            # Groups form at once, and tests may use short session timeouts.
            "group.initial.rebalance.delay.ms": 0,
            "group.min.session.timeout.ms": 1000,
            "log.cleaner.dedupe.buffer.size": 4 << 20,  # the default, 128 MiB, is a quarter of our heap
        }

    def start(self) -> None:
        deadline = time.monotonic() + self.start_timeout_s
        if not (self.folder / "data").exists():
            self._format()
        self._launch([*self._java(), "kafka.Kafka", str(self._settings)])
        self._wait_for_port(deadline)
        self._wait_until_serving(deadline)

    def _wait_until_serving(self, deadline: float) -> None:
        """Returns when the broker shows a new topic to clients, and answers about consumer groups."""
        topic = f"rig-{secrets.token_hex(6)}"
        while True:
            remaining_ms = max(1, int((deadline - time.monotonic()) * 1000))
            try:
                with KafkaAdminClient(**self.admin_options, bootstrap_timeout_ms=remaining_ms) as admin:
                    with contextlib.suppress(TopicAlreadyExistsError):  # an earlier attempt created the topic
                        admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
                    admin.wait_for_topics([topic], timeout_ms=remaining_ms)
                    admin.describe_groups([topic])  # until then, the broker may have no coordinator of groups
                    admin.delete_topics([topic])
                    return
            except KafkaError as err:
                if not self.running:
                    raise self._failed("ended before it served") from err
                if time.monotonic() > deadline:
                    raise self._failed(f"opened its port but did not serve ({err!r})") from err
                time.sleep(0.1)

    def _format(self, *more: str) -> None:
        command = [*self._java(), "kafka.tools.StorageTool", "format", "--standalone"]
        command += ["--cluster-id", CLUSTER_ID, "--config", str(self._settings), *more]
        with self.log.open("ab") as log:
            code = subprocess.run(command, stdout=log, stderr=log, cwd=self.folder, check=False).returncode
        if code != 0:
            raise self._failed(f"could not format its folder (exit code {code})")

    def _java(self) -> list[str]:
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        options += ["-Dlog4j2.level=WARN", "-Dlog4j2.disable.jmx=true"]  # log4j writes to standard output by default
        return [_java_path() or "java", *options, "-cp", self._class_path]


class RedisNode(Node):
    """One redis-server, as found on PATH.

    Args:
        append_fsync: Redis's setting `appendfsync`; None keeps everything in memory.
        options: further options of redis-server, such as ``["--maxmemory", "1mb"]``.
    """

    def __init__(
        self,
        ports: Sequence[int],
        folder: Path,
        start_timeout_s: float = START_S,
        append_fsync: Literal["always", "everysec", "no"] | None = "everysec",
        options: Sequence[str] = (),
    ) -> None:
        super().__init__("redis", ports, folder, start_timeout_s)
        self._append_fsync = append_fsync
        self._options = list(options)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port; a restart keeps both."""
        return LOOPBACK, self._ports[0]

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, socket_timeout=30)

    @property
    def url(self) -> str:
        """URL of logical database 0; a restart does not change the URL."""
        return f"redis://{LOOPBACK}:{self._ports[0]}/0"

    def start(self) -> None:
        deadline = time.monotonic() + self.start_timeout_s
        command = ["redis-server", "--bind", LOOPBACK, "--port", str(self._ports[0]), "--dir", str(self.folder)]
        command += ["--save", "", "--appendonly", "yes" if self._append_fsync else "no"]
        if self._append_fsync:
            command += ["--appendfsync", self._append_fsync]
        self._launch(command + self._options)
        self._wait_for_port(deadline)
        with self.client() as client:
            while time.monotonic() < deadline:
                with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):  # the server is loading its data
                    client.ping()
                    return
                time.sleep(0.02)
        raise self._failed("did not answer a ping in time")
