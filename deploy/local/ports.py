"""Ports of the loopback address for servers that this machine runs."""

import atexit
import fcntl
import itertools
import os
import random
import tempfile
from pathlib import Path

from ldpstream.services.trial.ports import LOOPBACK, PORTS, is_free

__all__ = ["LOOPBACK", "free_ports"]


def free_ports(n_ports: int) -> list[int]:
    """Returns `n_ports` loopback ports without a listener, drawn at random from `PORTS`.

    Until this process ends, calls in other processes of this user return other ports.
    """
    free = (port for port in random.sample(PORTS, k=len(PORTS)) if is_free(port) and _claim(port))
    return list(itertools.islice(free, n_ports))


def _claim(port: int) -> bool:
    folder = Path(tempfile.gettempdir()) / f"ldpstream-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    claim = (folder / str(port)).open("ab")
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        claim.close()
        return False
    atexit.register(claim.close)  # keeps the file open, and so the lock, until the process exits
    return True
