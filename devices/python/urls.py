"""URLs of gateways and relays, as a user writes them."""

import re
from urllib.parse import SplitResult, urlsplit


def split_url(url: str) -> SplitResult | None:
    """Returns the parts of an http or https URL; None if no client could use it. The caller's message must hide passwords."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for a wrong port
        (parts.hostname or "").encode("idna")  # as the socket does
    except ValueError:  # its text can show a password
        return None
    sendable = parts.path.isascii() and not re.search(r"[\x00-\x20\x7f]", parts.netloc + parts.path)
    return parts if parts.scheme in ("http", "https") and parts.hostname and sendable else None
