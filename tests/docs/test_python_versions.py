"""The Python versions: `pyproject.toml` names them, `make matrix` tests them, and README and CONTRIBUTING say the same."""

import re
import tomllib
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CLASSIFIERS = "\n".join(PROJECT["project"]["classifiers"])
VERSIONS = re.findall(r"(?m)^Programming Language :: Python :: (3\.\d+)$", CLASSIFIERS)  # oldest first


def test_the_versions_are_consecutive_and_begin_with_the_required_one() -> None:
    minors = [int(version.removeprefix("3.")) for version in VERSIONS]
    assert minors == list(range(minors[0], minors[0] + len(minors)))
    required = SpecifierSet(PROJECT["project"]["requires-python"])
    assert [required.contains(f"3.{minor}.0") for minor in (minors[0] - 1, *minors)] == [False, *(True for _ in minors)]


def test_the_tools_check_for_the_oldest_version() -> None:
    oldest = VERSIONS[0]
    assert PROJECT["tool"]["mypy"]["python_version"] == oldest
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    locks = [line for line in (ROOT / "Makefile").read_text().splitlines() if "uv pip compile" in line]
    assert len(locks) == 4
    assert all(f"--universal --python-version {oldest} " in line for line in locks)


def test_make_and_the_documents_name_the_same_versions() -> None:
    assert f"\nPYTHONS := {' '.join(VERSIONS)} " in (ROOT / "Makefile").read_text()
    for page in ("README.md", "CONTRIBUTING.md"):
        assert f"Python {VERSIONS[0]} to {VERSIONS[-1]}" in (ROOT / page).read_text(), page
