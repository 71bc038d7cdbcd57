"""The checks of a request's head that the parser lacks (RFC 9112), and the head without an upgrade.

The parser, llhttp, accepts heads that RFC 9112 forbids. A proxy may read such a head differently (request smuggling).
"""

import re
from collections.abc import Sequence
from typing import Final

from ldpstream.gateway.http.problems import Problem

VERSIONS: Final = ("1.1", "1.0")

Pairs = Sequence[tuple[bytes, bytes]]  # headers: name in lower case, value without surrounding blanks

_is_host = re.compile(rb"(\[[0-9A-Za-z:.%_~-]+\]|[0-9A-Za-z._~%!$&'()*+,;=-]*)(:[0-9]*)?").fullmatch


def head_fault(method: bytes, version: str, headers: Pairs) -> Problem | None:
    """Returns the problem of a head after which the connection must be closed; None for a sound head."""
    if version not in VERSIONS:
        return Problem("malformed request", "the protocol must be HTTP/1.1 or HTTP/1.0")
    if method == b"CONNECT":
        return Problem("method not allowed", "this gateway is not a proxy")
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) != 1 and (hosts or version == "1.1"):
        return Problem("malformed request", f"a request must have one header host, got {len(hosts)}")
    if hosts and not _is_host(hosts[0]):
        return Problem("malformed request", "the header host must be a host name or an address, with an optional port")
    codings = [value for name, value in headers if name == b"transfer-encoding"]
    if codings and version == "1.0":
        return Problem("malformed request", "HTTP/1.0 has no transfer-encoding")
    if codings and [coding.lower() for coding in codings] != [b"chunked"]:
        return Problem("unsupported transfer coding", "the only transfer coding is chunked")
    return None


def without_upgrade(method: bytes, url: bytes, version: str, headers: Pairs) -> bytes:
    lines = [b"%b %b HTTP/%b" % (method, url, version.encode())]
    lines += [b"%b: %b" % pair for pair in headers if pair[0] != b"upgrade"]
    return b"\r\n".join(lines) + b"\r\n\r\n"
