"""The intervals cover the truth as often as they claim, and the timings are complete."""

import numpy as np
import pytest

from lab.bench import coverage_hard
from lab.bench.accuracy.cells import few_cells, grid, hard_cells
from lab.bench.accuracy.shapes import FEW, HARD, SYNTHETIC
from lab.bench.coverage import WINDOW, coverage_table, measure_one, measure_shape, shaped_table
from lab.bench.coverage_cells import _Held, cells_table, few_table, lowest_table, measure_cells, runs_of
from lab.bench.estimators import measure as bench_estimators
from lab.bench.estimators import timing_table
from ldpstream.estimators import Estimate


def test_the_timings_are_complete() -> None:
    rows = bench_estimators(True, False, lambda said: None)
    assert len(rows) == len({row.task for row in rows}) == 23
    assert all(row.value > 0 for row in rows)
    assert timing_table(rows).row_count == len(rows)
    assert coverage_table([c for steps in (1, WINDOW) for c in measure_one("GRR", steps, 2, 1)]).row_count == 5
    assert shaped_table(measure_shape(0, 2, 1)).row_count == 4


def test_the_coverage_of_every_cell_is_measured() -> None:
    """All cells have rows, and a cell's numbers are right for two runs: in the second, both intervals miss."""
    cells = [cell for cell in grid(SYNTHETIC) if cell.k == 20 and cell.shape in ("zipf 1", "step")][::2]
    rows = measure_cells(cells, SYNTHETIC, 100, 1, lambda said: None, processes=1)
    assert [(row.cell, row.estimator) for row in rows if not row.cell.ordered] == [(c, "eb") for c in cells if not c.ordered]
    assert {row.estimator for row in rows if row.cell.ordered} == {"eb", "eb ordered"}
    assert {row.runs for row in rows} == {runs_of(20, 100)} == {30}
    assert all(row.covered > 0.85 and row.missed_above <= 1 - row.covered for row in rows)
    assert cells_table(rows).row_count == 4
    assert lowest_table(rows).row_count >= len(rows)
    held = _Held(np.array([0.5, 0.5]))
    for moved in (0.0, 0.05):
        held.add(Estimate(np.array([0.5 + moved, 0.5 - moved]), np.full(2, 0.02), 1))
    row = held.row(cells[0], "eb")
    assert (row.covered, row.top, row.missed_above, row.error) == (0.5, 0.5, 0.25, 0.5)
    assert (row.largest, row.worst) == (0.5, 0.5)
    held = _Held(np.array([0.2, 0.7, 0.1]))
    for moved in (0.0, 0.05):
        held.add(Estimate(np.array([0.2, 0.7 - moved, 0.1]), np.full(3, 0.02), 1))
    row = held.row(cells[0], "eb")
    assert row.covered == pytest.approx(5 / 6)
    assert (row.largest, row.worst) == (0.5, 0.5)


def test_the_coverage_with_few_values_and_few_people_is_measured() -> None:
    """Ten runs of six cells: the default estimate's intervals hold on average."""
    cells = [cell for cell in few_cells() if cell.n == 1000 and cell.eps == 0.5 and cell.k <= 3][:6]
    rows = measure_cells(cells, FEW, 10, 1, lambda said: None, processes=1)
    assert [row.cell for row in rows] == cells
    assert np.mean([row.covered for row in rows]) > 0.85
    assert all(row.worst <= row.largest and row.worst <= row.covered for row in rows)
    assert few_table(rows).row_count == 2
    assert lowest_table(rows, "few").row_count == 6


def test_the_lowest_coverage_of_single_intervals_is_measured_again() -> None:
    """Ordered values also have a mean and percentiles. The second look has other seeds, twice the runs, and the same values."""
    cells = [next(cell for cell in hard_cells({}) if cell.shape == name and cell.n == 200) for name in ("far ends", "comb")]
    cells.append(next(cell for cell in hard_cells({}) if cell.shape == "many, zipf 1"))
    rows = coverage_hard.measure(cells, HARD, 4, 1, lambda said: None, processes=1)
    found = coverage_hard.by_quantity(rows)
    assert {name: len(of) for name, of in found.items()} == {
        "all values": 3, "largest": 3, "worst value": 3, "worst named": 1, "mean": 2, "p50": 2, "p90": 2, "p99": 2,
    }  # fmt: skip
    assert all(row.again is not None and row.again_error for row in rows)
    assert len(coverage_hard.tables(rows)) == 1 + len(found)
