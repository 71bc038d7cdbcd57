"""Versions of the packages that the services need, compared with the versions that were tested."""

from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

EXTRAS = ("gateway", "service")


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
