"""Serves the API and the page from a background thread."""

import threading
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

from ldpstream.runtime.descriptors import shares
from ldpstream.runtime.web import bound_socket, bounded_protocol

END_S = 2


class PageServer:
    """A running server; `close` stops it.

    Args:
        api: an application of `publishing.api.app`.

    Raises:
        SettingsError: if the address cannot be bound.
    """

    def __init__(self, api: FastAPI, host: str, port: int) -> None:
        self._socket = bound_socket("PAGE", host, port)
        self._socket.listen(128)
        self.port = int(self._socket.getsockname()[1])
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}/"
        config = uvicorn.Config(  # without an access log, which would record the visitors' addresses
            api, http=bounded_protocol(shares().page), log_config=None, access_log=False, server_header=False,
            timeout_graceful_shutdown=END_S, lifespan="on",
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with suppress(SystemExit):  # uvicorn raises SystemExit after logging an error
            self._server.run(sockets=[self._socket])

    def close(self) -> None:
        """Stops the server."""
        self._server.should_exit = True
        self._thread.join(END_S + 3)
        self._socket.close()
