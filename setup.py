"""Notes the commit in a build: of the variable COMMIT, else of the checkout. `pyproject.toml` has everything else."""

import os
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithCommit(build_py):
    def run(self) -> None:
        super().run()
        commit = os.environ.get("COMMIT") or _of_checkout()
        if commit and not self.editable_mode:
            (Path(self.build_lib) / "ldpstream" / "runtime" / "COMMIT").write_text(f"{commit}\n")


def _of_checkout() -> str:
    if not Path(".git").exists():
        return ""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


setup(cmdclass={"build_py": BuildWithCommit})
