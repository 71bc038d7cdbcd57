"""Runs the tests that need no service on every Python version that `pyproject.toml` names: `make matrix`.

Each version gets its own virtual environment with the locked dependencies, and the other libraries' environment (`lab.peers`).
The command prints one line a version. It fails if a test fails, if the dependencies or the other libraries cannot be installed,
or if a version is not on this machine. An interpreter is found as `python3.N` on the path, or among the versions of pyenv.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CLASSIFIER = "Programming Language :: Python :: "
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
STEPS = (
    (*PIP, "--require-hashes", "-r", "requirements-dev.lock"),
    (*PIP, "--no-deps", "-e", "."),
    ("-m", "lab.peers.environment"),
    ("-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "--ignore=tests/services"),
)


def versions() -> list[str]:
    """The Python versions that the project supports, oldest first, for example 3.11."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [found[1] for one in project["classifiers"] if (found := re.fullmatch(rf"{CLASSIFIER}(3\.\d+)", one))]


def interpreter(version: str) -> Path | None:
    """An interpreter of this version that works, or None. A shim of pyenv exists for versions that are not selected, too."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    on_path = shutil.which(f"python{version}")
    candidates = [*([Path(on_path)] if on_path else []), *sorted(pyenv.glob(f"{version}.*/bin/python{version}"))]
    for candidate in candidates:
        if subprocess.run([candidate, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


def passes(version: str, folder: Path) -> bool:
    """Runs the tests on this version, and prints one line. Writes the output of the tests to a file in the folder."""
    if (found := interpreter(version)) is None:
        print(f"Python {version}: not found", flush=True)
        return False
    python, output = folder / version / "bin" / "python", folder / f"{version}.txt"
    with output.open("w") as file:
        for command in ((found, "-m", "venv", folder / version), *((python, *step) for step in STEPS)):
            done = subprocess.run(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, check=False)
            if done.returncode:
                break
    last = (output.read_text().splitlines() or ["no output"])[-1]
    print(f"Python {version}: {last}" + (f" (see {output})" if done.returncode else ""), flush=True)
    return done.returncode == 0


def main() -> int:
    folder = Path(sys.prefix) / "matrix"
    folder.mkdir(exist_ok=True)
    failed = [version for version in versions() if not passes(version, folder)]  # all of them run
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
