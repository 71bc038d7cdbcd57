"""Ports of the loopback address for servers that this machine runs, and requests to them."""

import random
import socket
from http.client import HTTPConnection, HTTPException

LOOPBACK = "127.0.0.1"
REQUEST_S = 10.0

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


def get(port: int, path: str) -> bytes | None:
    """Returns the answer to a GET request; None without a good answer."""
    connection = HTTPConnection(LOOPBACK, port, timeout=REQUEST_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.read() if answer.status == 200 else None
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
