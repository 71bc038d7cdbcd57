"""Binary HTTP messages (RFC 9292): a request or a response as bytes, as Oblivious HTTP encrypts it.

All messages are of known length. A message may end early where only empty parts would follow, and may end with zero bytes
(section 3.8). A decoder refuses fields of more than `MAX_FIELD_BYTES` in all.
"""

import re
from typing import Final, NamedTuple

REQUEST, RESPONSE = range(2)  # framing indicators
MAX_FIELD_BYTES: Final = 16_384
TRUNCATED: Final = "the message ends too early"

_is_name = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+").fullmatch
_is_value = re.compile(rb"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?").fullmatch

Fields = tuple[tuple[bytes, bytes], ...]  # name in lower case, value without surrounding blanks


class BinaryHttpError(ValueError):
    """A message cannot be read. The error's text repeats no part of the message."""


class BinaryRequest(NamedTuple):
    """A request; `authority` may be empty if the headers have a host."""

    method: bytes
    scheme: bytes
    authority: bytes
    path: bytes
    headers: Fields = ()
    content: bytes = b""


class BinaryResponse(NamedTuple):
    """A final response."""

    status: int
    headers: Fields = ()
    content: bytes = b""


def encode_request(request: BinaryRequest) -> bytes:
    """Returns a request in the known-length form.

    >>> decode_request(encode_request(BinaryRequest(b"GET", b"https", b"a.example", b"/"))).authority
    b'a.example'
    """
    control = b"".join(map(_prefixed, request[:4]))
    return bytes([REQUEST]) + control + _parts(request.headers, request.content)


def encode_response(response: BinaryResponse) -> bytes:
    return bytes([RESPONSE]) + varint(response.status) + _parts(response.headers, response.content)


def decode_request(message: bytes) -> BinaryRequest:
    reader = _MessageReader(message)
    if reader.number() != REQUEST:
        raise BinaryHttpError("the message is not a request of known length")
    method, scheme, authority, path = (reader.prefixed() for _ in range(4))
    return BinaryRequest(method, scheme, authority, path, *reader.parts())


def decode_response(message: bytes) -> BinaryResponse:
    reader = _MessageReader(message)
    if reader.number() != RESPONSE:
        raise BinaryHttpError("the message is not a response of known length")
    status = reader.number()
    if not 200 <= status <= 599:
        raise BinaryHttpError("the status must be that of a final response")
    return BinaryResponse(status, *reader.parts())


def varint(number: int) -> bytes:
    """Returns a variable-length integer (RFC 9000, section 16).

    >>> [varint(number).hex() for number in (37, 15293, 494878333)]
    ['25', '7bbd', '9d7f3e7d']
    """
    for code, size in enumerate((1, 2, 4, 8)):
        if number < 1 << (8 * size - 2):
            return (code << (8 * size - 2) | number).to_bytes(size)
    raise ValueError(f"number must be below 2**62, got {number}")


def _prefixed(part: bytes) -> bytes:
    return varint(len(part)) + part


def _parts(headers: Fields, content: bytes) -> bytes:
    lines = b"".join([_prefixed(name) + _prefixed(value) for name, value in headers])
    return _prefixed(lines) + _prefixed(content) + varint(0)


class _MessageReader:
    def __init__(self, message: bytes) -> None:
        self._message, self._at = message, 0

    def number(self) -> int:
        if self._at >= len(self._message):
            raise BinaryHttpError(TRUNCATED)
        size = 1 << (self._message[self._at] >> 6)
        return int.from_bytes(self._take(size)) & (1 << (8 * size - 2)) - 1

    def prefixed(self) -> bytes:
        return self._take(self.number())

    def parts(self) -> tuple[Fields, bytes]:
        headers, content, _ = self._fields(), self._part(), self._fields()
        if self._message[self._at :].strip(b"\0"):
            raise BinaryHttpError("padding must be zero")
        return headers, content

    def _part(self) -> bytes:
        return self.prefixed() if self._at < len(self._message) else b""

    def _fields(self) -> Fields:
        section, found = _MessageReader(self._part()), list[tuple[bytes, bytes]]()
        if len(section._message) > MAX_FIELD_BYTES:
            raise BinaryHttpError(f"the fields may have at most {MAX_FIELD_BYTES} bytes")
        while section._at < len(section._message):
            name, value = section.prefixed(), section.prefixed()
            if not _is_name(name):
                raise BinaryHttpError("a field's name must be a token in lower case")
            if not _is_value(value):
                raise BinaryHttpError("a field's value must have no control character, and no blank at its ends")
            found.append((name, value))
        return tuple(found)

    def _take(self, size: int) -> bytes:
        first, self._at = self._at, self._at + size
        if self._at > len(self._message):
            raise BinaryHttpError(TRUNCATED)
        return self._message[first : self._at]
