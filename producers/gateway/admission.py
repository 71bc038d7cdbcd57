"""Admission control of the gateway: tokens, and limits on rates, connections and memory."""

import hashlib
import hmac
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable
from ipaddress import IPv6Address, ip_address, ip_network

SCHEME = b"bearer "


class Tokens:
    """The accepted bearer tokens.

    Args:
        tokens: the accepted tokens; without any, requests need none.
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        self._digests = [hashlib.sha256(token.encode()).digest() for token in tokens]

    @property
    def required(self) -> bool:
        return bool(self._digests)

    def find(self, authorization: bytes) -> int | None:
        """Returns the number of the token in the header's value; None if the token is not accepted, 0 if requests need no
        token.

        Compares all tokens in constant time.
        """
        if not self._digests:
            return 0
        shown = authorization[len(SCHEME) :] if authorization[: len(SCHEME)].lower() == SCHEME else b""
        digest = hashlib.sha256(shown.strip()).digest()
        same = [hmac.compare_digest(digest, other) for other in self._digests]
        return same.index(True) if any(same) else None


class RateLimit:
    """A token bucket for each client, stored as the time when the bucket is full again (generic cell rate algorithm, GCRA).

    Args:
        rate: amount that flows into a bucket each second.
        burst: size of a full bucket; the size is 1 if `burst` is less.
        max_clients: largest number of remembered clients. Above this number, a new client replaces the client remembered
            longest.
    """

    def __init__(self, rate: float, burst: float, max_clients: int = 100_000) -> None:
        self._interval, self._max_clients = 1 / rate, max_clients
        self._tolerance = (max(burst, 1.0) - 1) * self._interval
        self._full_at: OrderedDict[Hashable, float] = OrderedDict()

    def wait_s(self, client: Hashable, now_s: float) -> float:
        """Returns 0 if the client's bucket holds at least 1; otherwise the seconds until the bucket holds 1."""
        return max(0.0, self._full_at.get(client, now_s) - now_s - self._tolerance)

    def charge(self, client: Hashable, count: int, now_s: float) -> None:
        self._full_at[client] = max(self._full_at.get(client, now_s), now_s) + count * self._interval
        if len(self._full_at) > self._max_clients:
            self._full_at.popitem(last=False)

    def forget(self, now_s: float) -> None:
        for client in [client for client, full_at in self._full_at.items() if full_at <= now_s]:
            del self._full_at[client]


class Connections:
    """A limit on the simultaneous connections from one neighbourhood."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: Counter[str] = Counter()

    def enter(self, host: str) -> bool:
        """Counts a new connection; if the limit is reached, counts nothing and returns False."""
        near = neighbourhood(host)
        if self._open[near] >= self._limit:
            return False
        self._open[near] += 1
        return True

    def leave(self, host: str) -> None:
        near = neighbourhood(host)
        self._open[near] -= 1
        if not self._open[near]:
            del self._open[near]


def neighbourhood(host: str) -> str:
    """Returns the network whose addresses share limits: the IPv4 address, or the IPv6 /64, which one client usually owns.

    >>> neighbourhood("192.0.2.7"), neighbourhood("2001:db8:1:2:3::4"), neighbourhood("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8:1:2::/64', '192.0.2.7')
    """
    if ":" not in host:
        return host
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((int(address) >> 64 << 64, 64)))


class Busy(Exception):
    """Raised when a body would exceed the memory limit."""


class MemoryLimit:
    """A limit on the bytes of request bodies in memory."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes, self.taken_bytes = limit_bytes, 0


class Reservation:
    """The part of a `MemoryLimit` that one body uses."""

    def __init__(self, memory: MemoryLimit) -> None:
        self._memory, self._size = memory, 0

    def grow(self, n_bytes: int) -> None:
        """Reserves further bytes; raises Busy, and reserves nothing, if they would exceed the limit."""
        if self._memory.taken_bytes + n_bytes > self._memory.limit_bytes:
            raise Busy
        self._memory.taken_bytes += n_bytes
        self._size += n_bytes

    def release(self) -> None:
        """Releases all bytes."""
        self._memory.taken_bytes -= self._size
        self._size = 0
