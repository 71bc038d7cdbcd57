"""The folder for downloads."""

import os
from pathlib import Path

from ldpstream.surveys.errors import UserError


def cache_dir() -> Path:
    """Folder for downloads: `$LDPSTREAM_CACHE`, else `$XDG_CACHE_HOME/ldpstream`, else `~/.cache/ldpstream`.

    An empty variable counts as not set.

    Raises:
        UserError: if `$LDPSTREAM_CACHE` begins with ``~`` and its home directory is unknown.
    """
    if own := os.environ.get("LDPSTREAM_CACHE"):
        try:
            return Path(own).expanduser()
        except RuntimeError:
            raise UserError(f"LDPSTREAM_CACHE: there is no such home directory, got {own!r}") from None
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "ldpstream"
