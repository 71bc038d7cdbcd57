"""Whom the gateway listens to, how often, and how much at a time. Pure: the time comes in as an argument.

Nothing here outlives the process, and nothing is kept of a client longer than its limit needs.
"""

import hashlib
import hmac
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable
from ipaddress import IPv6Address, ip_address, ip_network

SCHEME = "bearer "


class Tokens:
    """The bearer tokens of which a request must show one; where there are none, anybody may.

    Args:
        tokens: distinct, any of them will do.
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        self._digests = [hashlib.sha256(token.encode()).digest() for token in tokens]

    @property
    def required(self) -> bool:
        """Whether a token is asked for."""
        return bool(self._digests)

    def find(self, authorization: str) -> int | None:
        """The number of the token in the header's value; None if it has none of ours, 0 where none is asked for.

        Every token is compared, in constant time, so how long it takes tells nothing about them.
        """
        if not self._digests:
            return 0
        shown = authorization[len(SCHEME) :] if authorization[: len(SCHEME)].lower() == SCHEME else ""
        digest = hashlib.sha256(shown.strip().encode("utf-8", "replace")).digest()
        same = [hmac.compare_digest(digest, other) for other in self._digests]
        return same.index(True) if any(same) else None


class RateLimit:
    """A token bucket for each client, as the time at which it will be full again (GCRA).

    It holds requests, or whatever else a request takes: bytes, reports. How many those are is known only when the request has
    been read, so a client is admitted while it is not in debt, and what it took is charged afterwards.

    Args:
        rate: how many a second a client may go on with.
        burst: how many a full bucket holds, at least 1.
        max_clients: clients remembered; beyond them the one seen first is forgotten, which gives it a full bucket.
    """

    def __init__(self, rate: float, burst: float, max_clients: int = 100_000) -> None:
        self._interval, self._max_clients = 1 / rate, max_clients
        self._tolerance = (max(burst, 1.0) - 1) * self._interval
        self._full_at: OrderedDict[Hashable, float] = OrderedDict()

    def wait_s(self, client: Hashable, now_s: float) -> float:
        """0 if the bucket still holds one, else how many seconds the client must wait, at least."""
        return max(0.0, self._full_at.get(client, now_s) - now_s - self._tolerance)

    def charge(self, client: Hashable, count: int, now_s: float) -> None:
        """Take so many out of the client's bucket, also more than it holds."""
        self._full_at[client] = max(self._full_at.get(client, now_s), now_s) + count * self._interval
        if len(self._full_at) > self._max_clients:
            self._full_at.popitem(last=False)

    def forget(self, now_s: float) -> None:
        """Drop the clients whose bucket is full, which changes nothing for them."""
        for client in [client for client, full_at in self._full_at.items() if full_at <= now_s]:
            del self._full_at[client]

    def __len__(self) -> int:
        return len(self._full_at)


class Connections:
    """A bound on the connections that come from one neighbourhood at a time.

    Args:
        limit: at most so many.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: Counter[str] = Counter()

    def enter(self, host: str) -> bool:
        """Whether one more may come from there; then it has to `leave`."""
        near = neighbourhood(host)
        if self._open[near] >= self._limit:
            return False
        self._open[near] += 1
        return True

    def leave(self, host: str) -> None:
        """One that came from there has ended."""
        near = neighbourhood(host)
        self._open[near] -= 1
        if not self._open[near]:
            del self._open[near]

    def __len__(self) -> int:
        return len(self._open)


def neighbourhood(host: str) -> str:
    """The addresses that share a bucket with this one: itself, or the /64 of an IPv6 address, since one client has it all.

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
    """There is no room for more bytes."""


class Room:
    """A bound on the bytes that are in the process's hands.

    Args:
        limit_bytes: at most so many at a time.

    Attributes:
        taken_bytes: of them, how many are in use.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes, self.taken_bytes = limit_bytes, 0


class Place:
    """A part of a `Room`, which grows as a body is read and is given back at once."""

    def __init__(self, room: Room) -> None:
        self._room, self._size = room, 0

    def grow(self, n_bytes: int) -> None:
        """Take so many bytes more.

        Raises:
            Busy: if they are not there.
        """
        if self._room.taken_bytes + n_bytes > self._room.limit_bytes:
            raise Busy
        self._room.taken_bytes += n_bytes
        self._size += n_bytes

    def give_back(self) -> None:
        """Give all of it back; may be called again."""
        self._room.taken_bytes -= self._size
        self._size = 0


class Acknowledged:
    """What has been acknowledged lately, for clients that ask again: request -> number of reports, or that it is not known.

    Two generations of a dictionary: what was acknowledged within the period is remembered, and after two periods forgotten.

    Args:
        period_s: a request is remembered at least so long, unless
        max_requests: more than so many others came within that time.

    Attributes:
        forgotten_early: requests that were forgotten before their time.
    """

    def __init__(self, period_s: float = 300.0, max_requests: int = 200_000) -> None:
        self._period_s, self._max = period_s, max_requests
        self._new: dict[bytes, int] = {}
        self._old: dict[bytes, int] = {}
        self._began_s = 0.0
        self.forgotten_early = 0

    def find(self, request: bytes) -> int | None:
        """How many reports the request brought, if it is remembered."""
        return self._new.get(request, self._old.get(request))

    def put(self, request: bytes, reports: int, now_s: float) -> None:
        """Remember a request."""
        if len(self._new) >= self._max:
            self.forgotten_early += len(self._old)
            self._turn(now_s)
        self._new[request] = reports

    def forget(self, now_s: float) -> None:
        """Drop what has been remembered long enough; to be called every few seconds."""
        if now_s - self._began_s >= self._period_s:
            self._turn(now_s)

    def _turn(self, now_s: float) -> None:
        self._old, self._new, self._began_s = self._new, {}, now_s
