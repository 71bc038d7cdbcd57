"""The gateway's HTTP on a raw socket: all framings get the same answer, and odd requests are safe."""

import re
import socket
import time
from contextlib import suppress

import msgspec
import pytest

from ldpstream.gateway.http.bodies import BATCH, ENVELOPE
from tests.services.rig import PATIENCE_S, wait_until

from .gateway_rig import KEYS, STEP, TOKEN, MakeServed, Rig, envelopes

Answer = tuple[int, dict[bytes, bytes], bytes]


def request(
    body: bytes, kind: str = ENVELOPE, *headers: str, token: str = TOKEN, first: str = "POST /v1/reports HTTP/1.1"
) -> bytes:
    lines = [first, "host: x", f"content-type: {kind}", f"authorization: Bearer {token}", *headers]
    if not any(line.lower().startswith(("content-length", "transfer-encoding")) for line in headers):
        lines.append(f"content-length: {len(body)}")
    return "".join(line + "\r\n" for line in lines).encode() + b"\r\n" + body


class Socket:
    """A connection to the gateway."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self._received = b""

    def send(self, *pieces: bytes) -> None:
        """Sends the pieces one after the other. The gateway usually reads each of them alone."""
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for index, piece in enumerate(pieces):
            time.sleep(0.02 * bool(index))  # only makes it likely that the gateway reads the pieces apart
            self._socket.sendall(piece)

    def answer(self) -> Answer:
        """Returns the next answer: status, headers without the date, body."""
        while b"\r\n\r\n" not in self._received:
            self._more()
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        status, *lines = head.split(b"\r\n")
        headers = {name: value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        length = int(headers.get(b"content-length", b"0"))
        while len(self._received) < length:
            self._more()
        body, self._received = self._received[:length], self._received[length:]
        headers.pop(b"date", None)
        return int(status.split()[1]), headers, body

    def is_closed(self) -> bool:
        """True if the gateway closes the connection without another byte."""
        return not self._received and self._socket.recv(1) == b""

    def close(self) -> None:
        self._socket.close()

    def _more(self) -> None:
        more = self._socket.recv(65536)
        assert more, f"closed after {self._received!r}"
        self._received += more


(GOOD,), (LATE,), (EARLY,) = envelopes(1), envelopes(1, step=0), envelopes(1, step=STEP + 3)
BODIES = msgspec.msgpack.encode(envelopes(3))
REQUESTS = {
    "envelope": request(GOOD),
    "with a key": request(GOOD, ENVELOPE, f"idempotency-key: {KEYS[0]}"),
    "batch": request(BODIES, BATCH, f"Idempotency-Key: {KEYS[0]}"),
    "too old": request(LATE),
    "early": request(EARLY),
    "refused batch": request(msgspec.msgpack.encode([GOOD, LATE, b"", EARLY]), BATCH),
    "no envelope": request(b"\xc1"),
    "empty": request(b""),
    "wrong token": request(GOOD, token="wrong"),
    "two tokens": request(GOOD, ENVELOPE, "authorization: Bearer wrong"),
    "wrong kind": request(GOOD, "text/plain"),
    "compressed": request(GOOD, ENVELOPE, "content-encoding: gzip"),
    "malformed key": request(GOOD, ENVELOPE, "idempotency-key: short"),
    "too large": request(bytes(650_001), BATCH),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_every_framing_gets_the_same_answer(name: str, served: MakeServed) -> None:
    one, whole = served(tokens=[TOKEN]), REQUESTS[name]
    head, _, body = whole.partition(b"\r\n\r\n")
    connection = Socket(one.port)
    answers, appended = [], []
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:5], body[5:]) if part) + b"0\r\n\r\n"
    chunked = re.sub(rb"content-length: \d+", b"transfer-encoding: chunked", head) + b"\r\n\r\n" + chunks
    absolute = whole.replace(b"/v1/reports", b"http://x/v1/reports?y=z")
    for pieces in ((whole,), (head, b"\r\n\r\n" + body), (chunked,), (whole[:-5], whole[-5:]), (absolute,)):
        connection.send(*pieces)
        answers.append(connection.answer())
        appended.append((one.rig.log.appended.copy(), [keyed and keyed.hashed for keyed in one.rig.log.keyed]))
        one.rig.log.appended.clear()
        one.rig.log.keyed.clear()
    assert answers == [answers[0]] * 5
    assert appended == [appended[0]] * 5
    assert (answers[0][0] == 202) == (name in ("envelope", "with a key", "batch")) == bool(appended[0][0])
    connection.close()


def test_other_methods_and_paths_are_refused_and_the_connection_goes_on(served: MakeServed) -> None:
    connection = Socket(served(tokens=[TOKEN]).port)
    for first, status in [("PUT /v1/reports", 405), ("GET /v1/reports", 405), ("POST /v1/nothing", 404), ("GET /health", 200)]:
        connection.send(request(GOOD, first=f"{first} HTTP/1.1"))
        assert connection.answer()[0] == status
    connection.send(request(b"", first="HEAD /v1/reports HTTP/1.1") + request(GOOD, ENVELOPE, "connection: close"))
    received = b""
    while more := connection._socket.recv(65536):
        received += more
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"405", b"202"]
    assert received.endswith(b'{"accepted":1}')
    assert received.count(b"{") == 1  # an answer to HEAD has no body
    connection.close()


def test_a_client_that_does_not_read_its_answers_is_closed(served: MakeServed) -> None:
    """Small requests for a large document would fill the memory."""
    connection = Socket(served().port)
    whole, received = request(b"", first="GET /openapi.json HTTP/1.1"), b""
    with suppress(ConnectionError):
        connection._socket.sendall(whole * 2000)
        while more := connection._socket.recv(2**20):
            received += more
    assert received.count(b"HTTP/1.1 200") < 1000
    connection.close()


def test_a_client_that_wants_to_close_gets_its_answer_first(served: MakeServed) -> None:
    port = served(tokens=[TOKEN]).port
    for whole in (request(GOOD, ENVELOPE, "connection: close"), request(GOOD, first="POST /v1/reports HTTP/1.0")):
        connection = Socket(port)
        connection.send(whole)
        assert connection.answer()[0] == 202
        assert connection.is_closed()
        connection.close()


def test_pipelined_requests_are_answered_in_order(served: MakeServed) -> None:
    one = served(tokens=[TOKEN])
    kinds = {202: request(GOOD), 422: request(LATE), 400: request(b""), 200: request(b"", first="GET /health HTTP/1.1")}
    order = [202, 202, 422, 200, 202, 400, 400, 200, 422, 202]
    connection = Socket(one.port)
    connection.send(b"".join(kinds[status] for status in order))
    assert [connection.answer()[0] for _ in order] == order
    connection.send(request(GOOD))
    assert connection.answer()[0] == 202
    assert one.rig.log.appended == [[GOOD]] * 5
    connection.close()


async def test_no_further_request_is_read_while_two_wait() -> None:
    rig = Rig(tokens=[TOKEN])
    rig.log.open, (protocol, transport) = False, rig.connect("192.0.2.1")
    for reading in (True, False):
        protocol.data_received(request(GOOD))
        assert transport.reading == reading
    rig.log.release()
    assert transport.reading
    assert transport.written.count(b"HTTP/1.1 202") == 2


async def test_the_time_limit_of_a_body_begins_when_the_gateway_reads_it() -> None:
    rig = Rig(tokens=[TOKEN])
    rig.log.open, (protocol, transport) = False, rig.connect("192.0.2.1")
    protocol.data_received(request(GOOD) + request(GOOD)[:-1])
    assert (transport.reading, protocol._timer) == (False, None)
    rig.log.release()
    assert transport.reading
    assert protocol._timer is not None
    protocol.connection_lost(None)


async def test_all_answers_go_out_before_the_connection_of_a_stopping_gateway_closes() -> None:
    rig = Rig(tokens=[TOKEN])
    rig.log.open, (protocol, transport) = False, rig.connect("192.0.2.1")
    protocol.data_received(request(GOOD) * 2)
    protocol.shutdown()
    protocol.data_received(request(GOOD))
    assert not transport.is_closing()
    rig.log.release()
    assert rig.log.appended == [[GOOD]] * 2
    assert transport.written.count(b"HTTP/1.1 202") == 2
    assert transport.is_closing()
    protocol.connection_lost(None)


async def test_no_request_counts_after_one_that_ends_the_connection() -> None:
    rig = Rig(tokens=[TOKEN])
    rig.log.open, (protocol, transport) = False, rig.connect("192.0.2.1")
    protocol.data_received(request(GOOD, ENVELOPE, "connection: keep-alive", first="POST /v1/reports HTTP/1.0") + request(GOOD))
    rig.log.release()
    assert rig.log.appended == [[GOOD]]
    assert transport.is_closing()
    protocol.connection_lost(None)


async def test_answers_that_waited_for_an_earlier_one_do_not_fill_the_memory() -> None:
    rig = Rig(tokens=[TOKEN])
    rig.log.open, (protocol, transport) = False, rig.connect("192.0.2.1")
    protocol.data_received(request(GOOD) + request(b"", first="GET /openapi.json HTTP/1.1") * 100)
    protocol.pause_writing()  # as the transport does if the client does not read
    rig.log.release()
    assert transport.written == b""
    assert transport.is_closing()
    protocol.connection_lost(None)


@pytest.mark.parametrize("last", [request(GOOD, token="wrong")[-5:], b"\r\n"], ids=["a refused body", "a blank line"])
async def test_a_connection_without_a_request_has_a_time_limit(last: bytes) -> None:
    """Also after bytes that begin no request."""
    protocol, transport = Rig(tokens=[TOKEN]).connect("192.0.2.1")
    whole = request(GOOD, token="wrong")
    protocol.data_received(whole.removesuffix(last))
    assert transport.written.count(b"HTTP/1.1 401") == 1
    protocol.data_received(last)
    assert protocol.timeout_keep_alive_task is not None
    protocol.connection_lost(None)


def test_an_expected_100_is_sent_before_the_body(served: MakeServed) -> None:
    """But not before the answer to an earlier request."""
    one = served(tokens=[TOKEN])
    connection = Socket(one.port)
    head, _, body = request(GOOD, ENVELOPE, "expect: 100-continue").partition(b"\r\n\r\n")
    connection.send(head + b"\r\n\r\n")
    assert connection.answer()[0] == 100
    one.rig.log.open = False
    connection.send(body + head + b"\r\n\r\n")
    wait_until(lambda: bool(one.rig.log.waiting), lambda: "no request arrived")
    one.loop.call_soon_threadsafe(one.rig.log.release)
    connection.send(body)
    assert [connection.answer()[0] for _ in range(2)] == [202, 202]
    connection.close()


def test_a_client_that_disconnects_before_its_answer_harms_nobody(served: MakeServed) -> None:
    one = served(tokens=[TOKEN])
    one.rig.log.open = False
    for _ in range(3):
        connection = Socket(one.port)
        connection.send(request(GOOD))
        wait_until(lambda: bool(one.rig.log.waiting), lambda: "no request arrived")
        connection.close()
        one.loop.call_soon_threadsafe(one.rig.log.release)
        wait_until(lambda: not one.rig.log.waiting, lambda: "no answer")
        one.rig.log.open = False
    one.rig.log.open = True
    connection, before_its_end = Socket(one.port), Socket(one.port)
    before_its_end.send(request(GOOD)[:-1])
    wait_until(lambda: one.rig.intake._memory.taken_bytes > 0, lambda: "no part of a body arrived")
    before_its_end.close()
    wait_until(lambda: one.rig.intake._memory.taken_bytes == 0, lambda: "the body still takes memory")
    connection.send(request(GOOD))
    assert connection.answer()[0] == 202
    assert one.rig.log.appended == [[GOOD]] * 4
    connection.close()


def test_an_error_in_the_gateway_is_a_500_and_the_connection_goes_on(served: MakeServed) -> None:
    one = served(tokens=[TOKEN])
    one.rig.log.failure = ZeroDivisionError("secret")
    connection = Socket(one.port)
    connection.send(request(GOOD))
    status, _, body = connection.answer()
    assert (status, b"internal error" in body, b"secret" in body) == (500, True, False)
    one.rig.log.failure = None
    connection.send(request(GOOD))
    assert connection.answer()[0] == 202
    assert one.rig.intake._memory.taken_bytes == 0
    connection.close()


def test_a_trusted_proxy_names_the_client(served: MakeServed) -> None:
    """The rate limits each forwarded address by itself. Without a trusted proxy, the header has no effect."""
    for proxies, expected in (("127.0.0.0/8", [202, 202, 429, 202, 429]), ("", [202, *[429] * 4])):
        one = served(tokens=[TOKEN], proxies=proxies, rate=1e-6)  # a burst of 1
        answers = []
        for address in ("192.0.2.1", "192.0.2.2, 127.0.0.1", "192.0.2.1", "192.0.2.3", "192.0.2.2"):
            connection = Socket(one.port)
            connection.send(request(GOOD, ENVELOPE, f"x-forwarded-for: {address}"))
            answers.append(connection.answer()[0])
            connection.close()
        assert answers == expected
