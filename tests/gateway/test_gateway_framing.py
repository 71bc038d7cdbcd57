"""Upgrades are ignored, and heads or chunks that a proxy may read differently are refused, and no device forgets a report."""

import json
import re
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from random import Random

import h11
import pytest

from ldpstream.gateway.http.bodies import ENVELOPE
from ldpstream.gateway.http.problems import FINAL
from tests.services.rig import wait_until

from .gateway_rig import KEYS, TOKEN, MakeServed, envelopes
from .test_gateway_http import GOOD, Socket, request

H2C = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABkAARAAAAAAAIAAAAA")
SIZE = b"%x" % len(GOOD)
CHUNKS = SIZE + b"\r\n" + GOOD + b"\r\n0\r\n\r\n"


def chunked(
    body: bytes = CHUNKS, coding: str = "transfer-encoding: chunked", first: str = "POST /v1/reports HTTP/1.1"
) -> bytes:
    return request(body, ENVELOPE, coding, first=first)


# ---- upgrades


@pytest.mark.parametrize("upgrade", ["h2c", "websocket", "TLS/1.0, h2c"])
def test_an_upgrade_is_ignored(upgrade: str, served: MakeServed) -> None:
    """Requests with an upgrade come alone, before further requests in the same segment, in several segments, and in chunks."""
    one = served(tokens=[TOKEN])
    headers = ("connection: keep-alive, Upgrade", f"Upgrade: {upgrade}", f"idempotency-key: {KEYS[0]}")
    whole = request(GOOD, ENVELOPE, *headers)
    in_chunks = request(CHUNKS, ENVELOPE, *headers, "transfer-encoding: chunked")
    connection = Socket(one.port)
    for pieces in (
        [whole],
        [whole + whole + request(GOOD) + whole],
        [whole[:40], whole[40:-7], whole[-7:]],
        [in_chunks + whole],
        [request(GOOD, ENVELOPE, *H2C, f"idempotency-key: {KEYS[0]}")],  # as Java's HttpClient and curl --http2 begin
    ):
        connection.send(*pieces)
        for _ in re.findall(rb"POST /v1/reports", b"".join(pieces)):
            assert connection.answer()[0] == 202
    connection.close()
    assert one.rig.log.appended == [[GOOD]] * 9
    assert [keyed is not None for keyed in one.rig.log.keyed] == [True, True, True, False, True, True, True, True, True]


def test_an_upgrade_of_a_connection_that_ends_is_ignored(served: MakeServed) -> None:
    port = served(tokens=[TOKEN]).port
    for whole in (
        request(GOOD, ENVELOPE, "connection: close, upgrade", "upgrade: h2c"),
        request(GOOD, ENVELOPE, "connection: upgrade", "upgrade: h2c", first="POST /v1/reports HTTP/1.0"),
    ):
        connection = Socket(port)
        connection.send(whole)
        assert connection.answer()[0] == 202
        assert connection.is_closed()
        connection.close()


# ---- headers


def test_blanks_around_a_headers_value_are_no_part_of_it(served: MakeServed) -> None:
    one = served(tokens=[TOKEN])
    for headers in ((), ("transfer-encoding:  chunked  ",)):
        body = CHUNKS if headers else GOOD
        whole = request(body, f" \t{ENVELOPE}\t ", f"Idempotency-Key: \t {KEYS[0]} \t ", *headers, token=f"{TOKEN} \t")
        connection = Socket(one.port)
        connection.send(whole)
        assert connection.answer()[0] == 202
        connection.close()
    assert (len(one.rig.log.appended), len(one.rig.log.counted())) == (2, 1)


def test_trailers_are_no_headers(served: MakeServed) -> None:
    one = served(tokens=[TOKEN])
    connection = Socket(one.port)
    connection.send(chunked(CHUNKS[:-2] + b"idempotency-key: short\r\nauthorization: no\r\n\r\n"), chunked())
    assert [connection.answer()[0] for _ in range(2)] == [202, 202]
    connection.close()
    assert one.rig.log.keyed == [None, None]


@pytest.mark.parametrize(
    "twice", [("content-type: text/plain",), ("idempotency-key: " + KEYS[0], "idempotency-key: " + KEYS[1]),
              ("authorization: Bearer wrong",), ("content-encoding: identity", "content-encoding: gzip")],
)  # fmt: skip
def test_a_header_that_may_come_once_is_refused_if_it_comes_twice(twice: Sequence[str], served: MakeServed) -> None:
    one = served(tokens=[TOKEN])
    connection = Socket(one.port)
    for whole in (request(GOOD, ENVELOPE, *twice), request(CHUNKS, ENVELOPE, *twice, "transfer-encoding: chunked")):
        connection.send(whole)
        status, _, body = connection.answer()
        assert (status, json.loads(body)["title"]) == (400, "malformed request")
    connection.send(request(GOOD))  # the framing is sound, so the connection goes on
    assert connection.answer()[0] == 202
    connection.close()


def without(whole: bytes, line: bytes) -> bytes:
    assert whole.count(line) == 1
    return whole.replace(line, b"")


REFUSED = {
    "no host": (without(request(GOOD), b"host: x\r\n"), 400),
    "no host, another path": (b"GET /health HTTP/1.1\r\n\r\n", 400),
    "two hosts": (request(GOOD, ENVELOPE, "host: x"), 400),
    "two hosts in HTTP/1.0": (request(GOOD, ENVELOPE, "host: y", first="POST /v1/reports HTTP/1.0"), 400),
    "two hosts in one header": (request(GOOD).replace(b"host: x", b"host: x, y z"), 400),
    "a host with a path": (request(GOOD).replace(b"host: x", b"host: x/y"), 400),
    "gzip, chunked": (chunked(coding="transfer-encoding: gzip, chunked"), 501),
    "gzip, chunked in two headers": (request(CHUNKS, ENVELOPE, "transfer-encoding: gzip", "transfer-encoding: chunked"), 501),
    "an empty coding": (chunked(coding="transfer-encoding: ,chunked"), 501),
    "identity": (chunked(coding="transfer-encoding: identity"), 501),
    "a coding in HTTP/1.0": (chunked(first="POST /v1/reports HTTP/1.0"), 400),
    "an unknown coding with an upgrade": (request(CHUNKS, ENVELOPE, *H2C, "transfer-encoding: gzip, chunked"), 501),
    "chunked twice": (chunked(coding="transfer-encoding: chunked, chunked"), 400),
    "a chunk of 2^64": (chunked(b"1" + b"0" * 16 + CHUNKS[len(SIZE) :]), 400),
    "a negative chunk": (chunked(b"-1" + CHUNKS), 400),
    "a blank after a chunk's size": (chunked(SIZE + b" " + CHUNKS[len(SIZE) :]), 400),
    "0x before a chunk's size": (chunked(b"0x" + CHUNKS), 400),
    "a line folded": (request(GOOD, ENVELOPE, f"idempotency-key:\r\n {KEYS[0]}"), 400),
    "a blank before a colon": (request(GOOD, ENVELOPE, "x : y"), 400),
    "bare line feeds": (request(GOOD).replace(b"\r\n", b"\n"), 400),
    "HTTP/2.0": (request(GOOD, first="POST /v1/reports HTTP/2.0"), 400),
    "HTTP/0.9": (request(GOOD, first="POST /v1/reports HTTP/0.9"), 400),
    "no version": (request(GOOD, first="POST /v1/reports"), 400),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "a tunnel": (b"CONNECT x:1 HTTP/1.1\r\nhost: x:1\r\n\r\n", 405),
    "two lengths": (request(GOOD, ENVELOPE, "content-length: 5", "content-length: 6"), 400),
    "a length of letters": (request(GOOD, ENVELOPE, "content-length: x"), 400),
    "a negative length": (request(GOOD, ENVELOPE, "content-length: -1"), 400),
    "a length and chunks": (request(GOOD, ENVELOPE, "content-length: 5", "transfer-encoding: chunked"), 400),
    "two codings and a length": (request(GOOD, ENVELOPE, "transfer-encoding: chunked, identity", "content-length: 5"), 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), 400),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_fault_of_the_framing_is_a_problem_that_ends_the_connection(name: str, served: MakeServed) -> None:
    """None of these answers makes a device forget its report."""
    one, (whole, expected) = served(tokens=[TOKEN]), REFUSED[name]
    connection = Socket(one.port)
    connection.send(whole)
    status, headers, body = connection.answer()
    document = json.loads(body)
    assert (status, headers[b"content-type"], headers[b"cache-control"]) == (expected, b"application/problem+json", b"no-store")
    assert status == document["status"] != FINAL
    assert connection.is_closed()
    connection.close()
    assert one.rig.log.appended == []
    wait_until(lambda: one.rig.intake._memory.taken_bytes == 0, lambda: "the body still takes memory")


def test_a_fault_after_the_answer_gets_no_second_answer(served: MakeServed) -> None:
    """The gateway answers 401 before the body has ended. Then a chunk has a fault."""
    connection = Socket(served(tokens=[TOKEN]).port)
    connection.send(without(chunked(SIZE + b"\r\n" + GOOD[:1]), f"authorization: Bearer {TOKEN}\r\n".encode()))
    assert connection.answer()[0] == 401
    connection.send(b"x" * (len(GOOD) - 1) + b"\r\n-1\r\n")
    assert connection.is_closed()
    connection.close()


def test_no_answer_comes_before_the_answer_to_an_earlier_request(served: MakeServed) -> None:
    """A client would take the 400 of a fault for the answer to its report."""
    one = served(tokens=[TOKEN])
    for fault in (b"\0\r\n\r\n", REFUSED["no host"][0], REFUSED["a chunk of 2^64"][0]):
        one.rig.log.open = False
        connection = Socket(one.port)
        connection.send(request(GOOD) + fault)
        assert connection.is_closed()
        connection.close()
        one.loop.call_soon_threadsafe(one.rig.log.release)


# ---- random heads

LINES = (
    "host: y", "Host: x", "transfer-encoding: chunked", "transfer-encoding: gzip, chunked", "Transfer-Encoding : chunked",
    "transfer-encoding:\tchunked", "content-length: 0", "content-length: 7", "content-length: +9", "content-length: 1, 1",
    "connection: upgrade", "upgrade: h2c", "connection: close", "expect: 100-continue", "x: y\r\n z", "x: y\nz: w", "x", ":",
    f"idempotency-key: {KEYS[0]}", f"idempotency-key: {KEYS[1]} ", "content-type: text/plain", "x: \0", "x:\ry",
)  # fmt: skip


def mutated(rng: Random, bodies: list[bytes]) -> bytes:
    """Returns two requests with random faults, in one stream."""
    stream = b""
    for body in bodies:
        whole = request(body) if rng.random() < 0.5 else chunked(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        head, _, rest = whole.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        for _ in range(rng.randrange(3)):
            place = rng.randrange(1, len(lines) + 1)
            if rng.random() < 0.7:
                lines.insert(place, rng.choice(LINES).encode())
            elif place < len(lines):
                del lines[place]
        whole = b"\r\n".join(lines) + b"\r\n\r\n" + rest
        if rng.random() < 0.3:
            place = rng.randrange(len(whole))
            whole = whole[:place] + rng.randbytes(rng.randrange(3)) + whole[place + rng.randrange(2) :]
        stream += whole
    return stream


def bodies_by_h11(stream: bytes) -> list[bytes]:
    """Returns the bodies of the sound requests at the beginning of the stream, as another parser reads them."""
    connection, bodies = h11.Connection(h11.SERVER), list[bytes]()
    connection.receive_data(stream)
    connection.receive_data(b"")
    parts = list[bytes]()
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Data):
                parts.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                bodies.append(b"".join(parts))
                parts = []
                connection.send(h11.Response(status_code=202, headers=[("content-length", "0")]))
                connection.send(h11.EndOfMessage())
                connection.start_next_cycle()
            elif not isinstance(event, h11.Request):
                return bodies
    except h11.ProtocolError:
        return bodies


def test_another_parser_finds_the_same_bodies(served: MakeServed) -> None:
    """No request is smuggled: what the gateway appends, h11 finds in the same streams. The envelopes of all streams differ."""
    one, rng, found = served(tokens=[TOKEN[::-1]], collectors=[TOKEN]), Random(20261123), Counter[bytes]()
    for seed in range(400):
        stream = mutated(rng, envelopes(2, n=40, seed=seed))
        found.update(bodies_by_h11(stream))
        connection = Socket(one.port)
        connection._socket.sendall(stream)
        connection._socket.shutdown(socket.SHUT_WR)
        received = b""
        with suppress(ConnectionError):
            while more := connection._socket.recv(65536):
                received += more
        connection.close()
        statuses = {int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", received)}
        assert statuses <= {100, 202, 400, 401, 403, 404, 405, 409, 415, 422, 501}, stream
    one.close()
    appended = Counter(envelope for (envelope,) in one.rig.log.appended)
    assert appended <= found
    assert found.total() > appended.total() > 100  # the gateway refuses some requests that h11 takes, and takes many
