"""The results page shows the output of the commands, and lists the commands that did not run."""

import json
import math
from pathlib import Path

import msgspec
import pytest

from lab import results_page
from lab.bench.accuracy.cells import quick_grid
from lab.bench.accuracy.compare import result
from lab.bench.accuracy.measure import measure
from lab.bench.accuracy.shapes import SYNTHETIC
from lab.bench.advice import PAPERS, Compared
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
EQUAL = dict.fromkeys(["A mi", *PAPERS["one-time"], *PAPERS["memoized"]], 1.0)
ADVISED = Compared(case="one", kind="one-time", eps=1.0, k=3, n=10, advice="A mi", mse=EQUAL)
TARGET = Target("ldp3-table-1", "LDP³, Table I", lambda _: [], lambda *_: Outcome([]))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the commands' output; the page is written to its subfolder `docs`."""
    monkeypatch.setattr(results_page, "DOCS", tmp_path / "docs" / "evidence")
    rows = measure(quick_grid(SYNTHETIC)[:2], SYNTHETIC, 2, 1, False, lambda said: None, processes=1)
    written = {
        "reproduce": [document(Reproduced(TARGET, Outcome(ROWS, PANELS, ["A sentence."])))],
        "estimators": [Timing(task="MI", value=0.5, unit="s", target=1.0)],
        "advice": [ADVISED, msgspec.structs.replace(ADVISED, kind="memoized")],
        "accuracy": result(rows, 2, 1),
    }
    for name, content in written.items():
        (tmp_path / f"{name}.json").write_bytes(msgspec.json.encode(content))
    return tmp_path


def test_the_page_shows_every_result(folder: Path) -> None:
    results_page.main(folder)
    text = (folder / "docs" / "evidence" / "results.md").read_text()
    assert "| GRR ibu | ×1 | 0.0% | ×1 | one, 1 |" in text
    assert "| `ldp3-table-1` | 3 | 0 of 2 | ×2 | LDP³, Table I |" in text
    assert "| a\\|b | 2.1 | 2 | -0.1 | 0 | NO | 1 | ×2 |" in text
    assert "0 of 2 values agree. Of the 2 others, 0 rest on data that we generated" in text
    assert "[1] a misprint" in text
    assert "| c [1] | 1 | 2 | 1 | 0 | NO | – | – |" in text
    assert "![LDP³, Table I](results/ldp3-table-1.png)" in text
    assert "A sentence." in text
    assert "| MI | 0.5 s | ≤ 1 | yes |  |" in text
    assert (folder / "docs" / "evidence" / "results" / "ldp3-table-1.png").read_bytes().startswith(b"\x89PNG")
    cells = (folder / "docs" / "evidence" / "results" / "accuracy.csv").read_text()
    assert len(cells.splitlines()) == 5  # two cells, in two views each


def test_the_documents_introduction_is_the_codes() -> None:
    written = (Path(__file__).parents[2] / "docs" / "evidence" / "results.md").read_text()
    made = results_page.page({"reproduce": []}, "")
    assert written.startswith(made[: made.index("| | values |")])


def test_a_command_that_did_not_run_keeps_its_section(folder: Path) -> None:
    found = {"estimators": json.loads((folder / "estimators.json").read_text())}
    assert "## The papers, reproduced" not in results_page.page(found, "")
    results_page.main(folder)
    before = (folder / "docs" / "evidence" / "results.md").read_text()
    found["estimators"][0]["value"] = 0.25
    after = results_page.page(found, before)
    assert "| MI | 0.25 s | ≤ 1 | yes |  |" in after
    assert after == before.replace("| MI | 0.5 s |", "| MI | 0.25 s |")
    assert results_page.page({}, after) == after
