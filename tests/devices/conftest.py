"""The TypeScript device, compiled once for all tests, and the browser for tests of its pages."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright, sync_playwright

from tests.conftest import give_up
from tests.deploy.conftest import wanted
from tests.deploy.tools import TYPESCRIPT, typescript_modules
from tests.publishing.page.conftest import CHROMIUM, QUIET
from tests.publishing.page.page_rig import PATIENCE_MS

from .browser_rig import PageServer, page_server


def npm(folder: Path, script: str) -> str:
    """Runs a script of the device's `package.json` and returns its output. A failure of the script fails the test."""
    command = ["npm", "run", "--silent", script]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"npm run {script}:\n{done.stdout[-10_000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="session")
def typescript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of `devices/typescript` with compiled programs and the browser's file in `build`, beside the test vectors."""
    modules = wanted(typescript_modules)
    devices = tmp_path_factory.mktemp("checkout") / "devices"
    shutil.copytree(TYPESCRIPT.parent / "vectors", devices / "vectors")
    folder = Path(shutil.copytree(TYPESCRIPT, devices / "typescript", ignore=shutil.ignore_patterns("node_modules", "build")))
    (folder / "node_modules").symlink_to(modules)
    npm(folder, "build")
    return folder


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    if CHROMIUM is None:
        give_up("no Chromium on this machine")
    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    found = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET, timeout=PATIENCE_MS)
    yield found
    found.close()


@pytest.fixture(scope="module")
def server(typescript: Path) -> Iterator[PageServer]:
    with page_server(typescript) as server:
        yield server
