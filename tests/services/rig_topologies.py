"""Redis-servers under a Sentinel: a master with a replica."""

import contextlib
import time
from functools import partial
from types import TracebackType
from typing import Self

import redis

from .rig import LOOPBACK, PATIENCE_S, Pausable, RedisNode, free_ports, temporary_folder, wait_until

# The Sentinel treats a node as dead after this time without an answer. Even a busy machine answers sooner.
DEAD_MS = 60_000
KILLED_MS = 3000  # the same time, once a test has killed the master


class SentinelNode(Pausable):
    """One Sentinel, which decides alone (quorum 1).

    Args:
        master: the master that the Sentinel monitors.
        service: the Sentinel's name for that master.
        password: password that the Sentinel requires of clients, or None.
        lines: further lines of the Sentinel's configuration.
    """

    def __init__(self, master: RedisNode, service: str, password: str | None = None, lines: tuple[str, ...] = ()) -> None:
        super().__init__("sentinel", free_ports(1), temporary_folder("sentinel"))
        host, port = master.address
        settings = [f"port {self._ports[0]}", f"bind {LOOPBACK}", *([f"requirepass {password}"] if password else [])]
        settings += [f"sentinel monitor {service} {host} {port} 1", f"sentinel down-after-milliseconds {service} {DEAD_MS}"]
        settings += [f"sentinel failover-timeout {service} 3000", *lines]
        self._password = password
        self._file = self.folder / "sentinel.conf"
        self._file.write_text("\n".join(settings) + "\n")

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{LOOPBACK}:{self._ports[0]}"

    def client(self) -> redis.Redis:
        """A client of the Sentinel."""
        return redis.Redis(LOOPBACK, self._ports[0], password=self._password, socket_timeout=30)

    def start(self) -> None:
        self._launch(["redis-server", str(self._file), "--sentinel"])
        self._wait_for_port(time.monotonic() + PATIENCE_S)


class WatchedRedis:
    """A master, its replica, and a Sentinel that promotes the replica when the master fails.

    Args:
        service: the Sentinel's name for the master.
        sentinel_password: password that the Sentinel requires of clients, or None.
    """

    def __init__(self, service: str = "counts", sentinel_password: str | None = None) -> None:
        self._started = contextlib.ExitStack()
        self.service = service
        at_once = ["--repl-diskless-sync-delay", "0"]
        self.master = RedisNode(options=at_once)
        host, port = self.master.address
        self.replica = RedisNode(options=["--replicaof", f"{host} {port}", *at_once])
        self.sentinel = SentinelNode(self.master, service, sentinel_password)

    @property
    def url(self) -> str:
        """URL of the master, found through the Sentinel."""
        return f"redis+sentinel://{self.sentinel.address}/{self.service}/0"

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._started.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None) -> None:
        self._started.close()

    def _start(self) -> None:
        for node in (self.master, self.replica):
            self._started.enter_context(node)
        with self.replica.client() as client:
            wait_until(lambda: client.info("replication")["master_link_status"] == "up", lambda: "the replica is connected")
        self._started.enter_context(self.sentinel)
        with self.sentinel.client() as client:

            def known() -> bool:
                return [replica["master-link-status"] for replica in client.sentinel_slaves(self.service)] == ["ok"]

            wait_until(known, lambda: "the Sentinel knows the replica")

    def await_replica(self) -> None:
        """Waits until the replica has all the master's writes."""
        with self.master.client() as client:
            wait_until(lambda: client.wait(1, 1000) == 1, lambda: "the replica has all writes")

    def kill_master(self) -> None:
        """Kills the master. The Sentinel then promotes the replica."""
        self.master.kill()
        with self.sentinel.client() as client:
            client.sentinel_set(self.service, "down-after-milliseconds", KILLED_MS)

    def fail_over(self) -> None:
        """Kills the master, and waits until the replica has become master."""
        self.kill_master()
        self.await_promotion()

    def cut_replica_off(self) -> None:
        """Pauses the replica and closes its connection. The replica misses all writes until `replica.resume()`."""
        self.replica.pause()
        with self.master.client() as client:  # otherwise the connection would buffer the writes for the replica
            client.client_kill_filter(_type="replica")

    def await_promotion(self) -> None:
        """Waits until the replica is master and the Sentinel reports it as master."""
        with self.replica.client() as client:
            wait_until(lambda: client.info("replication")["role"] == "master", lambda: "the replica is master")
        with self.sentinel.client() as client:
            master = partial(client.sentinel_master, self.service)
            wait_until(lambda: master()["port"] == self.replica.address[1], lambda: "the Sentinel agrees")
