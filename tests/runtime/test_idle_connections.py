"""Idle connections take a limited number of descriptors, and end."""

import errno
import resource
import socket
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from unittest.mock import Mock

import pytest
from fastapi import FastAPI

from ldpstream.publishing.page import server as page_server
from ldpstream.publishing.page.server import PageServer
from ldpstream.runtime import monitoring, web
from ldpstream.runtime.descriptors import ConnectionShares, raise_limit, shares
from ldpstream.runtime.web import bound_socket
from tests.services.rig import PATIENCE_S, free_ports

FEW = ConnectionShares(gateway=3, page=3, monitoring=3)


@contextmanager
def page(port: int) -> Iterator[str]:
    with closing(PageServer(FastAPI(), "127.0.0.1", port)):
        yield "/openapi.json"


@contextmanager
def metrics(port: int) -> Iterator[str]:
    monitoring.serve_monitoring("127.0.0.1", port, lambda: None)
    yield "/ready"


@pytest.mark.parametrize("server", [page, metrics])
@pytest.mark.parametrize("wait_s", [600.0, 1.0])
def test_idle_connections_beyond_the_share_are_closed_at_once_and_the_others_in_time(
    server: Callable[[int], AbstractContextManager[str]], wait_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (monitoring, page_server):
        monkeypatch.setattr(module, "shares", lambda: FEW)
    monkeypatch.setattr(web, "HEAD_S", wait_s)
    monkeypatch.setattr(monitoring._Silent, "timeout", wait_s)
    (port,) = free_ports(1)
    with server(port) as path, ExitStack() as held:
        first, *_ = (held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(3))
        first.sendall(b"GET / HTTP/1.1\r\nHost:")  # a head that does not end
        if wait_s > 60:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as beyond:
                assert beyond.recv(1) == b""
            return
        assert first.recv(1) == b""  # after a second
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            assert answer.status == 200


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends such connections")
def test_a_connection_ends_if_its_client_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "UNREAD_S", 1)
    with (
        bound_socket("GATEWAY", "127.0.0.1", 0) as listening,
        socket.socket() as client,
    ):
        listening.listen()
        client.connect(listening.getsockname())
        with listening.accept()[0] as accepted, pytest.raises(TimeoutError) as ended:
            accepted.settimeout(PATIENCE_S)
            while True:
                accepted.sendall(bytes(2**16))
        assert ended.value.errno == errno.ETIMEDOUT  # by the system; None after `PATIENCE_S`
    with closing(PageServer(FastAPI(), "127.0.0.1", 0)) as server:
        assert server._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1000


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ((256, 256), (256, ConnectionShares(112, 32, 16))),
        ((1024, 1 << 20), (65_536, ConnectionShares(2000, 400, 64))),
        ((-1, -1), None),
    ],
)
def test_the_limit_is_raised_and_the_servers_leave_a_quarter(
    limit: tuple[int, int], expected: tuple[int, ConnectionShares] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = [limit]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: limits.append(new))
    found = raise_limit()
    assert (found, shares()) == (expected or (65_536, ConnectionShares(2000, 400, 64)))
    assert limits[-1][1] == limit[1]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", Mock(side_effect=ValueError("not allowed")))
    assert raise_limit() == 256
    for most in (64, 256, 1024, 4096):
        monkeypatch.setattr(resource, "getrlimit", lambda _, most=most: (most, most))
        gateway, page_share, monitoring_share = shares()
        assert gateway + max(1, gateway // 8) + page_share + monitoring_share <= most * 3 / 4
