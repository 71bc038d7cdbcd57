"""Coverage of the default estimate's 95 % intervals in the cells of the accuracy benchmark."""

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from rich.table import Table

from lab.bench.accuracy.cells import Cell, draw
from lab.bench.accuracy.compare import SURELY
from lab.bench.accuracy.measure import random_of
from lab.bench.accuracy.shapes import Shape
from lab.processes import worker_pool
from ldpstream.estimators import Estimate, empirical_bayes
from ldpstream.mechanisms.arguments import FloatArray

LEAST_RUNS, VALUES_A_RUN = 20, 6  # a cell of k values has 6 · `runs` / k runs, at least 20 but at most `runs`
LOW, HIGH = 0.94, 0.96
TOP = 10
SHOWN = 12


class CellCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """One cell and estimate.

    Attributes:
        covered, error: share of intervals, over runs and values, that contain the true share, and its standard error.
        top: the same share for the ten values with the largest estimates of each run.
        largest: the same share for the value with the largest true share.
        worst: the same share for the value for which it is smallest.
        missed_above: share of intervals that lie below the true share.
    """

    cell: Cell
    estimator: str
    runs: int
    covered: float
    error: float
    top: float
    largest: float
    worst: float
    missed_above: float


def runs_of(k: int, runs: int) -> int:
    return min(runs, max(LEAST_RUNS, VALUES_A_RUN * runs // k))


def measure_cells(
    cells: Sequence[Cell],
    shapes: dict[str, Shape],
    runs: int,
    seed: int,
    seen: Callable[[str], None],
    processes: int | None = None,
) -> list[CellCoverage]:
    rows: list[CellCoverage] = []
    tasks = [(cell, shapes[cell.shape].make(cell.k), runs_of(cell.k, runs), seed) for cell in cells]
    with worker_pool(processes, 0) as spread:
        for done, made in enumerate(spread(_job, tasks), 1):
            rows += made
            seen(f"{done} of {len(cells)} cells")
    return rows


def _job(task: tuple[Cell, FloatArray, int, int]) -> list[CellCoverage]:
    return coverage_of(*task)


def coverage_of(cell: Cell, truth: FloatArray, runs: int, seed: int) -> list[CellCoverage]:
    m, held = cell.build(), _Held(truth)
    ordered = _Held(truth)
    for run in range(runs):
        _, table = draw(cell, truth, random_of(cell, seed, run))
        held.add(empirical_bayes(m, table, steps=cell.steps))
        if cell.ordered:
            ordered.add(empirical_bayes(m, table, ordered=True, steps=cell.steps))
    return [held.row(cell, "eb"), *([ordered.row(cell, "eb ordered")] if cell.ordered else [])]


class _Held:
    def __init__(self, truth: FloatArray) -> None:
        self._truth = truth
        self._runs: list[tuple[float, float, float]] = []
        self._held = np.zeros(truth.size)

    def add(self, estimate: Estimate) -> None:
        low, high = estimate.interval()
        held = (low <= self._truth) & (self._truth <= high)
        self._held += held
        largest = np.argsort(-estimate.frequencies, kind="stable")[:TOP]
        self._runs.append((float(held.mean()), float(held[largest].mean()), float((self._truth > high).mean())))

    def row(self, cell: Cell, estimator: str) -> CellCoverage:
        runs = np.array(self._runs)
        of_each = self._held / len(runs)
        covered, top, above = (float(mean) for mean in runs.mean(axis=0))
        error = float(runs[:, 0].std(ddof=1)) / math.sqrt(len(runs))
        return CellCoverage(
            cell=cell,
            estimator=estimator,
            runs=len(runs),
            covered=covered,
            error=error,
            top=top,
            largest=float(of_each[self._truth.argmax()]),
            worst=float(of_each.min()),
            missed_above=above,
        )


def cells_table(rows: Sequence[CellCoverage]) -> Table:
    most = max(row.runs for row in rows)
    shown = Table("estimate", "values", "cells", "mean", "lowest cell", "94 to 96 %", "surely below 94 %", "surely above 96 %",
                  "ten largest", "lowest cell", "largest", "lowest cell",
                  title=f"Coverage averaged over the values of a cell; at most {most} runs")  # fmt: skip
    for estimator in dict.fromkeys(row.estimator for row in rows):
        own = [row for row in rows if row.estimator == estimator]
        for k in [*sorted({row.cell.k for row in own}), None]:
            of = [row for row in own if k is None or row.cell.k == k]
            covered, top, largest = np.array([(row.covered, row.top, row.largest) for row in of]).T
            shown.add_row(
                estimator, "all" if k is None else str(k), str(len(of)), _percent(covered.mean()), _percent(covered.min()),
                str(sum(LOW <= row.covered <= HIGH for row in of)),
                str(sum(row.covered + SURELY * row.error < LOW for row in of)),
                str(sum(row.covered - SURELY * row.error > HIGH for row in of)),
                _percent(top.mean()), _percent(top.min()), _percent(largest.mean()), _percent(largest.min()),
            )  # fmt: skip
    return shown


def few_table(rows: Sequence[CellCoverage]) -> Table:
    most = max((row.runs for row in rows), default=0)
    shown = Table("values", "ε", "cells", "mean", "lowest cell", "largest value", "lowest cell", "worst value", "lowest cell",
                  title=f"Few values and few people: coverage of the default estimate; at most {most} runs")  # fmt: skip
    for k, eps in sorted({(row.cell.k, row.cell.eps) for row in rows}):
        of = np.array([(row.covered, row.largest, row.worst) for row in rows if (row.cell.k, row.cell.eps) == (k, eps)])
        both = zip(of.mean(axis=0), of.min(axis=0), strict=True)
        shown.add_row(str(k), f"{eps:g}", str(len(of)), *(_percent(share) for pair in both for share in pair))
    return shown


def lowest_table(rows: Sequence[CellCoverage], title: str = "Cells with the lowest coverage") -> Table:
    shown = Table("estimate", "shape", "mechanism", "k", "ε", "n", "steps", "all values", "±", "ten largest", "largest",
                  "worst value", "truth above", title=title)  # fmt: skip
    by_mean = sorted(rows, key=lambda row: row.covered)[:SHOWN]
    by_top = [row for row in sorted(rows, key=lambda row: row.top)[:SHOWN] if row not in by_mean]
    by_largest = sorted(rows, key=lambda row: row.largest)[:SHOWN]
    for row in [*by_mean, *by_top, *(row for row in by_largest if row not in by_mean + by_top)]:
        cell = row.cell
        shown.add_row(
            row.estimator, cell.shape, cell.mechanism, str(cell.k), f"{cell.eps:g}", f"{cell.n:.0e}".replace("e+0", "e"),
            str(cell.steps), *map(_percent, (row.covered, row.error, row.top, row.largest, row.worst, row.missed_above)),
        )  # fmt: skip
    return shown


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
