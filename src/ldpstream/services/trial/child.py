"""A process of a trial."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from ldpstream.runtime.process import start_child
from ldpstream.runtime.settings import PREFIX
from ldpstream.services.trial.ports import LOOPBACK
from ldpstream.surveys.errors import UserError

START_S = 120.0  # longest time until a process can do its work
STOP_S = 15.0  # longest time from SIGTERM to SIGKILL
REQUEST_S, POLL_S = 10.0, 0.1


class TrialError(UserError, RuntimeError):
    """A process of the trial does not start, or ends early."""


class Child:
    """A command of ldpstream that runs as a process of its own, until it ends or `close` ends it.

    Args:
        settings: the settings of ldpstream, without the prefix ``LDPSTREAM_``; other settings have their defaults.
        folder: folder of the log.
    """

    def __init__(self, arguments: Sequence[str], settings: Mapping[str, str], folder: Path) -> None:
        self.name, self.log = arguments[0], folder / f"{arguments[0]}.log"
        with self.log.open("wb") as log:
            self._process = start_child(
                [sys.executable, "-m", "ldpstream", *arguments], cwd=folder, env=environment(settings),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Raises `TrialError` if the process ends, or `ready` does not return True in time."""
        deadline = time.monotonic() + START_S
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                raise self._failed("was not ready in time")
            time.sleep(POLL_S)

    def check(self) -> None:
        """Raises `TrialError` with the end of the log if the process has ended."""
        if self._process.poll() is not None:
            raise self._failed("ended unexpectedly")

    def close(self) -> None:
        """Ends the process by SIGTERM, or by SIGKILL if it still runs 15 s later."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _failed(self, what: str) -> TrialError:
        self.close()
        tail = [line for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        return TrialError(f"{self.name} {what}; its log ends: {tail[-1].strip() if tail else '(empty)'}")


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns this process's environment, without its settings of ldpstream, and with these settings.

    The names in `settings` lack the prefix ``LDPSTREAM_``.
    """
    others = {name: value for name, value in os.environ.items() if not name.upper().startswith(PREFIX)}
    return others | {PREFIX + name: value for name, value in settings.items()}


def get(port: int, path: str) -> bytes | None:
    connection = HTTPConnection(LOOPBACK, port, timeout=REQUEST_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.read() if answer.status == 200 else None
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
