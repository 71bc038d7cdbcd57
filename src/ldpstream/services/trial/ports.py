"""Ports of the loopback address for servers that this machine runs."""

import atexit
import fcntl
import itertools
import os
import random
import socket
import tempfile
from pathlib import Path

LOOPBACK = "127.0.0.1"

# These ports are below the usual ranges for outgoing connections. A stopped node could lose a port inside such a range: a
# client that reconnects to the closed loopback port may get the same port as its source port, and connect to itself.
PORTS = range(20_000, 30_000)


def free_ports(n_ports: int) -> list[int]:
    """Returns `n_ports` loopback ports without a listener, drawn at random from `PORTS`.

    Until this process ends, calls in other processes of this user return other ports.
    """
    free = (port for port in random.sample(PORTS, k=len(PORTS)) if is_free(port) and _claim(port))
    return list(itertools.islice(free, n_ports))


def port_or_free(port: int) -> int:
    """Returns `port` if nothing listens on it, otherwise a free port."""
    return port if is_free(port) else free_ports(1)[0]


def is_free(port: int) -> bool:
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore closed connections that linger
        try:
            attempt.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


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
