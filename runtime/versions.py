"""The version that runs, and the versions of the packages that the services need, compared with the tested versions."""

import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

EXTRAS = ("gateway", "service")


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


def untested_versions() -> list[str]:
    """One sentence for each installed package whose version is outside its range in `pyproject.toml`.

    Skips a package that is not installed.
    """
    try:
        needed = [Requirement(line) for line in requires("ldpstream") or ()]
    except PackageNotFoundError:  # an unpacked source tree, without the ranges
        return []
    found = []
    for package in needed:
        if package.marker is not None and not any(package.marker.evaluate({"extra": extra}) for extra in EXTRAS):
            continue
        try:
            installed = version(package.name)
        except PackageNotFoundError:
            continue
        if not package.specifier.contains(installed, prereleases=True):
            found.append(
                f"{package.name} {installed} was not tested with ldpstream, which asks for {package.name}{package.specifier}"
            )
    return found
