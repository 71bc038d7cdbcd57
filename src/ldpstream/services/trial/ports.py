"""Ports of the loopback address for servers that this machine runs."""

import random
import socket

LOOPBACK = "127.0.0.1"

# These ports are below the usual ranges for outgoing connections. A stopped server could lose a port inside such a range: a
# client that reconnects to the closed loopback port may get the same port as its source port, and connect to itself.
PORTS = range(20_000, 30_000)


def is_free(port: int) -> bool:
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore closed connections that linger
        try:
            attempt.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def free_port() -> int:
    """Returns a loopback port without a listener, drawn at random from `PORTS`."""
    return next(port for port in random.sample(PORTS, k=len(PORTS)) if is_free(port))


def port_or_free(port: int) -> int:
    """Returns `port` if nothing listens on it, otherwise a free port."""
    return port if is_free(port) else free_port()
