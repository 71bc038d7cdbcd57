"""Binary HTTP messages (RFC 9292): a request or a response as bytes, as Oblivious HTTP encrypts it.

A request may have known or indeterminate lengths; the encoders write known lengths. A message may end early where only empty
parts would follow, and may end with zero bytes (section 3.8). A decoder refuses more than `MAX_PIECES` fields and chunks.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

REQUEST, RESPONSE, OPEN_REQUEST = range(3)  # framing indicators; "open" is the indeterminate-length form
MAX_PIECES: Final = 1000
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
    framing = reader.number()
    if framing not in (REQUEST, OPEN_REQUEST):
        raise BinaryHttpError("the message is not a request")
    method, scheme, authority, path = (reader.prefixed() for _ in range(4))
    return BinaryRequest(method, scheme, authority, path, *reader.parts(framing == REQUEST))


def decode_response(message: bytes) -> BinaryResponse:
    reader = _MessageReader(message)
    if reader.number() != RESPONSE:
        raise BinaryHttpError("the message is not a response of known length")
    status = reader.number()
    if not 200 <= status <= 599:
        raise BinaryHttpError("the status must be that of a final response")
    return BinaryResponse(status, *reader.parts(True))


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
        self._message, self._at, self._end, self._pieces = message, 0, len(message), 0

    def number(self) -> int:
        if self._at >= self._end:
            raise BinaryHttpError(TRUNCATED)
        size = 1 << (self._message[self._at] >> 6)
        return int.from_bytes(self._take(size)) & (1 << (8 * size - 2)) - 1

    def prefixed(self) -> bytes:
        return self._take(self.number())

    def parts(self, known: bool) -> tuple[Fields, bytes]:
        headers = self.fields(known)
        known_content = known and self._at < self._end
        content = self.prefixed() if known_content else b"".join(self._until_empty())
        self.fields(known)
        if self._message[self._at :].strip(b"\0"):
            raise BinaryHttpError("padding must be zero")
        return headers, content

    def fields(self, known: bool) -> Fields:
        found = list[tuple[bytes, bytes]]()
        if known:
            if self._at < self._end:
                size = self.number()
                if size > self._end - self._at:
                    raise BinaryHttpError(TRUNCATED)
                whole, self._end = self._end, self._at + size
                while self._at < self._end:
                    found.append(self._field(self.prefixed()))
                self._end = whole
        else:
            found.extend(self._field(name) for name in self._until_empty())
        return tuple(found)

    def _field(self, name: bytes) -> tuple[bytes, bytes]:
        value = self.prefixed()
        self._count()
        if not _is_name(name):
            raise BinaryHttpError("a field's name must be a token in lower case")
        if not _is_value(value):
            raise BinaryHttpError("a field's value must have no control character, and no blank at its ends")
        return name, value

    def _until_empty(self) -> Iterator[bytes]:
        if self._at == self._end:
            return
        while part := self.prefixed():
            self._count()
            yield part

    def _count(self) -> None:
        self._pieces += 1
        if self._pieces > MAX_PIECES:
            raise BinaryHttpError(f"a message may have at most {MAX_PIECES} fields and chunks")

    def _take(self, size: int) -> bytes:
        first, self._at = self._at, self._at + size
        if self._at > self._end:
            raise BinaryHttpError(TRUNCATED)
        return self._message[first : self._at]
