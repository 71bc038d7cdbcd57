"""Fixtures: a command line, and the page's browser."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ldpstream.commands.cli import run
from tests.publishing.page.conftest import browser, open_page

__all__ = ["browser", "open_page", "run_command"]

Ran = tuple[int, str, list[str]]
RunCommand = Callable[..., Ran]


@pytest.fixture
def run_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """Runs a command line in this process. Returns the exit status, the output, and the lines of standard error."""
    monkeypatch.setattr("ldpstream.output.terminal.console.width", 160)

    def ran(*arguments: str | Path) -> Ran:
        monkeypatch.setattr(sys, "argv", ["ldpstream", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            run()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err.splitlines()

    return ran
