"""What all tests share: the options that point the service tests at services that run already, and the figures they tell."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("house", deadline=None)  # a test says what is right; benchmarks say how fast
settings.load_profile("house")

Figures = dict[str, Counter[str]]

_figures = pytest.StashKey[Figures]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--kafka` and `--redis`; they live here because pytest reads options from the top `conftest.py` only."""
    group = parser.getgroup("services", "services that run already (else the tests start their own)")
    group.addoption("--kafka", metavar="HOST:PORT", help="a Kafka broker; the tests add topics of their own to it")
    group.addoption("--redis", metavar="URL", help="a Redis database, which must be empty; the tests empty it again")


@pytest.fixture(scope="session")
def figures(request: pytest.FixtureRequest) -> Figures:
    """By the name of a suite, how often what happened in it: printed at the end, and written to $LDPSTREAM_FIGURES if set."""
    return request.config.stash.setdefault(_figures, {})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the figures."""
    told = config.stash.get(_figures, {})
    for suite, counts in told.items():
        terminalreporter.section(suite)
        terminalreporter.line(", ".join(f"{what}: {n}" for what, n in sorted(counts.items())))
    if told and (path := os.environ.get("LDPSTREAM_FIGURES")):
        Path(path).write_text(json.dumps(told, indent=1), encoding="utf-8")
