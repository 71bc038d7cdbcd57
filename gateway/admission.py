"""Admission control of the gateway: tokens, and limits on rates, connections and memory."""

import hashlib
import hmac
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, NamedTuple

from ldpstream.gateway.http.problems import Problem

SCHEME = b"bearer "
NO_TOKEN, NOT_ASKED = -1, -2  # in place of the number of a token: without one, and for a request that needs none
PREFIX_BITS: Final = 48  # of IPv6: providers give a customer up to a whole /48 (RIPE-690)


class Client(NamedTuple):
    """The sender of a request, as the limits see it.

    Attributes:
        token: number of the token, `NO_TOKEN` or `NOT_ASKED`.
        near: the address or network (`neighbourhood`).
        collector: True with a collector's token.
        relay: True for a request through a relay whose address is listed.
    """

    token: int
    near: str
    collector: bool = False
    relay: bool = False


class Tokens:
    """The accepted bearer tokens.

    Args:
        tokens: the tokens of devices; without any, devices need none.
        collectors: the tokens of collectors.
    """

    def __init__(self, tokens: Iterable[str] = (), collectors: Iterable[str] = ()) -> None:
        devices, collecting = ([hashlib.sha256(token.encode()).digest() for token in some] for some in (tokens, collectors))
        self._digests, self._n_devices = devices + collecting, len(devices)

    @property
    def required(self) -> bool:
        """True if devices need a token."""
        return self._n_devices > 0

    def find(self, authorization: bytes) -> tuple[int, bool] | None:
        """Returns the number of the token in the header's value, and True for a collector's token.

        Returns None if the token is not accepted, and `NO_TOKEN` for any other token if devices need none.

        Compares all tokens in constant time.
        """
        if self._digests:
            shown = authorization[len(SCHEME) :] if authorization[: len(SCHEME)].lower() == SCHEME else b""
            digest = hashlib.sha256(shown.strip()).digest()
            same = [hmac.compare_digest(digest, other) for other in self._digests]
            if any(same):
                return (number := same.index(True)), number >= self._n_devices
        return None if self.required else (NO_TOKEN, False)


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
        wait_s = self._full_at.get(client, now_s) - now_s - self._tolerance
        return wait_s if wait_s > 0 else 0.0  # `max` takes twice the time

    def charge(self, client: Hashable, count: float, now_s: float) -> None:
        full_at = self._full_at.get(client, now_s)
        self._full_at[client] = (full_at if full_at > now_s else now_s) + count * self._interval
        if len(self._full_at) > self._max_clients:
            self._full_at.popitem(last=False)

    def forget(self, now_s: float) -> None:
        for client in [client for client, full_at in self._full_at.items() if full_at <= now_s]:
            del self._full_at[client]


class Networks:
    """Addresses and networks, separated by commas, such as those of `Settings.gateway_relays`."""

    def __init__(self, text: str) -> None:
        self._networks = [ip_network(network.strip()) for network in text.split(",")] if text else []

    def __contains__(self, host: str) -> bool:
        address = _address(host) if self._networks else None
        return address is not None and any(address in network for network in self._networks)


class Connections:
    """A limit on the simultaneous connections from one neighbourhood.

    Args:
        relays: addresses that have no limit.
    """

    def __init__(self, limit: int, relays: str = "") -> None:
        self._limit, self._relays = limit, Networks(relays)
        self._open: Counter[str] = Counter()

    def enter(self, host: str) -> bool:
        """Counts a new connection; if the limit is reached, counts nothing and returns False."""
        near = neighbourhood(host)
        if self._open[near] >= self._limit and host not in self._relays:
            return False
        self._open[near] += 1
        return True

    def leave(self, host: str) -> None:
        near = neighbourhood(host)
        self._open[near] -= 1
        if not self._open[near]:
            del self._open[near]


def neighbourhood(host: str) -> str:
    """Returns the network whose addresses share limits: the IPv4 address, or the IPv6 /48, which one client may own.

    >>> neighbourhood("192.0.2.7"), neighbourhood("2001:db8:1:2:3::4"), neighbourhood("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8:1::/48', '192.0.2.7')
    """
    address = _address(host) if ":" in host else None
    if isinstance(address, IPv6Address):
        return str(ip_network((int(address), PREFIX_BITS), strict=False))
    return host if address is None else str(address)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


class MemoryLimit:
    """A limit on the bytes of request bodies in memory. One client gets a part of them."""

    PARTS: Final = 8  # a client gets one part in 8; relays get all

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes, self.taken_bytes = limit_bytes, 0
        self.taken_by = dict[str, int]()  # only clients with requests in memory

    def take(self, client: Client, n_bytes: int) -> None:
        """Reserves bytes; raises Problem, and reserves nothing, if they would exceed a limit."""
        taken, of_all = self.taken_by.get(client.near, 0) + n_bytes, self.taken_bytes + n_bytes
        if of_all > self.limit_bytes or (taken > self.limit_bytes // self.PARTS and not client.relay):
            detail = "too many bytes, of this client or of all, wait for the log; no report of this attempt is in the log"
            raise Problem("busy", detail)
        self.taken_bytes, self.taken_by[client.near] = of_all, taken

    def give_back(self, client: Client, n_bytes: int) -> None:
        self.taken_bytes -= n_bytes
        if left := self.taken_by[client.near] - n_bytes:
            self.taken_by[client.near] = left
        else:
            del self.taken_by[client.near]
