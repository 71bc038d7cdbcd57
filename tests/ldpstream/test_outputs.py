"""Output files and tables: a command that cannot write its files fails before its work, and tables fit narrow terminals."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from ldpstream.commands.cli import run
from ldpstream.output import terminal
from ldpstream.output.outputs import write_json
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


def test_a_file_name_that_is_not_utf8_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsencode", lambda text: text.encode("latin-1"))  # the document does not depend on the locale
    write_json(tmp_path / "out.json", {"places": [("é\udcff.jsonl", 1)], "ε\udcff": None})
    assert json.loads((tmp_path / "out.json").read_text("utf-8")) == {"places": [["é\ufffd.jsonl", 1]], "ε\ufffd": None}


@pytest.mark.parametrize("width", [40, 60, 200])
def test_a_narrow_terminal_shows_the_first_column_beside_all_others(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = table("a title", "mechanism", *(f"claimed {i}" for i in range(6)))
    shown.add_row("L-PS-GRR(k=6)", *(f"{i}234567.25" for i in range(6)))
    console = Console(record=True, width=width, file=io.StringIO())
    monkeypatch.setattr(terminal, "console", console)
    terminal.show_table(shown)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width
    assert all(text.count(f" {i}234567.25 ") == text.count(f" claimed {i} ") == 1 for i in range(6))
    assert text.count("L-PS-GRR(k=6)") == {40: 6, 60: 2, 200: 1}[width]
    assert text.count("a title") == 1
