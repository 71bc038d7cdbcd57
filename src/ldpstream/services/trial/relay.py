"""A small relay for trials on this machine. It hides nothing: relay and gateway have the same operator.

The relay forwards the body of a POST to the gateway's `/ohttp`, without the device's headers, and returns the answer. It
keeps no log. docs/howto/relay.md names relays for real surveys.
"""

import http.client
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, NamedTuple

from ldpstream.device.relay.capsules import REQUEST_TYPE
from ldpstream.services.trial.ports import LOOPBACK

MAX_BYTES: Final = 2**21  # limit of a request's body; the gateway's limit is lower
ANSWER_S: Final = 20.0  # longer than the gateway's own time limits


class Reply(NamedTuple):
    status: int
    kind: str
    body: bytes


class TrialRelay(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, port: int, gateway_port: int) -> None:
        self._gateway_port = gateway_port
        super().__init__((LOOPBACK, port), _Handler)

    def forward(self, body: bytes) -> Reply:
        headers = {"Host": f"{LOOPBACK}:{self._gateway_port}", "Content-Type": REQUEST_TYPE}
        try:
            with closing(http.client.HTTPConnection(LOOPBACK, self._gateway_port, timeout=ANSWER_S)) as connection:
                connection.request("POST", "/ohttp", body, headers)
                answer = connection.getresponse()
                return Reply(answer.status, answer.headers.get("Content-Type", ""), answer.read())
        except (OSError, http.client.HTTPException):
            return Reply(502, "text/plain", b"the gateway does not answer")

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores errors, such as a device that closes its connection early."""


class _Handler(BaseHTTPRequestHandler):
    timeout = ANSWER_S
    server: TrialRelay

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BYTES:
            reply = Reply(400, "text/plain", b"the request needs a Content-Length of at most 2 MiB")
        else:
            reply = self.server.forward(self.rfile.read(int(length)))
        self.send_response_only(reply.status)
        self.send_header("Content-Type", reply.kind)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: object) -> None:
        """Keeps no log."""
