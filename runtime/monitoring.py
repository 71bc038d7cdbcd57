"""The monitoring server of agents and estimators.

/metrics   metrics for Prometheus
/health    200 while the process is alive; independent of Kafka and Redis, so their outage restarts no process
/ready     200 while the process can do its work, else 503 with the reason
"""

import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import Gauge, disable_created_metrics, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from ldpstream.runtime.descriptors import shares
from ldpstream.runtime.settings import cannot_listen
from ldpstream.runtime.versions import running_version

HEAD_S = 10.0  # a connection is closed if it waits longer for its client

# removes the unused `_created` series of every counter
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no type for it

_build = Gauge("ldpstream_build_info", "1; the label has the version and the commit that run", ["version"])


def tell_version() -> None:
    """Sets the metric `ldpstream_build_info`."""
    _build.labels(running_version()).set(1)


def serve_monitoring(host: str, port: int, unready: Callable[[], str | None]) -> None:
    """Serves `/metrics`, `/health` and `/ready` from a background thread until the process ends.

    Args:
        unready: returns the reason if the process cannot do its work now, else None; called from another thread.

    Raises:
        SettingsError: if the address cannot be bound.
    """
    tell_version()
    metrics = make_wsgi_app()

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path in ("/health", "/ready"):
            why = None if path == "/health" else unready()
            start("200 OK" if why is None else "503 Service Unavailable", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"ok\n" if why is None else f"not ready: {why}\n".encode()]
        if path not in ("/", "/metrics"):
            start("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"not found\n"]
        page: Iterable[bytes] = metrics(environ, start)
        return page

    try:
        server = make_server(host, port, answer, _MetricsServer, _Silent)
    except OSError as error:
        raise cannot_listen("METRICS", host, port, error) from None
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()


class _MetricsServer(ThreadingWSGIServer):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open = set[Any]()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Closes a connection beyond the server's share of the open files."""
        self._open.add(request)
        return len(self._open) <= shares().monitoring

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)  # before the client can notice
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs nothing: the client was too slow, or has left."""


class _Silent(WSGIRequestHandler):
    timeout = HEAD_S

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""
