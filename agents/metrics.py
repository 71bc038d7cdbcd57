"""What an agent tells Prometheus, and whether it is ready.

The counters start at zero with the process and count what this process did, also what a crash made it do twice; the exact
totals are the count store's.
"""

import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import Counter, Gauge, Histogram, make_wsgi_app

records = Counter("ldpstream_records", "Envelopes folded, accepted or rejected")
reports = Counter("ldpstream_reports", "Reports counted")
rejected = Counter("ldpstream_rejected", "Envelopes rejected", ["reason"])
redelivered = Counter("ldpstream_redelivered", "Envelopes delivered again and skipped")
gaps = Counter("ldpstream_gaps", "Times that envelopes were missing from a delivery and were fetched again")
missing_offsets = Counter("ldpstream_missing_offsets", "Offsets whose record the log no longer had, or never had")
new_logs = Counter("ldpstream_new_logs", "Partitions whose topic had been deleted and made again")
refused_commits = Counter("ldpstream_refused_commits", "Commits refused because another agent had written since")
dead_letters_lost = Counter("ldpstream_dead_letters_lost", "Rejected envelopes that the dead-letter topic would not take")
commit_seconds = Histogram("ldpstream_commit_seconds", "Time to write the changes of one partition to the count store")
partitions = Gauge("ldpstream_partitions", "Partitions that this agent counts now")
store_available = Gauge("ldpstream_store_available", "1 while the count store answers, else 0")


def serve(host: str, port: int, ready: Callable[[], bool]) -> None:
    """Serve `/metrics`, `/live` (200) and `/ready` (200 or 503) from a background thread.

    Raises:
        OSError: if the address cannot be bound.
    """
    metrics = make_wsgi_app()

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path in ("/live", "/ready"):
            well = path == "/live" or ready()
            start("200 OK" if well else "503 Service Unavailable", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"ok\n" if well else b"not ready\n"]
        if path not in ("/", "/metrics"):
            start("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"not found\n"]
        page: Iterable[bytes] = metrics(environ, start)
        return page

    server = make_server(host, port, answer, _Server, _Silent)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a line per scrape helps nobody."""
