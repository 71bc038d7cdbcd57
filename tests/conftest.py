"""Set-up of all tests: skips if data or services are missing, the order of the tests, and the printed figures."""

import json
import os
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import settings

from lab.processes import THREADS

# Set before numpy is loaded, also for the processes that tests start. Idle threads of linear algebra spin, and would take the
# cores of the other processes of `pytest -n`.
for _name in THREADS:
    os.environ.setdefault(_name, "1")

settings.register_profile("house", deadline=None)  # tests check results; benchmarks measure speed
settings.load_profile("house")

Figures = dict[str, Counter[str]]

LONGEST, SERVICES, APART = "tests/faults/test_lists.py", "tests/services/", 8
_figures = pytest.StashKey[Figures]()

# The folder of the real data sets: `$LDPSTREAM_DATA`, else a folder beside the project.
DATA = Path(os.environ.get("LDPSTREAM_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")


def pytest_configure() -> None:
    """Handles SIGINT: a shell without job control starts background commands with SIGINT ignored, and children inherit this."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def give_up(reason: str) -> NoReturn:
    """Skip the test because something is missing; in continuous integration (CI), fail the test."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of the real data sets. If the folder is missing, the test is skipped, or fails if `LDPSTREAM_DATA` is set."""
    if not DATA.is_dir():
        reason = f"no folder {DATA}: set LDPSTREAM_DATA to the folder of the data files"
        pytest.fail(reason) if os.environ.get("LDPSTREAM_DATA") else pytest.skip(reason)
    return DATA


def file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest file first, and a file of tests with real services before every eighth other file.

    Each process of `pytest -n` runs whole files, in this order. Tests with services mostly wait: so some processes wait while
    others need the processor, at any time.
    """
    files = list(dict.fromkeys(map(file_of, items)))
    services = [file for file in files if file.startswith(SERVICES)]
    place = {file: n for n, file in enumerate(file for file in files if file not in services)}
    place |= {file: APART * n for n, file in enumerate(services)} | {LONGEST: -1}
    items.sort(key=lambda item: place[file_of(item)])


@pytest.fixture(scope="session")
def figures(request: pytest.FixtureRequest) -> Figures:
    """Counts of events by suite: printed at the end, and written to $LDPSTREAM_FIGURES if set."""
    return request.config.stash.setdefault(_figures, {})


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Sends a worker's figures to the process that prints them."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["figures"] = {suite: dict(counts) for suite, counts in session.config.stash.get(_figures, {}).items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collects the figures of a worker that ended."""
    for suite, counts in getattr(node, "workeroutput", {}).get("figures", {}).items():
        node.config.stash.setdefault(_figures, {}).setdefault(suite, Counter()).update(counts)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints the figures, and writes them to $LDPSTREAM_FIGURES if set."""
    told = config.stash.get(_figures, {})
    for suite, counts in told.items():
        terminalreporter.section(suite)
        terminalreporter.line(", ".join(f"{what}: {n}" for what, n in sorted(counts.items())))
    if told and (path := os.environ.get("LDPSTREAM_FIGURES")):
        Path(path).write_text(json.dumps(told, indent=1), encoding="utf-8")
