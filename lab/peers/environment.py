"""Installs other libraries into a separate virtual environment.

python -m lab.peers.environment      creates a missing environment, and prints the path of its Python interpreter
"""

import fcntl
import hashlib
import json
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from deploy.local.cache import cache_dir
from deploy.local.children import start_child

LOCK = Path(__file__).with_name("peers.lock")
LIBRARIES = {"multi-freq-ldpy": "0.2.5", "pure-ldp": "1.2.0"}
ATTEMPTS, INSTALL_S = 2, 600  # runs of pip, each with pip's own retries; a registry may stall in the middle of a response
CLIENTS = Path(__file__).with_name("clients.py")
ACCURACY = Path(__file__).with_name("accuracy.py")


class PeersError(RuntimeError):
    """The other libraries could not be installed or run."""


def existing_environment() -> Path | None:
    place = _place()
    return place / "bin" / "python" if (place / "whole").exists() else None


def environment() -> Path:
    """Path of the environment's Python interpreter. Creates a missing environment.

    Raises:
        PeersError: if pip fails or takes too long.
    """
    place = _place()
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(".making").open("wb") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # several processes may run this code; only one creates the environment
        if (made := existing_environment()) is not None:
            return made
        venv.create(place, clear=True, with_pip=True)
        python = place / "bin" / "python"
        # --no-compile: compiling would take three quarters of the time, and most modules are never imported
        options = ["--quiet", "--disable-pip-version-check", "--no-compile", "--timeout", "30", "--retries", "5"]
        command = [str(python), "-m", "pip", "install", *options, "--require-hashes", "-r", str(LOCK)]
        for attempt in range(ATTEMPTS):
            try:
                _install(command)
                break
            except PeersError:
                if attempt == ATTEMPTS - 1:
                    raise
        (place / "whole").touch()  # written last: an interrupted installation has no such file and is repeated
    return python


def _install(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise PeersError(f"pip did not end within {INSTALL_S} s") from error
    if done.returncode:
        raise PeersError(f"pip could not install the libraries: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")


def _place() -> Path:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return cache_dir() / f"peers-{version}-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}"


def time_peers(task: dict[str, Any], seen: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    for line in _run(CLIENTS, task, seen):
        seen(f"{line['library']} {line['mechanism']}")
        yield line


def accuracy_of_peers(tasks: list[dict[str, Any]], seen: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    for done, line in enumerate(_run(ACCURACY, tasks, seen), 1):
        seen(f"other libraries: {done} of {len(tasks)} cells")
        yield line


def _run(script: Path, task: object, seen: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    seen("installing other libraries")
    python = environment()
    process = start_child([str(python), "-I", str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write(json.dumps(task))
        process.stdin.close()
        for text in process.stdout:
            line: dict[str, Any] = json.loads(text)
            yield line
    if process.returncode:
        raise PeersError(f"the other libraries' process ended with status {process.returncode}")


def main() -> int:
    try:
        sys.stdout.write(f"{environment()}\n")
    except (PeersError, OSError) as error:
        sys.stderr.write(f"peers: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
