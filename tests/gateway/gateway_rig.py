"""An in-process gateway over a fake log, and requests to it."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import httpx2
import msgspec
import numpy as np
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from ldpstream.device.relay.capsules import REQUEST_TYPE
from ldpstream.engines.gateway_log import Done, Keyed, Outcome
from ldpstream.gateway.gateway_process import _GatewayServer
from ldpstream.gateway.http.app import GatewayApp
from ldpstream.gateway.http.bodies import BATCH, ENVELOPE
from ldpstream.gateway.http.problems import MAX_RETRY_S, RETRY_S, urn
from ldpstream.gateway.http.protocol import GatewayProtocol, gateway_protocol
from ldpstream.gateway.intake import Intake
from ldpstream.gateway.shuffle import Shuffle
from ldpstream.gateway.surveys import GatewaySurveys
from ldpstream.surveys import Survey
from tests.agents.samples import during, make_survey, sound
from tests.services.rig import PATIENCE_S

SURVEY = make_survey()
STEP = 5
TOKEN, COLLECTOR = "a-token-for-the-tests", "a-collector-of-the-tests"
COLLECTS = {"authorization": f"Bearer {COLLECTOR}"}
KEYS = ["k" * 22, "l" * 22]
NOW = during(SURVEY, STEP)
TOML = "# the survey's file\n"


class FakeLog:
    """Stores appended envelopes, and acknowledges them in the next turn of the loop. If it is not ready, it refuses at once.

    Attributes:
        open: while False, the log acknowledges nothing; `release` acknowledges all requests that wait.
        outcome: what becomes of the envelopes.
        appended_ms: the append time that the log tells, if any.
        failure: `append` raises it, if set.
        keyed: the keys of the requests, in the order of `appended`.
    """

    def __init__(self) -> None:
        self.ready = self.open = True
        self.closed = False
        self.appended: list[list[bytes]] = []
        self.keyed: list[Keyed | None] = []
        self.outcome = Outcome.APPENDED
        self.appended_ms: int | None = None
        self.failure: Exception | None = None
        self.waiting: list[Callable[[], None]] = []

    def append(self, envelopes: Sequence[bytes], keyed: Keyed | None, done: Done) -> None:
        if not self.ready:
            done(Outcome.NOT_APPENDED, None)
            return
        if self.failure is not None:
            raise self.failure

        def acknowledge() -> None:
            if self.outcome is Outcome.APPENDED:
                self.appended.append(list(envelopes))
                self.keyed.append(keyed)
            done(self.outcome, self.appended_ms)

        if self.open:
            asyncio.get_running_loop().call_soon(acknowledge)
        else:
            self.waiting.append(acknowledge)

    def close(self) -> None:
        self.closed = True

    def counted(self) -> list[list[bytes]]:
        """Returns the appended envelopes as agents count them: attempts of one request once."""
        hashes, counted = set[bytes](), list[list[bytes]]()
        for envelopes, keyed in zip(self.appended, self.keyed, strict=True):
            if keyed is None or keyed.hashed not in hashes:
                counted.append(envelopes)
            if keyed is not None:
                hashes.add(keyed.hashed)
        return counted

    def release(self) -> None:
        self.open = True
        waiting, self.waiting = self.waiting, []
        for acknowledge in waiting:
            acknowledge()


class FakeTransport(asyncio.Transport):
    """A connection without a socket: it keeps what the gateway writes."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 1)})
        self.written, self.wrote, self.reading, self._closing = b"", asyncio.Event(), True, False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)
        self.wrote.set()

    def close(self) -> None:
        self._closing = True

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Rig:
    """An intake over a `FakeLog` for each survey, and its gateway without a socket.

    Args:
        survey: the first survey; `log` is its log.
        origins: web origins whose pages may report.
        options: arguments of the `Intake`.
    """

    def __init__(self, survey: Survey = SURVEY, origins: Sequence[str] = (), **options: Any) -> None:
        self.surveys = GatewaySurveys()
        self.log = self.add(survey)
        usual: dict[str, Any] = {"rate": 1e9, "now_ms": lambda: NOW, "shuffle": Shuffle(0.001)}
        usual["collectors"] = [COLLECTOR]
        self.intake = Intake(self.surveys, **(usual | options))
        self.app, self.server = GatewayApp(self.intake, origins), ServerState()

    def add(self, survey: Survey) -> FakeLog:
        """Adds a survey, and returns its log."""
        log = FakeLog()
        self.surveys.put(survey, TOML)
        self.surveys.logs[survey.fingerprint] = log
        return log

    def connect(self, address: str) -> tuple[GatewayProtocol, FakeTransport]:
        """Returns a connection without a socket."""
        config = uvicorn.Config(self.app.begin, interface="asgi3", log_config=None)
        protocol, transport = gateway_protocol(self.app)(config, self.server, {}), FakeTransport(address)
        protocol.connection_made(transport)
        return protocol, transport

    async def asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends a request through the gateway's protocol until it is answered."""
        protocol, transport = self.connect(scope["client"][0])
        target = scope["raw_path"] + b"?" * bool(scope["query_string"]) + scope["query_string"]
        lines = [b"%b %b HTTP/1.1" % (scope["method"].encode(), target), *map(b": ".join, scope["headers"])]
        protocol.data_received(b"\r\n".join(lines) + b"\r\n\r\n")
        chunked, more = any(name == b"transfer-encoding" for name, _ in scope["headers"]), True
        while more and not transport.written:
            message = await receive()
            part, more = message.get("body", b""), message.get("more_body", False)
            if chunked:
                part = b"%x\r\n%b\r\n" % (len(part), part) * bool(part) + b"0\r\n\r\n" * (not more)
            protocol.data_received(part)
        await transport.wrote.wait()
        protocol.connection_lost(None)
        head, _, body = transport.written.partition(b"\r\n\r\n")
        status, *lines = head.split(b"\r\n")
        headers = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
        await send({"type": "http.response.start", "status": int(status.split()[1]), "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def ask(self, method: str, path: str, address: str = "192.0.2.1", **options: Any) -> httpx2.Response:
        transport = httpx2.ASGITransport(self.asgi, client=(address, 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://gateway") as client:
            return await client.request(method, path, **options)

    async def post(
        self, body: bytes | AsyncIterator[bytes], kind: str | None = ENVELOPE, address: str = "192.0.2.1", **headers: str
    ) -> httpx2.Response:
        """Posts a body; header names have underscores for hyphens."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if kind is not None:
            given["content-type"] = kind
        return await self.ask("POST", "/v1/reports", address, content=body, headers=given)

    async def post_capsule(self, capsule: bytes, path: str = "/ohttp", address: str = "192.0.2.1") -> httpx2.Response:
        """Posts an encapsulated request, as a relay does."""
        return await self.ask("POST", path, address, content=capsule, headers={"content-type": REQUEST_TYPE})

    async def post_batch(self, envelopes: Sequence[bytes], **headers: str) -> httpx2.Response:
        return await self.post(msgspec.msgpack.encode(list(envelopes)), BATCH, **headers)


class Served:
    """A rig behind uvicorn, with the server and protocol classes of the service."""

    def __init__(
        self, connections: int | None = None, proxies: str = "", origins: Sequence[str] = (), most: int = 2000, **options: Any
    ) -> None:
        self.rig, self.socket = Rig(origins=origins, **options), socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        config = uvicorn.Config(
            self.rig.app.begin, http=gateway_protocol(self.rig.app, proxies, connections, most), interface="asgi3",
            lifespan="off", log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = _GatewayServer(config)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        await self._server.serve([self.socket])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(PATIENCE_S)
        self.socket.close()
        assert not self._thread.is_alive()


def envelopes(count: int, n: int = 1, step: int = STEP, seed: int = 1, survey: Survey = SURVEY) -> list[bytes]:
    """Returns valid envelopes of n reports each, one pane after the other."""
    rng = np.random.default_rng(seed)
    return [sound(survey, rng, step, index % 3, n) for index in range(count)]


def title(answer: httpx2.Response) -> str:
    """Checks that the answer is a problem document and returns its title."""
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert document["status"] == answer.status_code
    assert document["type"] == urn(document["title"])
    retry_s = int(answer.headers.get("retry-after", "0"))
    assert (1 <= retry_s <= MAX_RETRY_S) == (document["title"] in RETRY_S)
    return str(document["title"])


MakeServed = Callable[..., Served]


class Clock:
    """The intake's monotonic clock. Only the test advances it."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    perf_counter = monotonic


async def chunks(count: int, size: int, taken: list[int], pause_s: float = 0.0) -> AsyncIterator[bytes]:
    for index in range(count):
        taken.append(index)
        yield bytes(size)
        await asyncio.sleep(pause_s)
