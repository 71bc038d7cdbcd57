"""Versions of the packages that the services need, compared with the versions that were tested.

pip installs tested versions only. Another version comes from a later `pip install` of another package, for example.
"""

from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement


def untested_versions() -> list[str]:
    """One sentence for each installed package whose version is outside the range of the extra `service` in `pyproject.toml`."""
    try:
        needed = [Requirement(line) for line in requires("ldpstream") or ()]
    except PackageNotFoundError:  # an unpacked source tree, without the ranges
        return []
    found = []
    for package in needed:
        if package.marker is not None and not package.marker.evaluate({"extra": "service"}):
            continue
        installed = version(package.name)
        if not package.specifier.contains(installed, prereleases=True):
            found.append(
                f"{package.name} {installed} was not tested with ldpstream, which asks for {package.name}{package.specifier}"
            )
    return found
