"""The results page shows the output of the commands, and lists the commands that did not run."""

import math
from pathlib import Path

import msgspec
import pytest

from lab import results_page
from lab.bench.accuracy.cells import quick_grid
from lab.bench.accuracy.compare import result
from lab.bench.accuracy.measure import measure
from lab.bench.accuracy.shapes import SYNTHETIC
from lab.bench.estimators import Timing
from lab.panels import Curve, Panel
from lab.papers.reproduction import Outcome, Reproduced, Row, Target
from lab.papers.reproduction_tables import document

ROWS = [
    Row(label="a|b", ours=2.0, published=2.1, digit=0.05, best=1.0),
    Row(label="c", ours=2.0, published=1.0, note="a misprint"),
    Row(label="d", ours=math.nan),
]
PANELS = [Panel("p", "x", "y", [Curve("c", [1, 2], [math.nan, 3.0])])]
TARGET = Target("ldp3-table-1", "LDP³, Table I", lambda _: [], lambda *_: Outcome([]))
SECOND = Target("ldp3-table-2", "LDP³, Table II", lambda _: [], lambda *_: Outcome([]))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the commands' output; the pages are written to its subfolder `docs`."""
    monkeypatch.setattr(results_page, "DOCS", tmp_path / "docs" / "evidence")
    rows = measure(quick_grid(SYNTHETIC)[:2], SYNTHETIC, 2, 1, False, lambda said: None, processes=1)
    written = {
        "reproduce": [
            document(Reproduced(TARGET, Outcome(ROWS, PANELS, ["A shared sentence."]))),
            document(Reproduced(SECOND, Outcome([ROWS[0], ROWS[2]], [], ["A shared sentence.", "An own sentence."]))),
        ],
        "estimators": [Timing(task="MI", value=0.5, unit="s", target=1.0)],
        "accuracy": result(rows, 2, 1),
    }
    for name, content in written.items():
        (tmp_path / f"{name}.json").write_bytes(msgspec.json.encode(content))
    return tmp_path


def read(folder: Path, name: str) -> str:
    return (folder / "docs" / "evidence" / name).read_text()


def test_the_pages_show_every_result(folder: Path) -> None:
    results_page.main(folder)
    assert "| MI | 0.5 s | ≤ 1 | yes |  |" in read(folder, "speed.md")
    assert "(paper_ldp3.md): Balioglu, Khodaie and Gursoy compare ways to repair shares | 2 | 0 of 3 |" in read(
        folder, "papers.md"
    )
    assert "0 of 3 values agree. Of the 3 others, 0 rest on data that we generated" in read(folder, "papers.md")
    text = read(folder, "paper_ldp3.md")
    assert "| `ldp3-table-1` | 3 | 0 of 2 | ×2 | LDP³, Table I |" in text
    assert "| a\\|b | 2.1 | 2 | -0.1 | 0 | NO | 1 | ×2 |" in text
    assert "| c [1] | 1 | 2 | 1 | 0 | NO | – | – |" in text
    assert "![LDP³, Table I](results/ldp3-table-1.png)" in text
    assert read(folder, "results/accuracy.csv").count("\n") == 5  # a header, and two cells in two views each
    assert (folder / "docs" / "evidence" / "results" / "ldp3-table-1.png").read_bytes().startswith(b"\x89PNG")


def test_the_documents_introductions_are_the_codes() -> None:
    for file, about in results_page.PAGES.items():
        assert (results_page.DOCS / file).read_text() == results_page.page(about, {}, (results_page.DOCS / file).read_text())
    made = results_page.reproduced([])
    for file, text in made.items():
        head = text.partition("| paper | results |" if file == "papers.md" else "| result |")[0]
        assert (results_page.DOCS / file).read_text().startswith(head)
