"""The accuracy benchmark is reproducible and complete, and shows every view."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from lab.bench.__main__ import app
from lab.bench.accuracy import cells as cell_grid
from lab.bench.accuracy import measure as measuring
from lab.bench.accuracy.cells import EPSILONS, MOST_PEOPLE, Cell, grid, quick_grid
from lab.bench.accuracy.compare import Result, result, with_second_look
from lab.bench.accuracy.measure import CellErrors, LinesError, measure
from lab.bench.accuracy.shapes import DOMAINS, SYNTHETIC
from lab.processes import worker_pool
from ldpstream.mechanisms import NAMES

CELLS = [
    Cell(shape="geometric", mechanism="L-OLH", k=5, eps=1.0, n=1000, steps=4, ordered=True, held_out=False),
    Cell(shape="zipf 1.5", mechanism="OLH", k=4, eps=1.0, n=1000, steps=1, ordered=False, held_out=True),
    Cell(shape="zipf 1.5", mechanism="OUE", k=12, eps=4.0, n=1000, steps=1, ordered=False, held_out=True),
]


def silent(said: str) -> None:
    """Shows nothing."""


def run(
    cells: list[Cell] = CELLS, runs: int = 2, seed: int = 1, lines: Path | None = None, peers: bool = False
) -> list[CellErrors]:
    return measure(cells, SYNTHETIC, runs, seed, peers, silent, lines, processes=1)


def test_the_grid_is_complete() -> None:
    cells = grid(SYNTHETIC)
    assert len(cells) == len(set(cells)) == len(SYNTHETIC) * len(DOMAINS) * len(EPSILONS)
    assert set(Counter(cell.mechanism for cell in cells)) == set(NAMES)
    assert {cell.steps for cell in cells} == {1, 4}
    assert all(cell.n <= MOST_PEOPLE.get(cell.mechanism, cell.n) for cell in cells)
    assert set(quick_grid(SYNTHETIC)) <= set(cells)
    assert grid({"step": SYNTHETIC["step"]}) == [cell for cell in cells if cell.shape == "step"]


def test_cells_are_reproducible_and_independent_of_one_another() -> None:
    rows = run()
    assert rows == [run([cell])[0] for cell in CELLS]
    assert rows[1:] != run(CELLS[1:], seed=2)
    first, second, third = rows
    assert {"ibu exact", "mle exact"} <= set(first.mse) & set(second.mse)
    assert "ibu exact" not in third.mse
    assert first.wasserstein.keys() == first.mse.keys()
    assert not second.wasserstein
    assert all(len(found) == 2 for row in rows for found in row.mse.values())
    longer = run([CELLS[2]], runs=3)[0]
    assert {name: found[:2] for name, found in longer.mse.items()} == third.mse


def test_the_command_writes_lines_picture_and_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_grid, "quick_grid", lambda shapes: CELLS)
    monkeypatch.setattr(measuring, "worker_pool", lambda processes, tasks: worker_pool(1, tasks))
    lines, picture, written = tmp_path / "lines", tmp_path / "picture.png", tmp_path / "out.json"
    options = ["accuracy", "--quick", "--repeats", "2", "--no-peers", "--lines", str(lines)]
    told = CliRunner().invoke(app, [*options, "--picture", str(picture), "--json", str(written)])
    assert told.exit_code == 0, told.output
    assert "All values, mean squared error" in told.output
    assert "three standard errors" in " ".join(told.output.split())
    assert picture.read_bytes().startswith(b"\x89PNG")
    found = with_second_look(result(run(), 2, 1), run(seed=2))
    assert msgspec.json.decode(written.read_bytes(), type=Result) == found
    assert all(one.again is not None for of in found.views.values() for one in of)
    again = CliRunner().invoke(app, [*options, "--seed", "2"])
    assert isinstance(again.exception, LinesError)
