"""A server process on loopback.

A node sends signals only to its own process.
"""

import atexit
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from deploy.local.children import start_child
from ldpstream.services.trial.ports import LOOPBACK, is_free
from ldpstream.surveys.errors import UserError

START_S = 120.0  # longest time until a server answers


class NodeError(UserError, RuntimeError):
    """A node cannot start, is not running, or died."""


class Node(ABC):
    """Base class: one server process with a folder for its data and its log.

    A context manager: `__enter__` starts the process, `__exit__` ends it.

    Args:
        ports: the loopback ports that the server listens on, the most important port first.
        folder: folder for the data and the log; created if missing, and kept.
    """

    def __init__(self, name: str, ports: Sequence[int], folder: Path, start_timeout_s: float = START_S) -> None:
        self.name, self.folder, self.log = name, folder, folder / f"{name}.log"
        self.start_timeout_s = start_timeout_s
        self._ports = list(ports)
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        atexit.register(self.close)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id. Raises `NodeError` if the process is not running."""
        return self._alive().pid

    @abstractmethod
    def start(self) -> None:
        """Starts the process. Returns once a server answers; a `CommandNode` returns at once."""

    def tell_to_end(self) -> None:
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGCONT)  # a paused process would not handle SIGTERM
            self._process.terminate()

    def stop(self, timeout_s: float = 15) -> None:
        """Ends the process by SIGTERM, or by SIGKILL if the process still runs after `timeout_s` seconds."""
        if self._process is None:
            return
        self.tell_to_end()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Sends SIGKILL: the process ends at once and writes nothing more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Stops the process, and cancels the stop at Python's exit."""
        self.stop()
        atexit.unregister(self.close)

    def check(self) -> None:
        """Raises `NodeError` with the end of the log if the process has ended."""
        if not self.running:
            raise self._failed("ended unexpectedly")

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _launch(self, command: list[str], environment: Mapping[str, str] | None = None) -> None:
        if self.running:
            raise NodeError(f"{self.name} is running already (process {self.pid})")
        for port in self._ports:
            if not is_free(port):  # clients would use another server on this port
                raise NodeError(f"{self.name} cannot start: port {port} of {LOOPBACK} is taken")
        silent = subprocess.DEVNULL
        with self.log.open("ab") as log:
            self._process = start_child(
                command, cwd=self.folder, env=environment, stdin=silent, stdout=log, stderr=log, start_new_session=True
            )

    def _alive(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise NodeError(f"{self.name} is not running")
        return self._process

    def _failed(self, what: str) -> NodeError:
        self.kill()
        tail = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-25:]
        told = [line.strip() for line in tail if line.strip() and not line.startswith("\tat ")]  # without Java's stack frames
        error = NodeError(f"{self.name} {what}; its log ends: {told[-1] if told else '(empty)'}")
        error.add_note("\n".join(tail))
        return error

    def _wait_for_port(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            if not self.running:
                raise self._failed("ended before it served")
            try:
                socket.create_connection((LOOPBACK, self._ports[0]), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise self._failed("did not open its port in time")
