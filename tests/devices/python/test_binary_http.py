"""Binary HTTP against the examples of RFC 9292, section 5, and against damaged messages."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ldpstream.device.relay.binary_http import (
    MAX_FIELD_BYTES,
    BinaryHttpError,
    BinaryRequest,
    BinaryResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    varint,
)

KNOWN = bytes.fromhex(
    "0003474554056874747073000a2f68656c6c6f2e747874406c0a757365722d6167656e74346375726c2f372e31362e33206c69626375726c2f372e31362e"
    "33204f70656e53534c2f302e392e376c207a6c69622f312e322e3304686f73740f7777772e6578616d706c652e636f6d0f6163636570742d6c616e677561"
    "676506656e2c206d690000"
)
TRAILER = bytes.fromhex("0140c8001d5468697320636f6e74656e7420636f6e7461696e732043524c462e0d0a0d07747261696c65720474657874")
HELLO = BinaryRequest(
    b"GET", b"https", b"", b"/hello.txt",
    (
        (b"user-agent", b"curl/7.16.3 libcurl/7.16.3 OpenSSL/0.9.7l zlib/1.2.3"), (b"host", b"www.example.com"),
        (b"accept-language", b"en, mi"),
    ),
)  # fmt: skip


def test_the_examples_of_the_rfc() -> None:
    assert decode_request(KNOWN) == HELLO
    assert encode_request(HELLO) == KNOWN
    assert decode_response(TRAILER) == BinaryResponse(200, (), b"This content contains CRLF.\r\n")
    assert decode_response(bytes.fromhex("0140c8")) == BinaryResponse(200)
    assert decode_request(b"\x40\x00" + KNOWN[1:]) == HELLO  # a number may be longer than necessary


def test_only_empty_parts_may_be_cut_off() -> None:
    for cut in range(1, len(KNOWN) + 1):
        kept = KNOWN[:-cut]
        if cut <= 2:
            assert decode_request(kept) == HELLO
        elif not kept.endswith(b"/hello.txt"):  # there, all parts after the path are cut off
            with pytest.raises(BinaryHttpError, match="too early"):
                decode_request(kept)


def raw(fields: bytes = b"", rest: bytes = b"\0\0", path: bytes = b"/x") -> bytes:
    return b"\0" + b"\x03GET\x05https\0" + varint(len(path)) + path + varint(len(fields)) + fields + rest


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"", "too early"),
        (b"\x01" + KNOWN[1:], "not a request"),
        (b"\x02" + KNOWN[1:], "not a request"),  # of indeterminate length
        (raw(b"\x07:method\x01x"), "token in lower case"),
        (raw(b"\x06Accept\x01x"), "token in lower case"),
        (raw(b"\0\x01x"), "token in lower case"),
        (raw(b"\x01x\x04a\r\nb"), "control character"),
        (raw(b"\x01x\x03a\0b"), "control character"),
        (raw(b"\x01x\x02 a"), "blank"),
        (raw(b"\x01x\x02a\t"), "blank"),
        (raw(b"\x01x\x09a"), "too early"),  # the value reaches beyond its section
        (raw(rest=b"\0\0\1"), "padding"),
        (raw(rest=b"\xff" * 8), "too early"),
        (raw(b"\x01a\x01b" * (MAX_FIELD_BYTES // 4 + 1)), "at most"),
    ],
)
def test_a_message_that_breaks_the_format_is_refused(message: bytes, said: str) -> None:
    with pytest.raises(BinaryHttpError, match=said):
        decode_request(message)


@pytest.mark.parametrize("message", ["0140c7", "0120", "0142580000", "00", "0180000258"])
def test_a_response_needs_a_final_status(message: str) -> None:
    with pytest.raises(BinaryHttpError):
        decode_response(bytes.fromhex(message))


def test_a_trailer_is_dropped() -> None:
    message = raw(b"\x01a\x01b", b"\x03abc" + b"\x04\x01t\x01u" + bytes(5))
    assert decode_request(message) == BinaryRequest(b"GET", b"https", b"", b"/x", ((b"a", b"b"),), b"abc")


NAMES = st.from_regex(rb"[a-z][a-z0-9-]{0,80}", fullmatch=True)
VALUES = st.from_regex(rb"(?:[!-~](?:[ -~]{0,80}[!-~])?)?", fullmatch=True)


@given(st.lists(st.tuples(NAMES, VALUES), max_size=9).map(tuple), st.binary(max_size=20_000), st.integers(0, 40))
@settings(max_examples=200, deadline=None)
def test_what_is_written_is_read(headers: tuple[tuple[bytes, bytes], ...], content: bytes, padding: int) -> None:
    request = BinaryRequest(b"POST", b"https", b"a.example", b"/v1/reports", headers, content)
    assert decode_request(encode_request(request) + bytes(padding)) == request
    response = BinaryResponse(202, headers, content)
    assert decode_response(encode_response(response) + bytes(padding)) == response
