"""A relay in front of a gateway, which records the bytes and times on both sides, and devices that send through it.

The time is virtual: no test waits for it, and no test depends on the speed of the machine.
"""

import http.client
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest

from ldpstream.device import Relay, sender
from ldpstream.device.relay.capsules import KeyConfig, encode_configs, public_key
from ldpstream.gateway.relay_keys import RelayKey, RelayKeys
from ldpstream.surveys import Survey
from tests.gateway.gateway_rig import Served
from tests.gateway.test_relay_keys import NOW as CREATED
from tests.small_survey import small_survey

from .samples import level

GATEWAY = "gateway.example"
SECRETS = [bytes(range(first, first + 32)) for first in range(3)]


def relay_survey(*mechanisms: str, step_seconds: int = 3600) -> Survey:
    """A survey of one attribute that requires a relay."""
    asked = {"name": "zone", "size": 100, "level": [level(name) for name in mechanisms or ("GRR",)]}
    return small_survey(asked, name="relayed", step_seconds=step_seconds, lateness_steps=2, relay="required")


def keys_of(*numbers: int) -> RelayKeys:
    """The keys of a gateway; the newest number comes first."""
    return RelayKeys([RelayKey(number, CREATED, SECRETS[number]) for number in numbers])


def config_of(number: int) -> str:
    """The key configuration of a key, as an application has it."""
    return b64encode(encode_configs([KeyConfig(number, public_key(keys_of(number).private[number]))])).decode()


class Clock:
    """The time of devices, relay and gateway, in ms since 1970."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def pause(self, seconds: float) -> None:
        """Waits, without waiting."""
        assert seconds >= 0
        self.now_ms += int(1000 * seconds) + 1


class Seen(NamedTuple):
    """A request as the relay saw it.

    Attributes:
        at_ms: the time.
        port: the client's port, one for each connection.
        lines: the request line and the headers.
        body: the body.
        answer: the answer that the relay gave: status and body.
    """

    at_ms: int
    port: int
    lines: tuple[str, ...]
    body: bytes
    answer: tuple[int, bytes]


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # the sink opens up to 64 connections at once, and the default of 5 refuses some of them
    daemon_threads = True


class RecordingRelay:
    """A small relay for tests.

    Attributes:
        seen: all requests, in their order.
        status, body: the relay's own answer in place of the gateway's; with status 0 the relay passes on the gateway's answer.
        told: headers of its own answer.
        times: how often the gateway gets each request.
    """

    def __init__(self, clock: Clock, gateway_port: int) -> None:
        self.seen: list[Seen] = []
        self.status, self.body, self.times = 0, b"", 1
        self.told: dict[str, str] = {}
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, kind, content = relay.status, "text/plain", relay.body
                if not status:
                    for _ in range(relay.times):
                        status, kind, content = _forward(gateway_port, body)
                lines = (self.requestline, *(f"{name}: {value}" for name, value in self.headers.items()))
                relay.seen.append(Seen(clock(), self.client_address[1], lines, body, (status, content)))
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Access-Control-Allow-Origin", "*")
                for name, value in relay.told.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def do_OPTIONS(self) -> None:
                self.send_response(204)
                for name in ("Origin", "Headers", "Methods"):
                    self.send_header(f"Access-Control-Allow-{name}", "*")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/to/gateway"

    def device_side(self, number: int = 0) -> Relay:
        """The relay, as an application names it, with the gateway's key of this number."""
        return Relay(self.url, gateway=f"https://{GATEWAY}", keys=config_of(number))

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _forward(port: int, body: bytes) -> tuple[int, str, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("POST", "/ohttp", body, {"Host": GATEWAY, "Content-Type": "message/ohttp-req"})
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read()


class RelaySite(NamedTuple):
    """A relay, the gateway behind it, and their time."""

    clock: Clock
    gateway: Served
    relay: RecordingRelay


@contextmanager
def relay_site(survey: Survey, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Iterator[RelaySite]:
    """Serves a relay before a gateway with key 0, at the beginning of step 5. Senders have the same time."""
    clock = Clock(survey.opens_ms(5))
    monkeypatch.setattr(sender, "_now_ms", clock)
    with closing(Served(survey=survey, now_ms=clock, **options)) as gateway:
        gateway.rig.intake.relay_keys = keys_of(0)
        with closing(RecordingRelay(clock, gateway.port)) as relay:
            yield RelaySite(clock, gateway, relay)
