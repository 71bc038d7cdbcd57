"""Runs commands of ldpstream as nodes, each in its own process."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.local.nodes import Node
from deploy.local.ports import free_ports
from ldpstream.output.terminal import SAYS
from ldpstream.runtime.settings import PREFIX
from ldpstream.services.trial.ports import get

POLL_S = 0.1


class CommandNode(Node):
    """A command of ldpstream.

    Args:
        settings: the command's settings, without the prefix ``LDPSTREAM_``. METRICS_PORT is a free port; other settings have
            their defaults.
        port: the loopback port that the command serves; None if the command serves none.
    """

    def __init__(self, arguments: Sequence[str], settings: Mapping[str, str], folder: Path, port: int | None = None) -> None:
        (self._metrics_port,) = free_ports(1)
        super().__init__(arguments[0], [self._metrics_port, *([] if port is None else [port])], folder)
        self._command = [sys.executable, "-m", "ldpstream", *arguments]
        self._environment = environment({**settings, "METRICS_PORT": str(self._metrics_port)})

    def start(self) -> None:
        """Starts the command."""
        self._launch(self._command, self._environment)

    def wait_until_ready(self) -> None:
        """Returns when the command reports that it can do its work. Raises `NodeError` if it ends, or does not get ready."""
        deadline = time.monotonic() + self.start_timeout_s
        while get(self._metrics_port, "/ready") is None:
            self.check()
            if time.monotonic() > deadline:
                raise self._failed("was not ready in time")
            time.sleep(POLL_S)

    def said(self) -> list[str]:
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]  # drops a partial line
        return [line.removeprefix(SAYS) for line in lines if line.startswith(SAYS)]

    def finished(self) -> bool:
        """True if the command has ended with status 0. Raises `NodeError` if it ended with another status."""
        if not self.running and (self._process is None or self._process.returncode != 0):
            self.check()
        return not self.running


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns this process's environment, without its settings of ldpstream, and with these settings.

    The names in `settings` lack the prefix ``LDPSTREAM_``.
    """
    others = {name: value for name, value in os.environ.items() if not name.upper().startswith(PREFIX)}
    return others | {PREFIX + name: value for name, value in settings.items()}
