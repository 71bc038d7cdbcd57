"""The gateway's HTTP protocol: the connections of uvicorn, with limits that uvicorn lacks, and without ASGI.

The parts of a request go from the parser to `gateway.http.app`. A task and the messages of ASGI would take more than twice the
processor time for each request.

**Pipelining.** Answers go out in the order of their requests. While two requests wait for their answers, the gateway reads no
further ones.

**Upgrades.** The gateway ignores the header ``Upgrade``.

**Faults.** The gateway answers an unsound request (`gateway.http.framing`) with 400, 405 or 501, and closes the
connection. If an earlier answer is due, or the unsound request has its answer, the gateway only closes the connection.

**Limits.** The first head must end within 10 seconds of the connection's beginning, each later head within 10 seconds of the
head's beginning (`BoundedProtocol`), and a body within 10 seconds of its head's end. These limits begin later if the gateway
does not read yet. The gateway closes the connection if a head has not ended after a read of the socket, and the reads after its
first one have more than `HEAD_BYTES`. The same holds for the trailers and chunk frames between two pieces of a body. It also
closes the connection of a client that sends requests without reading their answers. Beyond `most` connections, a further
connection is closed at once.
"""

import asyncio
from collections import deque
from http import HTTPStatus
from typing import ClassVar, Final

import httptools
from uvicorn.middleware.proxy_headers import _TrustedHosts
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from ldpstream.gateway import metrics
from ldpstream.gateway.admission import Connections
from ldpstream.gateway.http.app import GatewayApp
from ldpstream.gateway.http.framing import head_fault, without_upgrade
from ldpstream.gateway.http.problems import Problem
from ldpstream.gateway.waiting import Request
from ldpstream.runtime.web import BoundedProtocol

HEAD_BYTES = 32 * 1024  # limit of a request's head, and of input outside bodies
STOPPING_BODY_S = 0.5  # time limit of a body once the process is stopping
FORWARDED: Final = b"x-forwarded-for"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
SECURITY: Final = (
    b"content-security-policy: default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    b"x-content-type-options: nosniff\r\n"
    b"referrer-policy: no-referrer\r\n"
    b"cross-origin-resource-policy: same-origin\r\n"
    b"cache-control: no-store\r\n"
)
ACCEPTED: Final = STATUS_LINE[HTTPStatus.ACCEPTED] + b"%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"


def gateway_protocol(
    app: GatewayApp, proxies: str = "", connections: int | None = None, most: int = 2000, relays: str = ""
) -> "type[GatewayProtocol]":
    """Returns the gateway's protocol.

    Args:
        proxies: trusted proxies, as in `Settings.gateway_proxies`.
        connections: largest number of simultaneous connections from one address, or one IPv6 /48; None for no limit.
        most: largest number of simultaneous connections (`runtime.descriptors`).
        relays: addresses and networks of relays, whose connections have no limit.
    """
    attributes = {
        "gateway": app, "most": most, "proxies": _TrustedHosts(proxies) if proxies else None,
        "addresses": None if connections is None else Connections(connections, relays),
    }  # fmt: skip
    return type("_GatewayProtocol", (GatewayProtocol,), attributes)


class GatewayProtocol(BoundedProtocol):
    gateway: ClassVar[GatewayApp]
    proxies: ClassVar[_TrustedHosts | None]
    addresses: ClassVar[Connections | None]

    _loose_bytes = 0  # bytes received since the head began, or since the last piece of the body
    _host: str | None = None  # set if the connection counts towards this host's limit
    _in_head = False
    _arriving: Request | None = None  # the request whose body arrives
    _fault: Problem | None = None  # fault of the head that the parser has just read

    # ---- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._due = deque[Request]()  # the requests whose answers are not sent
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
        if self._arriving is not None and self._arriving.waiting is not None:
            detail = "the client disconnected before the end of the body"
            self._arriving.waiting.fail(Problem("malformed request", detail))
        super().connection_lost(exc)

    def shutdown(self) -> None:
        if not self._due:
            self.transport.close()
            return
        self._due[-1].keep_alive = False
        if self._arriving is not None:
            self._wait_no_more()
            self._wait(STOPPING_BODY_S)

    def data_received(self, data: bytes) -> None:
        self._loose_bytes += len(data)
        self._unset_keepalive_if_required()
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self._refuse(self._fault or Problem("malformed request", "this is not an HTTP/1.1 request"))
            return
        if self._due or self._in_head or self._arriving is not None:
            self._limit_arrival()
        elif self.timeout_keep_alive_task is None:
            self.on_response_complete()  # these bytes have ended the time limit of an idle connection
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

    def _limit_arrival(self) -> None:
        """Sets the time limit of the head or body that arrives, unless the gateway does not read it yet."""
        if (self._in_head or self._arriving is not None) and not self.flow.read_paused:
            self._wait()

    def late(self) -> None:
        arriving = self._arriving
        if arriving is not None and arriving.waiting is not None and arriving.result is None:
            arriving.keep_alive = False  # a body that stays unread would block the connection
            arriving.waiting.fail(self.gateway.intake.late())
        else:
            self.transport.close()

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
        method, version = self.parser.get_method(), self.parser.get_http_version()
        self._fault = head_fault(method, version, self.headers)
        if self._fault is not None:
            raise self._fault  # stops the parser
        if self.parser.should_upgrade() or self.transport.is_closing():
            return
        if self._due and not self._due[-1].keep_alive:
            return  # the connection ends with the answer before
        if self.flow.write_paused:  # the client does not read its answers, which would fill the memory
            self.transport.close()
            return
        if self._due:
            self.flow.pause_reading()
        path, keep_alive = httptools.parse_url(self.url).path.decode("ascii"), self.parser.should_keep_alive()
        request = Request(method, path, self.headers, self._client_host(), self.send, keep_alive and version == "1.1")
        self._arriving = request
        self._due.append(request)
        self.gateway.begin(request)
        if self.expect_100_continue and request.result is None and self._due[0] is request:
            self.transport.write(CONTINUE)

    def on_body(self, body: bytes) -> None:
        self._loose_bytes = 0
        if self._arriving is not None and self._arriving.waiting is not None:
            self.gateway.intake.receive(self._arriving.waiting, body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._loose_bytes = 0
        self._wait_no_more()
        arrived, self._arriving = self._arriving, None
        if arrived is not None and arrived.waiting is not None:
            self.gateway.intake.end(arrived.waiting)

    def _client_host(self) -> str:
        host = self.client[0] if self.client else ""
        if self.proxies is None or host not in self.proxies:
            return host
        forwarded = b", ".join(value for name, value in self.headers if name == FORWARDED).decode("latin1")
        return (forwarded and self.proxies.get_trusted_client_address(forwarded)[0]) or host

    def _refuse(self, problem: Problem) -> None:
        """Refuses a fault in a head, or in the body that arrives."""
        first, arriving = self._due[0] if self._due else None, self._arriving
        if first is not arriving or self.transport.is_closing():
            self.transport.close()
        elif arriving is None or arriving.waiting is None:
            unread = Request(b"", "", (), "", self.send, keep_alive=False)
            self._due.append(unread)
            unread.answer(problem)
        else:
            arriving.keep_alive = False
            arriving.waiting.fail(problem)

    # ---- the answers

    def send(self) -> None:
        """Sends the answers that are known, in the order of their requests."""
        while self._due and self._due[0].result is not None:
            if self.flow.write_paused:  # answers that waited for an earlier one can be many
                self.transport.close()
            self._write(self._due.popleft())
        if not self._due:
            self.on_response_complete()
        elif len(self._due) == 1:
            self.flow.resume_reading()
            self._limit_arrival()

    def _write(self, request: Request) -> None:
        if self.transport.is_closing():
            return
        result = request.result
        headers = b"".join([b"%b: %b\r\n" % header for header in self.server_state.default_headers]) + SECURITY
        headers += self.gateway.permission(request.headers)
        if not request.keep_alive:
            headers += b"connection: close\r\n"
        if isinstance(result, int):
            body = b'{"accepted":%d}' % result
            self.transport.write(ACCEPTED % (headers, len(body), body))
        elif result is not None:
            response = result.response() if isinstance(result, Problem) else result
            headers += b"".join([b"%b: %b\r\n" % header for header in response.raw_headers])
            body = b"" if request.method == b"HEAD" else bytes(response.body)
            self.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[response.status_code], headers, body))
        if not request.keep_alive:
            self.transport.close()
