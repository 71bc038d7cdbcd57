"""The benchmarks run, at sizes too small for meaningful results, and pin the packages of other libraries."""

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from lab.bench import __main__ as bench_commands
from lab.peers import environment as peers
from ldpstream.mechanisms import NAMES
from ldpstream.output import terminal


def test_all_packages_of_the_other_libraries_are_pinned() -> None:
    wanted = [line for line in peers.LOCK.with_suffix(".in").read_text().splitlines() if not line.startswith("#")]
    pinned = re.findall(r"(?m)^(\S+)==(\S+)(?: ; .*)? \\\n +--hash=sha256:", peers.LOCK.read_text())
    assert len(pinned) == len(re.findall(r"(?m)^[^\s#]", peers.LOCK.read_text())) > 20
    assert {re.split("[=<]", name)[0] for name in wanted} <= {name for name, _ in pinned}
    assert set(peers.LIBRARIES.items()) <= set(pinned)


# ---- the commands


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    monkeypatch.setattr(terminal.console, "_width", 160)
    return bench_commands.app


def test_the_bench_command(app: typer.Typer, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    done = CliRunner().invoke(app, ["mechanisms", "--n", "1000", "--k", "10", "--no-peers", "--json", str(file)])
    assert done.exit_code == 0, done.output
    assert "Other libraries: not requested" in " ".join(done.output.split())
    assert [s["mechanism"] for s in json.loads(file.read_text())["speeds"]] == list(NAMES)
