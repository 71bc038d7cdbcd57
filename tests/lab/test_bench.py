"""The benchmarks run, at sizes too small for meaningful results, and show other libraries if the libraries are installed."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from lab.bench import __main__ as bench_commands
from lab.bench import mechanisms as bench_mechanisms
from lab.bench import week
from lab.bench.mechanisms import Bench, Measured, bench
from lab.bench.mechanisms_tables import bench_notes, bench_tables
from lab.peers import environment as peers
from ldpstream import terminal
from ldpstream.mechanisms import NAMES, ONE_TIME
from ldpstream.stores.data_folder import FILE, looking


def shown(result: Bench) -> str:
    """The command's output."""
    console = Console(width=200)
    with console.capture() as captured:
        for part in (*bench_tables(result), *bench_notes(result)):
            console.print(part)
    return captured.get()


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Invented lines, in place of the lines that the other libraries' process prints."""
    lines: list[dict[str, Any]] = [
        {"library": "multi-freq-ldpy", "mechanism": "OUE", "what": "report", "per_s": 50.0, "n": 7},
        {"library": "multi-freq-ldpy", "mechanism": "OUE", "what": "tabulate", "per_s": 60.0, "n": 8},
        {"library": "pure-ldp", "mechanism": "OUE", "what": "report", "per_s": 40.0, "n": 9},
        {"library": "pure-ldp", "mechanism": "OUE", "what": "memory", "bytes": 12_345.0},
        {"library": "pure-ldp", "mechanism": "FLH", "what": "tabulate", "per_s": 30.0, "n": 6},
        {"library": "pure-ldp", "mechanism": "SUE", "error": "TypeError: no"},
    ]

    def answer(task: dict[str, Any], seen: Callable[[str], None]) -> Iterator[dict[str, Any]]:
        yield from lines
        raise peers.PeersError("the other libraries' process ended with status 9")

    monkeypatch.setattr(bench_mechanisms, "time_peers", answer)
    return lines


def test_every_mechanism_is_timed_beside_other_libraries(theirs: list[dict[str, Any]]) -> None:
    said: list[str] = []
    result = bench(1000, 20, True, said.append)
    assert [s.mechanism for s in result.speeds] == list(NAMES)
    for s in result.speeds:
        assert min(s.report, s.fresh, s.tabulate, s.peak_mib) > 0
        assert (s.memo is None) == (s.mechanism in ONE_TIME)
        assert s.fresh <= s.report
    assert result.stream.n == 100_000
    assert 10 < result.stream.peak_mib < 1000
    oue = next(s for s in result.speeds if s.mechanism == "OUE")
    assert oue.peers == {
        "multi-freq-ldpy": {"report": Measured(50.0, 7), "tabulate": Measured(60.0, 8)},
        "pure-ldp": {"report": Measured(40.0, 9)},
    }
    assert oue.peer_bytes == {"pure-ldp": 12_345.0}
    assert next(s for s in result.speeds if s.mechanism == "OLH").peers == {"pure-ldp FLH": {"tabulate": Measured(30.0, 6)}}
    assert result.peers_missing == ["pure-ldp SUE: TypeError: no", "the other libraries' process ended with status 9"]
    assert said[0] == "GRR"
    text = shown(result)
    assert "Other libraries: the other libraries' process ended with status 9" in text
    assert "× ours" in text
    assert "12345" in text
    assert "OLH, their FLH" in text


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


def test_a_week_of_a_small_server_is_simulated(tmp_path: Path) -> None:
    """Every report is counted, every closed step is published, and expired reports leave the folder."""
    result = week.bench(tmp_path, 240, 9)
    assert (result.reports, result.published) == (240 * 3 * 9, 9)
    assert len(result.memory_mib) == len(result.disk_mib) == 24 * 9
    assert min(result.memory_mib + result.disk_mib) > 0
    with looking(tmp_path / "data" / FILE) as db:
        assert db.execute("SELECT sum(next_offset), sum(pruned_below > 0) FROM checkpoint").fetchone() == (
            result.reports + 9,
            1,
        )
        assert 0 < db.execute("SELECT count(*) FROM record").fetchone()[0] < 240 * 3 * 8
    week.draw(result, tmp_path / "week.svg")
    assert (tmp_path / "week.svg").stat().st_size > 0
