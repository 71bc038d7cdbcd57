"""The exit status of a service that cannot start. Supervisors do not start a process again after status 2."""

import errno
import os
import socket
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ldpstream.commands.cli import run
from ldpstream.engines.folder.data_folder import LOCK

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "surveys" / "samples" / "demo.toml"
UNIT = (ROOT / "deploy" / "systemd" / "ldpstream.service").read_text()


def at_lock(number: int) -> Callable[[pytest.MonkeyPatch], None]:
    def fails(path: Any, *arguments: Any) -> int:
        if Path(path).name == LOCK:
            raise OSError(number, os.strerror(number), str(path))
        return open_file(path, *arguments)

    open_file = os.open
    return lambda patch: patch.setattr(os, "open", fails)


def at_database(code: int) -> Callable[[pytest.MonkeyPatch], None]:
    def fails(*_: Any, **__: Any) -> sqlite3.Connection:
        error = sqlite3.OperationalError("refused")
        error.sqlite_errorcode = code
        raise error

    return lambda patch: patch.setattr(sqlite3, "connect", fails)


def at_host(error: OSError) -> Callable[[pytest.MonkeyPatch], None]:
    def fails(*_: Any, **__: Any) -> Any:
        raise error

    return lambda patch: patch.setattr(socket, "getaddrinfo", fails)


@pytest.mark.parametrize(
    ("broken", "status"),
    [
        (at_lock(errno.ENOSPC), 1),
        (at_lock(errno.EACCES), 2),
        (at_database(sqlite3.SQLITE_FULL), 1),
        (at_database(sqlite3.SQLITE_BUSY), 1),
        (at_database(sqlite3.SQLITE_NOTADB), 2),
        (at_host(OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")), 1),
        (at_host(socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")), 1),
        (at_host(socket.gaierror(socket.EAI_NONAME, "Name or service not known")), 2),
        (at_host(OSError(errno.EADDRINUSE, "Address already in use")), 2),
    ],
)
def test_a_start_that_may_succeed_later_does_not_end_with_status_2(
    broken: Callable[[pytest.MonkeyPatch], None], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["ldpstream", "serve", str(SAMPLE), "--data", str(tmp_path / "data")])
    with monkeypatch.context() as patch, pytest.raises(SystemExit) as ended:
        broken(patch)
        run()
    assert ended.value.code == status
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("ldpstream: ")


def test_systemd_starts_the_service_again_except_after_status_2() -> None:
    assert {"RestartPreventExitStatus=2", "StartLimitIntervalSec=0"} <= {*UNIT.splitlines()}
