"""The version and the commit that run."""

import subprocess
import sys
from pathlib import Path

import pytest

from ldpstream.runtime import versions
from tests.ldpstream.rooms import ROOT


def test_the_commit_is_that_of_the_build_or_of_the_checkout_or_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (runtime := tmp_path / "ldpstream" / "runtime").mkdir(parents=True)
    monkeypatch.setattr(versions, "__file__", str(runtime / "versions.py"))
    find = versions.running_version.__wrapped__
    assert find().endswith(" (unknown)")
    git = ["git", "-C", str(tmp_path / "ldpstream"), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "a"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    assert find().endswith(f" ({head})")
    (runtime / "COMMIT").write_text("0123456789ab\n")
    assert find().endswith(" (0123456789ab)")


def test_a_build_notes_the_commit(tmp_path: Path) -> None:
    """As in the image: the sources have no checkout, and the variable COMMIT has the commit."""
    program = "import sys; sys.argv = ['setup.py', '-q', 'build', '--build-base', sys.argv[1]]; exec(open('setup.py').read())"
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "src"):
        (tmp_path / name).symlink_to(ROOT / name)
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "build")], cwd=tmp_path, check=True, capture_output=True,
        env={"PATH": str(Path(sys.executable).parent), "COMMIT": "0123456789ab"},
    )  # fmt: skip
    (noted,) = (tmp_path / "build").glob("lib*/ldpstream/runtime/COMMIT")
    assert noted.read_text() == "0123456789ab\n"
