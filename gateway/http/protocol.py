"""The gateway's HTTP protocol: uvicorn's, with limits that uvicorn lacks and a direct path for reports.

**The direct path.** A `POST /v1/reports` or `POST /ohttp` with a body of at most `DIRECT_BYTES` can go from the parser to the
intake. Other requests take uvicorn's path to the application. `lab.bench gateway` has a row without the direct path.

**Upgrades.** The gateway ignores the header ``Upgrade``.

**Faults.** The gateway answers an unsound request (`gateway.http.framing`) with 400, 405 or 501, and closes the
connection. If an earlier answer is due, or the answer to the unsound request has begun or ended, the gateway only closes the
connection.

**Limits.** The first head must end within `HEAD_S` seconds of the connection's beginning, each later head within `HEAD_S` of
the head's beginning. The gateway closes the connection if a head has not ended after a read of the socket, and the reads after
its first one have more than `HEAD_BYTES`. The same holds for the trailers and chunk frames between two pieces of a body. Beyond
`most` connections, a further connection gets 503 `busy` for its first request and is closed. If there are an eighth more, it is
closed at once.
"""

import asyncio
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import ClassVar, Final, cast

import httptools
import structlog
from starlette.types import Receive, Scope, Send
from uvicorn.middleware.proxy_headers import _TrustedHosts
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from ldpstream.device.relay.capsules import RESPONSE_TYPE
from ldpstream.gateway import metrics, oblivious
from ldpstream.gateway.admission import Connections
from ldpstream.gateway.http.framing import CHUNK_LINE_BYTES, chunk_fault, head_fault, without_upgrade
from ldpstream.gateway.http.origins import allow, permissions
from ldpstream.gateway.http.problems import Problem
from ldpstream.gateway.intake import Intake
from ldpstream.gateway.oblivious import take_capsule
from ldpstream.runtime.web import SecurityHeaders

log = structlog.get_logger("ldpstream.gateway")

HEAD_BYTES, HEAD_S = 32 * 1024, 10.0  # limits of a request's head, and of input outside bodies
DIRECT_BYTES: Final = 16 * 1024  # longest body on the direct path; the checks of a longer batch must let other requests run
PATH, RELAY_PATH = b"/v1/reports", oblivious.PATH.encode()
ACCEPTED: Final = STATUS_LINE[HTTPStatus.ACCEPTED] + b"%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
SEALED: Final = b"%b%%bcontent-type: %b\r\ncontent-length: %%d\r\n\r\n%%b" % (
    STATUS_LINE[HTTPStatus.OK],
    RESPONSE_TYPE.encode(),
)
FORWARDED: Final = b"x-forwarded-for"
INDIRECT: Final = frozenset((b"transfer-encoding", b"expect"))  # a request with such a header takes uvicorn's path


def gateway_protocol(
    intake: Intake,
    headers: Mapping[str, str],
    proxies: str = "",
    connections: int | None = None,
    origins: Sequence[str] = (),
    most: int = 2000,
    relays: str = "",
) -> type[HttpToolsProtocol]:
    """Returns the gateway's protocol.

    Args:
        proxies: trusted proxies, as in `Settings.gateway_proxies`.
        connections: largest number of simultaneous connections from one address, or one IPv6 /48; None for no limit.
        most: largest number of simultaneous connections (`runtime.descriptors`).
        relays: addresses and networks of relays, whose connections have no limit.
    """
    fixed = b"".join(b"%s: %s\r\n" % (name.lower().encode(), value.encode()) for name, value in headers.items())
    attributes = {
        "intake": intake, "fixed": fixed, "most": most, "proxies": _TrustedHosts(proxies) if proxies else None,
        "addresses": None if connections is None else Connections(connections, relays),
        "crowded": SecurityHeaders(allow(_crowded, origins), headers),
        "permissions": permissions(origins),
    }  # fmt: skip
    return type("_GatewayProtocol", (GatewayProtocol,), attributes)


async def _crowded(scope: Scope, receive: Receive, send: Send) -> None:
    problem = Problem("busy", "this gateway has too many connections", headers={"Connection": "close"})
    await problem.response()(scope, receive, send)


class _Direct:
    __slots__ = ("disconnected", "keep_alive", "permission", "protocol", "response_complete")
    more_body = False

    def __init__(self, protocol: "GatewayProtocol", permission: bytes) -> None:
        self.protocol, self.permission = protocol, permission
        self.disconnected = self.response_complete = False
        self.keep_alive = True

    @property
    def message_event(self) -> "_Direct":
        return self

    def set(self) -> None:
        """Does nothing: no task waits for this request's events."""

    def answer(self, result: int | bytes | Problem) -> None:
        self.response_complete = True
        if not self.protocol.transport.is_closing():
            self.protocol.send(result, self.keep_alive, self.permission)


class GatewayProtocol(HttpToolsProtocol):
    intake: ClassVar[Intake]
    fixed: ClassVar[bytes]
    proxies: ClassVar[_TrustedHosts | None]
    addresses: ClassVar[Connections | None]
    most: ClassVar[int]
    crowded: ClassVar[SecurityHeaders]
    permissions: ClassVar[dict[bytes, bytes]]

    _loose_bytes = 0  # bytes received since the head began, or since the last piece of the body
    _timer: asyncio.TimerHandle | None = None
    _host: str | None = None  # set if the connection counts towards this host's limit
    _in_head = False
    _body: list[bytes] | None = None  # the body of a request that may take the direct path
    _fault: Problem | None = None  # fault of the head that the parser has just read
    _chunked = False
    _chunk_bytes: int | None = None  # bytes received of a chunk whose size is not checked yet
    _tail = b""  # the last bytes of the chunked input so far

    # ---- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self._wait()
        if len(self.connections) > self.most + max(1, self.most // 8):
            metrics.connections_refused.inc()
            self.transport.abort()
            return
        if len(self.connections) > self.most:
            self.app = self.crowded
        if self.addresses is not None:
            host = self.client[0] if self.client else ""
            if self.addresses.enter(host):
                self._host = host
            else:
                metrics.connections_refused.inc()
                self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        if self.addresses is not None and self._host is not None:
            self.addresses.leave(self._host)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._loose_bytes += len(data)
        self._unset_keepalive_if_required()
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self._refuse(self._fault or Problem("malformed request", "this is not an HTTP/1.1 request"))
            return
        if self._chunked and (fault := self._check_chunk(data)) is not None:
            self._refuse(fault)
            return
        if self._body is not None and not self.transport.is_closing():
            self._take_uvicorns_path()
        if self._in_head and self._timer is None:
            self._wait()
        if self._loose_bytes > HEAD_BYTES:
            self.transport.close()

    def _feed(self, data: bytes) -> None:
        rest = memoryview(data)
        while True:
            try:
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                rest, read = rest[upgrade.args[0] :], self.parser
                self.parser = httptools.HttpRequestParser(self)  # the other one would ignore what follows `Connection: close`
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
                self.parser.feed_data(without_upgrade(read.get_method(), self.url, read.get_http_version(), self.headers))
            else:
                return

    def _check_chunk(self, data: bytes) -> Problem | None:
        read = self._tail + data
        self._tail = read[-CHUNK_LINE_BYTES:]
        if self._chunk_bytes is None:
            return None
        end, self._chunk_bytes = len(read) - self._chunk_bytes, None
        return chunk_fault(read[max(0, end - CHUNK_LINE_BYTES) : end])

    # ---- a request

    def on_message_begin(self) -> None:
        self._unset_keepalive_if_required()  # an answer to an earlier request of the same segment has set the timer
        self.url, self.headers, self.expect_100_continue = b"", [], False
        self._in_head, self._loose_bytes = True, 0
        self._chunked, self._chunk_bytes, self._tail = False, None, b""

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # otherwise a trailer
            super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        self._in_head, self._loose_bytes = False, 0
        if self._timer is not None:
            self._wait_no_more()
        self._fault = head_fault(self.parser.get_method(), self.parser.get_http_version(), self.headers)
        if self._fault is not None:
            raise self._fault  # stops the parser
        if self.parser.should_upgrade():
            return
        self._chunked = any(name == b"transfer-encoding" for name, _ in self.headers)
        if self.url in (PATH, RELAY_PATH) and self._may_go_directly():
            self._body = []
        else:
            self._begin_uvicorns_cycle()

    def on_chunk_header(self) -> None:
        self._chunk_bytes = 0

    def on_chunk_complete(self) -> None:
        self._chunk_bytes = None

    def _may_go_directly(self) -> bool:
        return (
            (self.cycle is None or self.cycle.response_complete)
            and self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
            and not self.flow.write_paused
            and self.app is not self.crowded
            and INDIRECT.isdisjoint([name for name, _ in self.headers])
        )

    def _begin_uvicorns_cycle(self) -> None:
        url, headers, expected = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expected
        self.headers += headers  # the scope refers to this list
        super().on_headers_complete()

    def _take_uvicorns_path(self) -> None:
        parts, self._body = self._body, None
        self._begin_uvicorns_cycle()
        for part in parts or ():
            super().on_body(part)

    def on_body(self, body: bytes) -> None:
        self._loose_bytes = 0
        if self._chunk_bytes is not None:
            self._chunk_bytes += len(body)
        if self._body is not None:
            self._body.append(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._loose_bytes = 0
        if self._timer is not None:
            self._wait_no_more()
        if self._body is not None and sum(map(len, self._body)) > DIRECT_BYTES:
            self._take_uvicorns_path()
        if self._body is None:
            super().on_message_complete()
            return
        body, self._body = b"".join(self._body), None
        direct = _Direct(self, self._permission())
        self.cycle = cast(RequestResponseCycle, direct)
        try:
            if self.url == PATH:
                self.intake.take(self.headers, self._client_host(), body, direct.answer)
            else:
                take_capsule(self.intake, self.headers, self._client_host(), body, direct.answer)
        except Exception:
            log.exception("internal error")
            if not direct.response_complete:
                self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body:
            self._wait()

    def _client_host(self) -> str:
        host = self.client[0] if self.client else ""
        if self.proxies is None or host not in self.proxies:
            return host
        forwarded = b", ".join(value for name, value in self.headers if name == FORWARDED).decode("latin1")
        return (forwarded and self.proxies.get_trusted_client_address(forwarded)[0]) or host

    def _permission(self) -> bytes:
        if not self.permissions:
            return b""
        return self.permissions.get(next((value for name, value in self.headers if name == b"origin"), b""), b"")

    # ---- an answer

    def send(self, result: int | bytes | Problem, keep_alive: bool, permission: bytes) -> None:
        """Sends the answer of a request on the direct path.

        Args:
            result: the number of reports that count, an encapsulated response, or the problem.
            keep_alive: false to close the connection afterwards.
        """
        self._write(result, keep_alive, permission)
        self.on_response_complete()

    def _refuse(self, problem: Problem) -> None:
        cycle = self.cycle
        if self.transport.is_closing():
            return
        if cycle is not None and cycle.more_body:  # the fault is in the body of this request
            unanswered = not cycle.response_started and not self.pipeline
        else:
            unanswered = cycle is None or cycle.response_complete
        if unanswered:
            self._write(problem, False, self._permission() if self.headers else b"")
        else:
            self.transport.close()

    def _write(self, result: int | bytes | Problem, keep_alive: bool, permission: bytes) -> None:
        headers = b"".join([b"%b: %b\r\n" % header for header in self.server_state.default_headers]) + self.fixed + permission
        if not keep_alive:
            headers += b"connection: close\r\n"
        if isinstance(result, Problem):
            response = result.response()
            headers += b"".join([b"%b: %b\r\n" % header for header in response.raw_headers])
            self.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[response.status_code], headers, bytes(response.body)))
        elif isinstance(result, bytes):
            self.transport.write(SEALED % (headers, len(result), result))
        else:
            body = b'{"accepted":%d}' % result
            self.transport.write(ACCEPTED % (headers, len(body), body))
        if not keep_alive:
            self.transport.close()

    # ---- the time limit of a head

    def _wait(self) -> None:
        self._wait_no_more()
        self._timer = self.loop.call_later(HEAD_S, self.transport.close)

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
