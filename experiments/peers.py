"""Other libraries, installed into a virtual environment of their own and timed there by `experiments/peer_clients.py`.

They need what their packages do not declare (scipy, scikit-learn, statsmodels, numba) and an older xxhash than ours might be.
The environment stays in the cache: `$LDPSTREAM_CACHE`, else `$XDG_CACHE_HOME/ldpstream`, else `~/.cache/ldpstream`.
"""

import hashlib
import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

REQUIREMENTS = (
    "multi-freq-ldpy==0.2.5",
    "pure-ldp==1.2.0",
    "xxhash<4",
    "numpy",
    "scipy",
    "scikit-learn",
    "statsmodels",
    "numba",
)
LIBRARIES = {"multi-freq-ldpy": "0.2.5", "pure-ldp": "1.2.0"}
INSTALL_S = 1800
CLIENTS = Path(__file__).with_name("peer_clients.py")
ACCURACY = Path(__file__).with_name("peer_accuracy.py")


class PeersError(RuntimeError):
    """The other libraries could not be installed or run; the message says why, in one line."""


def cache_dir() -> Path:
    """Where the environment is kept; an empty variable counts as not set."""
    if own := os.environ.get("LDPSTREAM_CACHE"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "ldpstream"


def existing_environment() -> Path | None:
    """The Python of the environment, or None if it has not been made."""
    place = _place()
    return place / "bin" / "python" if (place / "whole").exists() else None


def environment() -> Path:
    """The Python of the environment, which is made first if it is not there.

    Raises:
        PeersError: if pip fails, as without a network.
    """
    if (made := existing_environment()) is not None:
        return made
    place = _place()
    python, whole = place / "bin" / "python", place / "whole"
    venv.create(place, clear=True, with_pip=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise PeersError(f"pip did not end within {INSTALL_S} s") from error
    if done.returncode:
        raise PeersError(f"pip could not install them: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    whole.touch()  # last: an installation that was cut short is made again
    return python


def _place() -> Path:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(" ".join(REQUIREMENTS).encode()).hexdigest()[:12]
    return cache_dir() / f"peers-{version}-{digest}"


def time_peers(task: dict[str, Any], seen: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """The lines of `peer_clients.py` for the task, as they come.

    Args:
        task: see `peer_clients.py`.
        seen: told what is being done.

    Raises:
        PeersError: if the libraries cannot be installed, or their run ends early.
    """
    for line in _run(CLIENTS, task, seen):
        seen(f"{line['library']} {line['mechanism']}")
        yield line


def accuracy_of_peers(tasks: list[dict[str, Any]], seen: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """The lines of `peer_accuracy.py` for the tasks, as they come. Arguments and errors as for `time_peers`."""
    for done, line in enumerate(_run(ACCURACY, tasks, seen), 1):
        seen(f"multi-freq-ldpy: {done} of {len(tasks)} settings")
        yield line


def _run(script: Path, task: object, seen: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """The JSON lines that a script writes, given a task, in the other libraries' environment."""
    seen("installing other libraries")
    python = environment()
    process = subprocess.Popen([str(python), "-I", str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write(json.dumps(task))
        process.stdin.close()
        for text in process.stdout:
            line: dict[str, Any] = json.loads(text)
            yield line
    if process.returncode:
        raise PeersError(f"their run ended with status {process.returncode}")
