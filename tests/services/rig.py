"""Starts a real Apache Kafka and a real Redis on loopback, for tests and local experiments.

    python -m tests.services.rig      starts both, prints their addresses, ends them at Ctrl-C

Each node owns a temporary folder and one server process, and sends signals only to this server. The server ends when our
process exits. If util-linux's `setpriv` is installed, the server also ends when our process is killed.
"""

import atexit
import contextlib
import fcntl
import functools
import itertools
import os
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Literal, Self

import redis
from kafka import KafkaAdminClient
from kafka.errors import KafkaError, TopicAlreadyExistsError

from . import kafka_jars

JAVA_RELEASE = 17  # the oldest release that runs a Kafka 4 broker
CLUSTER_ID = "bGRwc3RyZWFtLWxvY2FsMQ"  # any 16 bytes in URL-safe base 64
LOOPBACK = "127.0.0.1"

# These ports are below every system's range for outgoing connections. A stopped node could lose a port inside that range: a
# client that reconnects to the closed loopback port may get the same port as its source port, and connect to itself.
PORTS = range(20_000, 30_000)

PATIENCE_S = 240.0  # longest wait in a test, then the test fails; enough for a very busy machine
ENDED_S = 30.0  # a process ends within 10 s of SIGTERM; a busy machine may need three times as long

# `setpriv --pdeathsig` ends a process together with the *thread* that started the process. One thread therefore starts all
# servers, and lives as long as our process. A broker started from an event loop's executor would end with the event loop.
_launcher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rig")


class NodeError(RuntimeError):
    """A node did not start, or died. The message contains the end of the node's log."""


def missing(*, kafka: bool = True, redis: bool = True) -> str | None:
    """Returns the reason why the nodes cannot run on this machine; None if they can run.

    Args:
        kafka: True if a `KafkaNode` is needed.
        redis: True if a `RedisNode` is needed.
    """
    reasons = []
    if kafka and (reason := _java_missing()):
        reasons.append(reason)
    if kafka and not kafka_jars.cached() and shutil.which("mvn") is None:
        reasons.append(f"no jars of Kafka in {kafka_jars.jars_dir()} and no Maven (mvn) to fetch them")
    if redis and shutil.which("redis-server") is None:
        reasons.append("no redis-server on PATH")
    return f"{'; '.join(reasons)} (deploy/local/setup_services.sh installs it)" if reasons else None


def _java_path() -> str | None:
    """The `java` that runs the broker: from `$JAVA_HOME`, otherwise from PATH."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")


@functools.cache  # starting a Java virtual machine takes 0.1 s
def _java_missing() -> str | None:
    command = _java_path()
    if command is None:
        return f"no java (at least {JAVA_RELEASE}) in JAVA_HOME or on PATH"
    said = subprocess.run([command, "-version"], capture_output=True, text=True, errors="replace", check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_RELEASE:
        return f"{command} is not Java {JAVA_RELEASE} or later"
    return None


def wait_until(well: Callable[[], object], what: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
    """Waits until `well` returns true; an OSError is treated as false. The failure message shows `what`."""
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(OSError):
            if well():
                return
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what()}"
        time.sleep(0.05)


_claims: list[IO[bytes]] = []


def free_ports(n_ports: int) -> list[int]:
    """Returns `n_ports` loopback ports without a listener, drawn at random from `PORTS`.

    The ports stay reserved until this process ends: no test run, not even this one, draws a reserved port.
    """
    free = (port for port in random.sample(PORTS, k=len(PORTS)) if _is_free(port) and _claim(port))
    return list(itertools.islice(free, n_ports))


def _claim(port: int) -> bool:
    folder = Path(tempfile.gettempdir()) / f"ldpstream-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    claim = (folder / str(port)).open("ab")
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore closed connections that linger
        try:
            attempt.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


class Node:
    """Base class of the Kafka and Redis nodes: one server process on loopback with its temporary folder.

    A context manager: `__enter__` starts the process; `__exit__` ends the process and deletes the folder.
    """

    def __init__(self, name: str, n_ports: int) -> None:
        self.name = name
        self.folder = Path(tempfile.mkdtemp(prefix=f"ldpstream-{name}-"))
        self.log = self.folder / f"{name}.log"
        self._ports = free_ports(n_ports)
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    @property
    def running(self) -> bool:
        """True if the process is alive, even if it is paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id. Raises `NodeError` if the process is not running."""
        return self._alive().pid

    def start(self) -> None:
        """Starts the server and returns when the server answers. A restarted server uses the same folder and port."""
        raise NotImplementedError

    def stop(self, timeout_s: float = 15) -> None:
        """Ends the process by SIGTERM, or by SIGKILL if the process still runs after `timeout_s` seconds.

        Does nothing if the process is not running.
        """
        if self._process is None:
            return
        if self.running:
            self._process.send_signal(signal.SIGCONT)  # a paused process would not handle SIGTERM
            self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Sends SIGKILL: the process ends at once and writes nothing more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Stops every thread of the process: connections stay open but get no answer, as from a machine that hangs."""
        freeze(self._alive())

    def resume(self) -> None:
        """Sends SIGCONT: the process continues after `pause`."""
        self._alive().send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Stops the process and deletes its data. The node cannot be started again."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _launch(self, command: list[str]) -> None:
        """Starts `command` in a session that Ctrl-C does not reach. Appends the output to the node's log."""
        if self.running:
            raise NodeError(f"{self.name} is running already (process {self.pid})")
        for port in self._ports:
            if not _is_free(port):  # the tests would use another server on this port
                raise NodeError(f"{self.name} cannot start: port {port} of {LOOPBACK} is taken")
        setpriv = shutil.which("setpriv")
        whole = [setpriv, "--pdeathsig", "KILL", *command] if setpriv else command
        with self.log.open("ab") as log:
            self._process = _launcher.submit(_spawn, whole, self.folder, log).result()

    def _alive(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise NodeError(f"{self.name} is not running")
        return self._process

    def _failed(self, what: str) -> NodeError:
        """Kills the process, and returns the error to raise for a server that did not start."""
        self.kill()
        tail = "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-25:])
        return NodeError(f"{self.name} {what}; its log ends:\n{tail or '(empty)'}")

    def _wait_for_port(self, deadline: float) -> None:
        """Returns when the first port accepts a connection. Raises if the process ends first, or at `deadline`."""
        while time.monotonic() < deadline:
            if not self.running:
                raise self._failed("ended before it served")
            try:
                socket.create_connection((LOOPBACK, self._ports[0]), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise self._failed("did not open its port in time")


def freeze(process: subprocess.Popen[Any]) -> None:
    """Sends SIGSTOP and returns when every thread of `process` has stopped.

    `send_signal` alone returns earlier: on a busy machine the process still answers for some milliseconds.
    """
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def _spawn(command: list[str], folder: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    silent = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=folder, stdin=silent, stdout=log, stderr=log, start_new_session=True)


class KafkaNode(Node):
    """One Apache Kafka: broker and KRaft controller in one process, without automatic creation of topics.

        with KafkaNode() as node:
            KafkaProducer(bootstrap_servers=node.bootstrap)

    Raises:
        kafka_jars.JarsError: from the constructor, if the jars cannot be fetched.
        NodeError: from `start`, if the broker does not serve within `start_timeout_s`.
    """

    def __init__(self, start_timeout_s: float = PATIENCE_S, n_ports: int = 2) -> None:
        jars = kafka_jars.fetch()
        super().__init__("kafka", n_ports)
        self.start_timeout_s = start_timeout_s
        self._class_path = str(jars / "*")
        self._settings = self.folder / "server.properties"
        lines = [f"{key}={value}\n" for key, value in self._properties().items()]
        self._settings.write_text("".join(lines), encoding="utf-8")

    @property
    def bootstrap(self) -> str:
        """`host:port` for a client's `bootstrap_servers`. A restart keeps host and port."""
        return f"{LOOPBACK}:{self._ports[0]}"

    @property
    def admin_options(self) -> dict[str, Any]:
        """Options for a client of kafka-python that has all rights."""
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
            "log.cleaner.dedupe.buffer.size": 4 << 20,  # the default would be a quarter of our heap
        }

    def start(self) -> None:
        """Starts the broker, with its old data if any exists. Returns when the broker serves clients."""
        deadline = time.monotonic() + self.start_timeout_s
        if not (self.folder / "data").exists():
            self._format()
        self._launch([*self._java(), "kafka.Kafka", str(self._settings)])
        self._wait_for_port(deadline)
        self._wait_until_serving(deadline)

    def resume(self) -> None:
        """Sends SIGCONT, and returns when the broker serves clients again."""
        super().resume()
        self._wait_until_serving(time.monotonic() + self.start_timeout_s)

    def _wait_until_serving(self, deadline: float) -> None:
        """Returns when the broker has created a topic and shows it to clients. Raises if the broker ends, or at `deadline`.

        After a pause or a restart, the controller may find that the broker's session has expired. Until the next heartbeat,
        the broker lists no brokers and no leaders. This can begin some time after the first good answer. The controller
        handles an expired session before it creates a topic. Clients see the topic only after the session is restored.
        """
        topic = f"rig-{secrets.token_hex(6)}"
        while True:
            remaining_ms = max(1, int((deadline - time.monotonic()) * 1000))
            try:
                with KafkaAdminClient(**self.admin_options, bootstrap_timeout_ms=remaining_ms) as admin:
                    with contextlib.suppress(TopicAlreadyExistsError):  # an earlier attempt created the topic
                        admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
                    admin.wait_for_topics([topic], timeout_ms=remaining_ms)
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
        """The Java command with options for a fast start: small heap, serial garbage collector, quick compiler."""
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        options += ["-Dlog4j2.level=WARN", "-Dlog4j2.disable.jmx=true"]  # log4j writes to standard output by default
        return [_java_path() or "java", *options, "-cp", self._class_path]


class RedisNode(Node):
    """One redis-server, as found on PATH.

        with RedisNode() as node:
            redis.Redis.from_url(node.url)

    Args:
        append_fsync: Redis's setting `appendfsync`; None keeps everything in memory. With any of Redis's three values,
            acknowledged writes survive a kill of the process (not of the machine).
        start_timeout_s: seconds to wait until the server answers.
        options: further options of redis-server, such as ``["--maxmemory", "1mb"]``.
        n_ports: number of ports that the server needs.
    """

    def __init__(
        self,
        append_fsync: Literal["always", "everysec", "no"] | None = "everysec",
        start_timeout_s: float = PATIENCE_S,
        options: Sequence[str] = (),
        n_ports: int = 1,
    ) -> None:
        super().__init__("redis", n_ports)
        self.start_timeout_s = start_timeout_s
        self._append_fsync = append_fsync
        self._options = list(options)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port; a restart keeps both."""
        return LOOPBACK, self._ports[0]

    def client(self) -> redis.Redis:
        """A client with all rights and a timeout of 10 s."""
        return redis.Redis.from_url(self.url, socket_timeout=30)

    @property
    def url(self) -> str:
        """URL of logical database 0; a restart does not change the URL."""
        return f"redis://{LOOPBACK}:{self._ports[0]}/0"

    def start(self) -> None:
        """Starts the server, which loads its append-only file if there is one. Returns when the server answers."""
        deadline = time.monotonic() + self.start_timeout_s
        command = ["redis-server", "--bind", LOOPBACK, "--port", str(self._ports[0]), "--dir", str(self.folder)]
        command += ["--save", "", "--appendonly", "yes" if self._append_fsync else "no"]
        if self._append_fsync:
            command += ["--appendfsync", self._append_fsync]
        self._launch(command + self._options)
        self._wait_for_port(deadline)
        with self.client() as client:
            while time.monotonic() < deadline:
                with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):  # refused while the server loads its data
                    client.ping()
                    return
                time.sleep(0.02)
        raise self._failed("did not answer a ping in time")


def main() -> int:
    """Runs a Kafka and a Redis until Ctrl-C, and prints the variables to export for the commands."""
    if reason := missing():
        print(f"rig: {reason}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM cleans up like Ctrl-C
    try:
        with contextlib.suppress(KeyboardInterrupt), KafkaNode() as kafka, RedisNode() as store:
            print(f"export LDPSTREAM_KAFKA={kafka.bootstrap}\nexport LDPSTREAM_REDIS={store.url}", flush=True)
            print("Both run until Ctrl-C, which also deletes their data.", file=sys.stderr)
            signal.pause()
    except (kafka_jars.JarsError, NodeError) as err:
        print(f"rig: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
