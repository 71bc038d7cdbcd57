"""The Python versions: `pyproject.toml` names them, `make matrix` tests them, and README and CONTRIBUTING say the same."""

import tomllib

from packaging.specifiers import SpecifierSet

from tests.matrix import ROOT, versions

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_versions_are_consecutive_and_begin_with_the_required_one() -> None:
    minors = [int(version.removeprefix("3.")) for version in versions()]
    assert minors == list(range(minors[0], minors[0] + len(minors)))
    required = SpecifierSet(PROJECT["project"]["requires-python"])
    assert [required.contains(f"3.{minor}.0") for minor in (minors[0] - 1, *minors)] == [False, *(True for _ in minors)]


def test_the_tools_check_for_the_oldest_version() -> None:
    oldest = versions()[0]
    assert PROJECT["tool"]["mypy"]["python_version"] == oldest
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    locks = [line for line in (ROOT / "Makefile").read_text().splitlines() if "uv pip compile" in line]
    assert len(locks) == 4
    assert all(f"--universal --python-version {oldest} " in line for line in locks)


def test_the_documents_name_the_same_versions() -> None:
    known = versions()
    for page in ("README.md", "CONTRIBUTING.md"):
        assert f"Python {known[0]} to {known[-1]}" in (ROOT / page).read_text(), page
