"""A real Apache Kafka and a real Redis on loopback, for the tests and for trying things on one's own machine.

    python -m tests.services.rig      starts both, prints their addresses, ends them at Ctrl-C

Each node owns a temporary folder and one process. It signals that process alone, by the handle it got when it started
it, and the process does not outlive us: it is ended at exit, and where util-linux's `setpriv` exists also when we are
killed.
"""

import atexit
import contextlib
import fcntl
import functools
import itertools
import os
import random
import re
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
from kafka.errors import KafkaError

from . import kafka_jars

JAVA_RELEASE = 17  # the least that a Kafka 4 broker runs on
CLUSTER_ID = "bGRwc3RyZWFtLWxvY2FsMQ"  # any 16 bytes in URL-safe base 64
LOOPBACK = "127.0.0.1"

# Below every system's range for outgoing connections. A port from inside it can be lost while a node is down: a client
# that keeps trying to reconnect to a closed loopback port may be given that very port as its own end, and so connect to
# itself.
PORTS = range(20_000, 30_000)

PATIENCE_S = 240.0  # how long a test waits for what must come; only a failure takes so long, on the busiest machine
ENDED_S = 30.0  # a process promises to end within 10 s of being told to; a machine that is three times too busy is allowed this

# `setpriv --pdeathsig` ends a process with the *thread* that started it, so all are started from one that lives as long
# as we do; started from an event loop's executor, a broker would die with that loop.
_launcher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rig")


class NodeError(RuntimeError):
    """A node did not come up, or died; the message holds the end of its log."""


def missing(*, kafka: bool = True, redis: bool = True) -> str | None:
    """Why the nodes can't run on this machine, or None if they can.

    Args:
        kafka: whether a `KafkaNode` is wanted.
        redis: whether a `RedisNode` is wanted.
    """
    reasons = []
    if kafka and (reason := _java_missing()):
        reasons.append(reason)
    if kafka and not kafka_jars.cached() and shutil.which("mvn") is None:
        reasons.append(f"neither the jars of Kafka in {kafka_jars.jars_dir()} nor Maven (mvn) to fetch them")
    if redis and shutil.which("redis-server") is None:
        reasons.append("no redis-server on PATH")
    return f"{'; '.join(reasons)} (deploy/local/setup_services.sh installs it)" if reasons else None


def _java_path() -> str | None:
    """The `java` that runs the broker: of `$JAVA_HOME`, else of PATH."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")


@functools.cache  # starting a Java machine takes a tenth of a second
def _java_missing() -> str | None:
    command = _java_path()
    if command is None:
        return f"no java (at least {JAVA_RELEASE}) in JAVA_HOME or on PATH"
    said = subprocess.run([command, "-version"], capture_output=True, text=True, errors="replace", check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_RELEASE:
        return f"{command} is no Java {JAVA_RELEASE} or later"
    return None


def wait_until(well: Callable[[], object], what: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
    """Return when that holds; who does not listen yet counts as no. `what` says what there is instead, for the failure."""
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(OSError):
            if well():
                return
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what()}"
        time.sleep(0.05)


_claims: list[IO[bytes]] = []


def free_ports(n_ports: int) -> list[int]:
    """`n_ports` loopback ports that nobody listens on now, drawn at random from `PORTS`.

    They stay ours until this process ends: neither it nor another run of the tests draws one of them again.
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
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections that linger don't count
        try:
            attempt.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


class Node:
    """One server process on loopback with its temporary folder: what Kafka and Redis have in common.

    A context manager: entering starts the process, leaving ends it and deletes the folder.
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
        """Whether the process is alive, be it paused or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process's id; raises `NodeError` when it is not running."""
        return self._alive().pid

    def start(self) -> None:
        """Start the server, again on the same data and port after a stop, and return when it serves."""
        raise NotImplementedError

    def stop(self, timeout_s: float = 15) -> None:
        """End the process in order (SIGTERM), or by SIGKILL if that takes longer than `timeout_s`.

        Does nothing if it is not running.
        """
        if self._process is None:
            return
        if self.running:
            self._process.send_signal(signal.SIGCONT)  # a paused process would never see the SIGTERM
            self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL: the process ends at once, with nothing written that it had not written already."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered, as with a machine that hangs."""
        self._alive().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: go on after `pause`."""
        self._alive().send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop the process and delete its data. The node cannot be started again."""
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
        """Start `command` in its own session (Ctrl-C is for us, not for it), its output appended to the node's log."""
        if self.running:
            raise NodeError(f"{self.name} is running already (process {self.pid})")
        for port in self._ports:
            if not _is_free(port):  # else we would wait for, and talk to, whoever is there
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
        """The error to raise when the server did not come up; ends what is left of it."""
        self.kill()
        tail = "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-25:])
        return NodeError(f"{self.name} {what}; its log ends:\n{tail or '(empty)'}")

    def _wait_for_port(self, deadline: float) -> None:
        """Return when the first port takes a connection; raise if the process ends first, or at `deadline`."""
        while time.monotonic() < deadline:
            if not self.running:
                raise self._failed("ended before it served")
            try:
                socket.create_connection((LOOPBACK, self._ports[0]), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise self._failed("did not open its port in time")


def _spawn(command: list[str], folder: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    silent = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=folder, stdin=silent, stdout=log, stderr=log, start_new_session=True)


class KafkaNode(Node):
    """One Apache Kafka, broker and KRaft controller in one process, with topics made by request only.

        with KafkaNode() as node:
            KafkaProducer(bootstrap_servers=node.bootstrap)

    Raises:
        kafka_jars.JarsError: on making one, if the jars cannot be had.
        NodeError: on starting it, if it does not serve within `start_timeout_s`.
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
        """`host:port` for a client's `bootstrap_servers`; stays the same over restarts."""
        return f"{LOOPBACK}:{self._ports[0]}"

    @property
    def admin_options(self) -> dict[str, Any]:
        """What kafka-python's clients need to do everything here."""
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
            # One broker, and short internal logs, which it creates when the first group or transaction comes.
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            # A killed broker's registration must run out before it may register again; by default after 9 s.
            "broker.session.timeout.ms": 2000,
            "broker.heartbeat.interval.ms": 500,
            # Groups form at once, and tests may let a member time out quickly.
            "group.initial.rebalance.delay.ms": 0,
            "group.min.session.timeout.ms": 1000,
            "log.cleaner.dedupe.buffer.size": 4 << 20,  # a quarter of our heap by default
        }

    def start(self) -> None:
        """Start the broker, on its old data if it has any, and return when it answers an administrator's request."""
        deadline = time.monotonic() + self.start_timeout_s
        if not (self.folder / "data").exists():
            self._format()
        self._launch([*self._java(), "kafka.Kafka", str(self._settings)])
        self._wait_for_port(deadline)
        remaining_ms = max(1, int((deadline - time.monotonic()) * 1000))
        try:
            with KafkaAdminClient(**self.admin_options, bootstrap_timeout_ms=remaining_ms) as admin:
                admin.list_topics()
        except KafkaError as err:
            raise self._failed(f"opened its port but did not answer ({err!r})") from err

    def _format(self, *more: str) -> None:
        command = [*self._java(), "kafka.tools.StorageTool", "format", "--standalone"]
        command += ["--cluster-id", CLUSTER_ID, "--config", str(self._settings), *more]
        with self.log.open("ab") as log:
            code = subprocess.run(command, stdout=log, stderr=log, cwd=self.folder, check=False).returncode
        if code != 0:
            raise self._failed(f"could not format its folder (exit code {code})")

    def _java(self) -> list[str]:
        """The Java machine and its options, for a fast start: small heap, simplest collector, quick compiler."""
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        options += ["-Dlog4j2.level=WARN", "-Dlog4j2.disable.jmx=true"]  # and log4j's own defaults: to standard output
        return [_java_path() or "java", *options, "-cp", self._class_path]


class RedisNode(Node):
    """One redis-server, as found on PATH.

        with RedisNode() as node:
            redis.Redis.from_url(node.url)

    Args:
        append_fsync: when the append-only file reaches the disk, as Redis names it; None keeps everything in memory.
            With any of the three, what was answered outlives a kill of the process (not of the machine).
        start_timeout_s: seconds to wait until it serves.
        options: further options of redis-server, ``["--maxmemory", "1mb"]``.
        n_ports: how many ports it needs.
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
        """Host and port; stay the same over restarts."""
        return LOOPBACK, self._ports[0]

    def client(self) -> redis.Redis:
        """A client that may do everything here, with an answer or an error within ten seconds."""
        return redis.Redis.from_url(self.url, socket_timeout=10)

    @property
    def url(self) -> str:
        """Its logical database 0; stays the same over restarts."""
        return f"redis://{LOOPBACK}:{self._ports[0]}/0"

    def start(self) -> None:
        """Start the server, on its old append-only file if it has one, and return when it has loaded it and answers."""
        deadline = time.monotonic() + self.start_timeout_s
        command = ["redis-server", "--bind", LOOPBACK, "--port", str(self._ports[0]), "--dir", str(self.folder)]
        command += ["--save", "", "--appendonly", "yes" if self._append_fsync else "no"]
        if self._append_fsync:
            command += ["--appendfsync", self._append_fsync]
        self._launch(command + self._options)
        self._wait_for_port(deadline)
        with self.client() as client:
            while time.monotonic() < deadline:
                with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):  # "loading" is a ConnectionError
                    client.ping()
                    return
                time.sleep(0.02)
        raise self._failed("did not answer a ping in time")


def main() -> int:
    """Run a Kafka and a Redis until Ctrl-C, with what to export so that the commands find them."""
    if reason := missing():
        print(f"rig: {reason}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` tidies up as Ctrl-C does
    try:
        with contextlib.suppress(KeyboardInterrupt), KafkaNode() as kafka, RedisNode() as store:
            print(f"export LDPSTREAM_KAFKA={kafka.bootstrap}\nexport LDPSTREAM_REDIS={store.url}", flush=True)
            print("Both run until Ctrl-C; their data is deleted then.", file=sys.stderr)
            signal.pause()
    except (kafka_jars.JarsError, NodeError) as err:
        print(f"rig: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
