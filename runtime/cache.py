"""The folder for downloads."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """Folder for downloads: `$LDPSTREAM_CACHE`, else `$XDG_CACHE_HOME/ldpstream`, else `~/.cache/ldpstream`.

    An empty variable counts as not set.
    """
    if own := os.environ.get("LDPSTREAM_CACHE"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "ldpstream"
