"""The common parts of our HTTP servers: sockets, limits against idle connections, security headers, numbers in OpenAPI."""

import asyncio
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, ClassVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ldpstream.runtime.settings import cannot_listen

HEAD_S = 10.0  # a connection is closed if a request's head has not ended after this time
UNREAD_S = 30  # a connection is closed if its client takes no data for this time


def bound_socket(server: str, host: str, port: int) -> socket.socket:
    """Returns the socket of a server, "GATEWAY" or "PAGE", which does not listen yet.

    The system ends each connection whose client takes no data; only Linux can do this. Otherwise such a connection never ends:
    a server that closes it waits until the client has read the answer.

    Raises:
        SettingsError: if the address cannot be bound.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with ExitStack() as opened:
            bound = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * UNREAD_S)
            bound.bind(address)
            opened.pop_all()
    except OSError as error:
        raise cannot_listen(server, host, port, error) from None
    return bound


def bounded_protocol(most: int) -> type[HttpToolsProtocol]:
    """Returns the protocol of a server that closes a connection at once if it already has `most` connections."""
    return type("_BoundedProtocol", (BoundedProtocol,), {"most": most})


class BoundedProtocol(HttpToolsProtocol):
    most: ClassVar[int]
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]  # uvicorn's signature names a narrower class
        if len(self.connections) > self.most:
            self.transport.abort()
        else:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._wait()

    def on_headers_complete(self) -> None:
        self._wait_no_more()
        super().on_headers_complete()

    def _wait(self, seconds: float | None = None) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_S if seconds is None else seconds, self.late)

    def late(self) -> None:
        """Ends the connection of a client that is too slow."""
        self.transport.close()

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class SecurityHeaders:
    """Middleware that adds headers to every response.

    Args:
        headers: the headers; one that the application sets stays.
    """

    def __init__(self, app: ASGIApp, headers: Mapping[str, str]) -> None:
        self._app = app
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(header for header in self._headers if header[0] not in own)]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def with_formats(part: Any) -> Any:
    if isinstance(part, list):
        return [with_formats(inner) for inner in part]
    if not isinstance(part, dict):
        return part
    width = {"integer": "int64", "number": "double"}.get(part["type"]) if isinstance(part.get("type"), str) else None
    return {key: with_formats(inner) for key, inner in part.items()} | ({"format": width} if width else {})
