"""The HTTP protocol of the page and of the gateway's monitoring port: uvicorn's, with limits against idle connections."""

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_S = 10.0  # a connection is closed if a request's head has not ended after this time


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

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_S, self.transport.close)

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
