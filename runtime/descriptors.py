"""The process's limit of open files (descriptors), and the shares of its servers.

A connection needs a descriptor. If clients held all descriptors, the process could open no file, no database and no connection
of its own. Each server therefore has a share, and a quarter of the descriptors remains for everything else.
"""

import resource
from typing import Final, NamedTuple

WANTED: Final = 65_536


class ConnectionShares(NamedTuple):
    """Largest numbers of simultaneous connections."""

    gateway: int
    page: int
    monitoring: int


def raise_limit() -> int:
    """Raises the process's limit to the system's hard limit, at most `WANTED`. Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED)
    if soft != resource.RLIM_INFINITY and soft < limit:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (ValueError, OSError):  # macOS allows less than its hard limit
            return soft
        return limit
    return WANTED if soft == resource.RLIM_INFINITY else soft


def shares() -> ConnectionShares:
    """Returns the servers' shares of the limit, once `raise_limit` has raised it.

    >>> raise_limit() >= 1024 and shares().gateway <= 2000
    True
    """
    limit = raise_limit()
    return ConnectionShares(
        gateway=min(2000, limit * 7 // 16), page=min(400, limit // 8), monitoring=max(4, min(64, limit // 16))
    )
