"""The gateway's HTTP protocol: uvicorn's, with limits that uvicorn lacks and a direct path for reports.

**The direct path.** A `POST /v1/reports` with a body of at most `DIRECT_BYTES` can go from the parser to the intake. Other
requests take uvicorn's path to the application, also all requests with one of the headers `INDIRECT`. `lab.bench gateway` has a
row without the direct path.

**Upgrades.** The gateway ignores the header ``Upgrade``.

**Faults.** The gateway answers an unsound request (`gateway.http.framing`) with 400, 405 or 501, and closes the
connection. If an earlier answer is due, or the answer to the unsound request has begun or ended, the gateway only closes the
connection.

**Limits.** The first head must end within 10 seconds of the connection's beginning, each later head within 10 seconds of the
head's beginning (`BoundedProtocol`). The gateway closes the connection if a head has not ended after a read of the socket, and
the reads after its first one have more than `HEAD_BYTES`. The same holds for the trailers and chunk frames between two pieces
of a body. Beyond `most` connections, a further connection is closed at once.
"""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import ClassVar, Final, cast

import httptools
import structlog
from uvicorn.middleware.proxy_headers import _TrustedHosts
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from ldpstream.gateway import metrics
from ldpstream.gateway.admission import Connections
from ldpstream.gateway.http.framing import head_fault, without_upgrade
from ldpstream.gateway.http.problems import Problem
from ldpstream.gateway.intake import Intake
from ldpstream.runtime.web import BoundedProtocol

log = structlog.get_logger("ldpstream.gateway")

HEAD_BYTES = 32 * 1024  # limit of a request's head, and of input outside bodies
DIRECT_BYTES: Final = 16 * 1024  # longest body on the direct path; the checks of a longer batch must let other requests run
PATH: Final = b"/v1/reports"
ACCEPTED: Final = STATUS_LINE[HTTPStatus.ACCEPTED] + b"%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
FORWARDED: Final = b"x-forwarded-for"
INDIRECT: Final = frozenset((b"transfer-encoding", b"expect", b"origin"))


def gateway_protocol(
    intake: Intake,
    headers: Mapping[str, str],
    proxies: str = "",
    connections: int | None = None,
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
    }  # fmt: skip
    return type("_GatewayProtocol", (GatewayProtocol,), attributes)


class _Direct:
    __slots__ = ("disconnected", "keep_alive", "protocol", "response_complete")
    more_body = False

    def __init__(self, protocol: "GatewayProtocol") -> None:
        self.protocol = protocol
        self.disconnected = self.response_complete = False
        self.keep_alive = True

    @property
    def message_event(self) -> "_Direct":
        return self

    def set(self) -> None:
        """Does nothing: no task waits for this request's events."""

    def answer(self, result: int | Problem) -> None:
        self.response_complete = True
        if not self.protocol.transport.is_closing():
            self.protocol.send(result, self.keep_alive)


class GatewayProtocol(BoundedProtocol):
    intake: ClassVar[Intake]
    fixed: ClassVar[bytes]
    proxies: ClassVar[_TrustedHosts | None]
    addresses: ClassVar[Connections | None]

    _loose_bytes = 0  # bytes received since the head began, or since the last piece of the body
    _host: str | None = None  # set if the connection counts towards this host's limit
    _in_head = False
    _body: list[bytes] | None = None  # the body of a request that may take the direct path
    _fault: Problem | None = None  # fault of the head that the parser has just read

    # ---- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.addresses is not None and not self.transport.is_closing():
            host = self.client[0] if self.client else ""
            if self.addresses.enter(host):
                self._host = host
            else:
                self.transport.abort()
        if self.transport.is_closing():
            metrics.connections_refused.inc()

    def connection_lost(self, exc: Exception | None) -> None:
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
        if self._body is not None and not self.transport.is_closing():
            self._take_uvicorns_path()
        if self._in_head:
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

    # ---- a request

    def on_message_begin(self) -> None:
        self._unset_keepalive_if_required()  # an answer to an earlier request of the same segment has set the timer
        self.url, self.headers, self.expect_100_continue = b"", [], False
        self._in_head, self._loose_bytes = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # otherwise a trailer
            super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        self._in_head, self._loose_bytes = False, 0
        self._wait_no_more()
        self._fault = head_fault(self.parser.get_method(), self.parser.get_http_version(), self.headers)
        if self._fault is not None:
            raise self._fault  # stops the parser
        if self.parser.should_upgrade():
            return
        if self.url == PATH and self._may_go_directly():
            self._body = []
        else:
            self._begin_uvicorns_cycle()

    def _may_go_directly(self) -> bool:
        return (
            (self.cycle is None or self.cycle.response_complete)
            and self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
            and not self.flow.write_paused
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
        if self._body is not None:
            self._body.append(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._loose_bytes = 0
        self._wait_no_more()
        if self._body is not None and sum(map(len, self._body)) > DIRECT_BYTES:
            self._take_uvicorns_path()
        if self._body is None:
            super().on_message_complete()
            return
        body, self._body = b"".join(self._body), None
        direct = _Direct(self)
        self.cycle = cast(RequestResponseCycle, direct)
        try:
            self.intake.take(self.headers, self._client_host(), body, direct.answer)
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

    # ---- an answer

    def send(self, result: int | Problem, keep_alive: bool) -> None:
        """Sends the answer of a request on the direct path.

        Args:
            result: the number of reports that count, or the problem.
            keep_alive: false to close the connection afterwards.
        """
        self._write(result, keep_alive)
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
            self._write(problem, False)
        else:
            self.transport.close()

    def _write(self, result: int | Problem, keep_alive: bool) -> None:
        headers = b"".join([b"%b: %b\r\n" % header for header in self.server_state.default_headers]) + self.fixed
        if not keep_alive:
            headers += b"connection: close\r\n"
        if isinstance(result, Problem):
            response = result.response()
            headers += b"".join([b"%b: %b\r\n" % header for header in response.raw_headers])
            self.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[response.status_code], headers, bytes(response.body)))
        else:
            body = b'{"accepted":%d}' % result
            self.transport.write(ACCEPTED % (headers, len(body), body))
        if not keep_alive:
            self.transport.close()
