"""The folder for downloads."""

import os
from pathlib import Path

from ldpstream.surveys.errors import UserError


def cache_dir() -> Path:
    """Folder for downloads: `$LDPSTREAM_CACHE`, else `$XDG_CACHE_HOME/ldpstream`, else `~/.cache/ldpstream`.

    An empty variable counts as not set.

    Raises:
        UserError: if the folder depends on an unknown home directory.
    """
    own, shared = os.environ.get("LDPSTREAM_CACHE"), os.environ.get("XDG_CACHE_HOME")
    try:
        if own:
            return Path(own).expanduser()
        return (Path(shared) if shared else Path.home() / ".cache") / "ldpstream"
    except RuntimeError:
        raise UserError(
            f"LDPSTREAM_CACHE: the home directory is unknown; give another folder in place of {own or '~'}"
        ) from None
