"""The URL of the count store: ``redis://[user:password@]host[:port][/db]``, or ``rediss://`` for TLS.

Special characters in user and password are percent-encoded.
"""

import re
from dataclasses import dataclass
from urllib.parse import unquote

from pydantic import SecretStr

ALLOWED = "must read redis://[user:password@]host[:port][/db], or rediss:// with TLS"
_URL = re.compile(
    r"redis(?P<tls>s?)://(?:(?P<user>[^:/@?#]*)(?::(?P<password>[^/?#]*))?@)?"
    r"(?P<host>[\w-]+(?:\.[\w-]+)*|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?(?:/(?P<db>\d{1,3})?)?",
    re.ASCII,
)


@dataclass(frozen=True)
class RedisUrl:
    """A parsed URL. The text form (`str`) is the address, without user, password and database."""

    host: str
    port: int = 6379
    db: int = 0
    tls: bool = False
    user: str | None = None
    password: SecretStr | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_redis_url(url: str) -> RedisUrl:
    """Parses the URL of a count store.

    Raises:
        ValueError: if the URL is not valid; the message does not show the URL.

    >>> print(parse_redis_url("rediss://someone:secret@one:7/3"))
    one:7
    """
    found = _URL.fullmatch(url)
    port = int(found["port"] or 6379) if found else 0
    if found is None or not 0 < port <= 65535:
        raise ValueError(ALLOWED)
    user, password = (found[name] and unquote(found[name]) for name in ("user", "password"))
    return RedisUrl(
        found["host"].strip("[]"), port, int(found["db"] or 0), bool(found["tls"]), user or None,
        SecretStr(password) if password else None,
    )  # fmt: skip
