"""The URL of the count store: one Redis server, a master that Sentinels manage, or a Redis Cluster.

    redis://[user:password@]host[:port][/db]                             one server; rediss:// with TLS
    unix://[user:password@]/path/of/socket[?db=N]                        one server on this machine
    redis+sentinel://[user:password@]host[:port],…/NAME[/db]             the master that the Sentinels call NAME
    redis+cluster://[user:password@]host[:port],…                        a cluster; the addresses of some nodes are enough

With ``rediss+sentinel`` and ``rediss+cluster`` every connection has TLS. User and password are the login for Redis, not for the
Sentinels. Special characters in them are percent-encoded.
"""

import re
from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import unquote

from pydantic import SecretStr

Kind = Literal["single", "sentinel", "cluster"]
ALLOWED = (
    "must read redis://[user:password@]host:port/db (rediss:// with TLS), unix:///path?db=N, "
    "redis+sentinel://[user:password@]host:port,…/NAME/db or redis+cluster://[user:password@]host:port,…"
)
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:.]+\]"
_SERVER = re.compile(rf"({_HOST})(?::(\d{{1,5}}))?")
_URL = re.compile(
    r"redis(?P<tls>s?)(?:\+(?P<kind>sentinel|cluster))?://"
    r"(?:(?P<user>[^:/@?#]*)(?::(?P<password>[^/?#]*))?@)?(?P<hosts>[^/@?#]+)(?P<path>/[^?#]*)?"
)
_UNIX = re.compile(r"unix://(?:(?P<user>[^:/@?#]*)(?::(?P<password>[^/?#]*))?@)?(?P<path>/[^?#]+)(?:\?db=(?P<db>\d{1,3}))?")


@dataclass(frozen=True)
class RedisUrl:
    """A parsed URL. The text form (`str`) of the URL is the address, without user and password.

    Attributes:
        addresses: host and port of the server, of the Sentinels, or of some cluster nodes; empty for a socket.
        service: the Sentinels' name for the master; "" without Sentinels.
        db: number of the database; 0 on a cluster.
    """

    kind: Kind
    addresses: tuple[tuple[str, int], ...] = ()
    socket: str | None = None
    service: str = ""
    db: int = 0
    tls: bool = False
    user: str | None = None
    password: SecretStr | None = None

    def __str__(self) -> str:
        if self.socket is not None:
            return self.socket
        where = ",".join(f"{host}:{port}" for host, port in self.addresses)
        return where if self.kind == "single" else f"{self.kind} {where}" + (f"/{self.service}" if self.service else "")


def parse_redis_url(url: str) -> RedisUrl:
    """Parses the URL of a count store.

    Raises:
        ValueError: if the URL is not valid; the message does not show the URL.

    >>> print(parse_redis_url("redis+sentinel://someone:secret@one:26379,two:26379/counts/0"))
    sentinel one:26379,two:26379/counts
    """
    if found := _UNIX.fullmatch(url):
        user, password = _credentials(found)
        return RedisUrl("single", socket=unquote(found["path"]), db=int(found["db"] or 0), user=user, password=password)
    found = _URL.fullmatch(url)
    if found is None:
        raise ValueError(ALLOWED)
    user, password = _credentials(found)
    kind = cast(Kind, found["kind"] or "single")
    addresses = tuple(_address(server, 26379 if kind == "sentinel" else 6379) for server in found["hosts"].split(","))
    service, db = _path(kind, (found["path"] or "").removeprefix("/"))
    if kind == "single" and len(addresses) > 1:
        raise ValueError(ALLOWED)
    return RedisUrl(kind, addresses, None, service, db, bool(found["tls"]), user, password)


def _credentials(found: re.Match[str]) -> tuple[str | None, SecretStr | None]:
    user, password = found["user"], found["password"]
    return unquote(user) if user else None, SecretStr(unquote(password)) if password else None


def _address(server: str, port: int) -> tuple[str, int]:
    found = _SERVER.fullmatch(server)
    if found is None or not 0 < int(found[2] or port) <= 65535:
        raise ValueError(ALLOWED)
    return found[1].strip("[]"), int(found[2] or port)


def _path(kind: str, path: str) -> tuple[str, int]:
    service, _, db = path.rpartition("/") if kind == "sentinel" and "/" in path else ("", "", path)
    if kind == "sentinel" and not service:
        service, db = path, ""
    if not re.fullmatch(r"\d{0,3}", db) or (kind == "sentinel" and not re.fullmatch(r"[A-Za-z0-9._-]+", service)):
        raise ValueError(ALLOWED)
    if kind == "cluster" and db not in ("", "0"):
        raise ValueError("a cluster has only database 0")
    return service, int(db or 0)
