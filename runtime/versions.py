"""The version that runs."""

import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@cache
def running_version() -> str:
    """Returns our version and commit: of the build if it noted its commit, else of the checkout, else "unknown".

    A commit with changes that are not committed ends in "-dirty".
    """
    here = Path(__file__).resolve()
    try:
        number = version("ldpstream")
    except PackageNotFoundError:  # an unpacked source tree
        number = "unknown"
    try:
        commit = here.with_name("COMMIT").read_text(encoding="utf-8").strip()
    except OSError:
        commit = _commit_of(here.parents[1])
    return f"{number} ({commit or 'unknown'})"


def _commit_of(folder: Path) -> str:
    if not (folder / ".git").exists():  # git would look for a checkout around the folder
        return ""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""
