"""The URL of the count store: one Redis server, or a master that Sentinels manage.

    redis://[user:password@]host[:port][/db]                             one server; rediss:// with TLS
    unix://[user:password@]/path/of/socket[?db=N]                        one server on this machine
    redis+sentinel://[user:password@]host[:port],…/NAME[/db]             the master that the Sentinels call NAME

With ``rediss+sentinel`` every connection has TLS. User and password are the login for Redis, not for the Sentinels. Special
characters in them are percent-encoded.
"""

import re
from dataclasses import dataclass
from urllib.parse import unquote

from pydantic import SecretStr

ALLOWED = (
    "must read redis://[user:password@]host:port/db (rediss:// with TLS), unix:///path?db=N or "
    "redis+sentinel://[user:password@]host:port,…/NAME/db"
)
_LOGIN, _DB = r"(?:(?P<user>[^:/@?#]*)(?::(?P<password>[^/?#]*))?@)?", r"(?P<db>\d{1,3})?"
_SERVER = r"(?:[\w-]+(?:\.[\w-]+)*|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?"
_FORMS = (
    re.compile(rf"redis(?P<tls>s?)://{_LOGIN}(?P<hosts>{_SERVER})(?:/{_DB})?", re.ASCII),
    re.compile(
        rf"redis(?P<tls>s?)\+sentinel://{_LOGIN}(?P<hosts>{_SERVER}(?:,{_SERVER})*)/(?P<service>[\w.-]+)(?:/{_DB})?", re.ASCII
    ),
    re.compile(rf"unix://{_LOGIN}(?P<socket>/[^?#]+)(?:\?db={_DB})?"),
)


@dataclass(frozen=True)
class RedisUrl:
    """A parsed URL. The text form (`str`) of the URL is the address, without user and password.

    Attributes:
        addresses: host and port of the server or of the Sentinels; empty for a socket.
        service: the Sentinels' name for the master; "" without Sentinels.
        db: number of the database.
    """

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
        return f"sentinel {where}/{self.service}" if self.service else where


def parse_redis_url(url: str) -> RedisUrl:
    """Parses the URL of a count store.

    Raises:
        ValueError: if the URL is not valid; the message does not show the URL.

    >>> print(parse_redis_url("redis+sentinel://someone:secret@one:26379,two:26379/counts/0"))
    sentinel one:26379,two:26379/counts
    """
    found = next((found for form in _FORMS if (found := form.fullmatch(url))), None)
    if found is None:
        raise ValueError(ALLOWED)
    part = {name: value for name, value in found.groupdict().items() if value}
    service, user, password, socket = (part.get(name) for name in ("service", "user", "password", "socket"))
    default = 26379 if service else 6379
    servers = re.findall(r"([^,]+?)(?::(\d+))?(?:,|$)", part.get("hosts", ""))
    addresses = [(host.strip("[]"), int(port or default)) for host, port in servers]
    if not all(0 < port <= 65535 for _, port in addresses):
        raise ValueError(ALLOWED)
    return RedisUrl(
        tuple(addresses), socket and unquote(socket), service or "", int(part.get("db", 0)), "tls" in part,
        unquote(user) if user else None, SecretStr(unquote(password)) if password else None,
    )  # fmt: skip
