"""Checkers of manifests and dashboards. Our lock files do not list them; they are fetched once into a cache outside the tree.

    python -m tests.deploy.tools      fetches the missing checkers (needs only npm)

- models of custom resources, as npm packages. Each kind of resource has a validator, compiled from its operator's schema, for
  types, patterns and required keys. Each kind also has a TypeScript interface; the TypeScript compiler refuses keys outside the
  interface.
- Grafana's panel components, bundled by esbuild into one script of 3.6 MB. A lock file pins all packages. An empty package
  replaces packages that our panels do not need (maps, code editors, calendars).
- the TypeScript compiler and the bundler of the TypeScript device, pinned by the device's lock file
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from deploy.local.cache import cache_dir

MODELS = {
    "@kubernetes-models/gateway-api": "2.0.0",
    "@kubernetes-models/keda": "0.4.2",
    "@kubernetes-models/prometheus-operator": "6.0.0",
    "@kubernetes-models/strimzi-kafka-operator": "1.0.1",
    "typescript": "5.9.3",
}
QUIET = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
INSTALL_S = 600  # limit of one attempt to fetch a checker; other downloads run at the same time
PANELS = Path(__file__).parent / "grafana"
TYPESCRIPT = Path(__file__).resolve().parents[2] / "devices" / "typescript"


class ToolError(RuntimeError):
    """A checker is not in the cache and could not be fetched. The message gives the reason."""


def models() -> Path:
    """Returns the folder whose `node_modules` has the models.

    Raises:
        ToolError: if Node is missing, or npm cannot fetch the models.
    """
    _check_node()

    def install(folder: Path) -> None:
        wanted = [f"{name}@{version}" for name, version in MODELS.items()]
        run(["npm", "install", *QUIET, "--no-package-lock", "--prefix", str(folder), *wanted])

    return fetched("crd-models-" + "-".join(MODELS.values()), install)


def panel_bundle() -> Path:
    """Returns the folder of `app.js` and `app.css`, which draw a dashboard with Grafana's own panel components.

    Raises:
        ToolError: if Node is missing, or npm cannot fetch the components.
    """
    _check_node()
    files = [PANELS / name for name in ("package.json", "package-lock.json", "app.jsx")]

    def install(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            for file in files:
                shutil.copy(file, scratch)
            run(["npm", "ci", *QUIET, "--prefix", scratch])
            run(["npm", "run", "--silent", "--prefix", scratch, "bundle", "--", f"--outfile={folder / 'app.js'}"])

    return fetched("grafana-panels-" + sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16], install)


def typescript_modules() -> Path:
    """Returns the `node_modules` that the lock file of the TypeScript device pins.

    Raises:
        ToolError: if Node is missing, or npm cannot fetch the packages.
    """
    _check_node()
    files = [TYPESCRIPT / name for name in ("package.json", "package-lock.json")]

    def install(folder: Path) -> None:
        folder.mkdir()
        for file in files:
            shutil.copy(file, folder)
        run(["npm", "ci", *QUIET, "--prefix", str(folder)])

    name = "typescript-device-" + sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    return fetched(name, install) / "node_modules"


def _check_node() -> None:
    if lacking := [tool for tool in ("node", "npm") if shutil.which(tool) is None]:
        raise ToolError(f"no {' and no '.join(lacking)} on PATH (deploy/local/setup_services.sh installs them)")


def fetched(name: str, install: Callable[[Path], None]) -> Path:
    """Returns a folder of the cache. A single rename creates the folder, so an existing folder is complete."""
    target = cache_dir() / name
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=target.parent) as scratch:
            install(Path(scratch) / "made")
            try:
                (Path(scratch) / "made").rename(target)
            except OSError:
                if not target.is_dir():  # otherwise another process has created the folder
                    raise
    except OSError as error:
        raise ToolError(f"cannot write the cache of {name}: {error}") from error
    return target


def run(command: Sequence[str], folder: Path | None = None, **environment: str) -> None:
    """Runs the command in a folder. If the first attempt hangs, as downloads sometimes do, runs the command again."""
    for attempt in range(2):
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=os.environ | environment,
                capture_output=True,
                text=True,
                timeout=INSTALL_S,
                check=False,
            )
            break
        except subprocess.TimeoutExpired:
            if attempt:
                raise ToolError(f"{' '.join(command[:2])} took too long, twice") from None
    if done.returncode:
        raise ToolError(f"{' '.join(command[:4])} … failed: {(done.stderr + done.stdout).strip()[-1000:]}")


def main() -> int:
    """Fetches all checkers. On an error, prints the error to standard error and exits with status 1."""
    try:
        models()
        panel_bundle()
        typescript_modules()
    except ToolError as error:
        print(f"tools: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
