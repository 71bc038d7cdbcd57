"""Output files and tables: a command that cannot write its files fails before its work, and tables fit narrow terminals."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from ldpstream.commands.cli import run
from ldpstream.output.terminal import table


def test_a_folder_that_we_may_not_write_is_found_before_the_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.json"
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)  # root may write any folder
    monkeypatch.setattr("sys.argv", ["ldpstream", "demo", "--users", "10", "--steps", "1", "--json", str(target)])
    with pytest.raises(SystemExit, match="2"):
        run()
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"ldpstream: --json {target}: cannot be written: Permission denied\n")


@pytest.mark.parametrize("width", [40, 200])
def test_a_narrow_terminal_shows_all_digits(width: int) -> None:
    shown = table("a title", "mechanism", *(f"claimed {i}" for i in range(6)))
    shown.add_row("L-PS-GRR(k=6)", *(f"{i}234567.25" for i in range(6)))
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(shown)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width
    assert (text.count("7"), text.count("P"), "…" in text) == (6, 1, False)
