"""Coverage of single intervals in the cells in which it was worst, one row for each cell and quantity.

    all values      mean over the values
    largest         the value with the largest true share
    worst value     the value that its interval contains least often
    worst named     the same among the values that are named in at least a quarter of the runs, over these runs
    mean, p50 …     the mean and the percentiles of ordered values, numbered from 0 to k
    none clear      for 1000 people: no difference from a cohort of 50 000 people with the same shares is marked as clear

The truth is the distribution from which the people are drawn. The rows with the lowest coverage are measured again with another
seed, for the same values.
"""

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from rich.table import Table

from lab.bench.accuracy.cells import Cell, draw
from lab.bench.accuracy.measure import random_of
from lab.bench.accuracy.shapes import Shape
from lab.processes import worker_pool
from ldpstream.estimators import Estimate, empirical_bayes, matrix_inversion
from ldpstream.estimators.bayes.unordered import named_values
from ldpstream.estimators.differences import beyond_chance, chances, separate_errors, unchanged_errors
from ldpstream.estimators.quantiles import PERCENTILES, mean, quantiles
from ldpstream.mechanisms.arguments import FloatArray

OTHERS, NEW = 50_000, 1000  # people of the cohorts that are compared
DRAWN = ("OLH",)  # mechanisms of which each report is drawn: a large cohort would take too long
LOWEST = 10  # rows of a table
NAMED_RUNS = 0.25  # a value counts as named if it is named in this part of the runs


class Covered(msgspec.Struct, frozen=True, kw_only=True):
    """The coverage of one quantity in one cell.

    Attributes:
        value: index of the value, for "worst value" and "worst named".
        runs: number of runs with the quantity.
        covered, error: share of the intervals that contain the truth, and its standard error.
        width: mean width of the intervals, divided by that of the raw inversion's intervals; for a number, as a part of its
            range.
        again, again_error: the coverage in the second look.
    """

    cell: Cell
    quantity: str
    value: int | None = None
    runs: int
    covered: float
    error: float
    width: float
    again: float | None = None
    again_error: float | None = None


def rows_of(cell: Cell, truth: FloatArray, runs: int, seed: int, values: dict[str, int] | None = None) -> list[Covered]:
    """Measures a cell. `values` gives the values of "worst value" and "worst named"; None to search for them."""
    m, edges = cell.build(), np.arange(cell.k + 1.0)
    held, named, width, numbers, lengths, same = [], [], [], [], [], []
    compared = cell.n == NEW and not cell.ordered and cell.mechanism not in DRAWN
    for run in range(runs):
        _, table = draw(cell, truth, random_of(cell, seed, run))
        estimate, raw = empirical_bayes(m, table, ordered=cell.ordered), matrix_inversion(m, table)
        low, high = estimate.interval()
        held.append((low <= truth) & (truth <= high))
        named.append(np.zeros(cell.k, bool) if cell.ordered else named_values(estimate.frequencies))
        width.append((high - low) / (2 * 1.96 * raw.standard_errors))
        if compared:
            _, other = draw(msgspec.structs.replace(cell, n=OTHERS), truth, random_of(cell, seed, run))
            same.append(_none_clear(raw, matrix_inversion(m, other)))
        if cell.ordered:
            ends = _ends(estimate, edges)
            numbers.append([low <= x <= high for x, (low, high) in zip(_numbers(truth, edges), ends, strict=True)])
            lengths.append([high - low for low, high in ends])
    hits, marked, wide = np.array(held, np.float64), np.array(named, np.float64), np.array(width)
    chosen = values or _worst(hits, marked)
    rows = [
        _row(cell, "all values", hits.mean(axis=1), wide.mean(axis=1)),
        _row(cell, "largest", hits[:, truth.argmax()], wide[:, truth.argmax()]),
    ]
    for quantity, v in chosen.items():
        of = marked[:, v] > (0 if quantity == "worst named" else -1)
        if hits[of, v].size > 1:
            rows.append(_row(cell, quantity, hits[of, v], wide[of, v], v))
    if compared:
        rows.append(_row(cell, "none clear", np.array(same, np.float64), np.ones(1)))
    names = ["mean", *(f"p{100 * q:g}" for q in PERCENTILES)] if cell.ordered else []
    found, reach = np.array(numbers, np.float64), np.array(lengths)
    return rows + [_row(cell, name, found[:, i], reach[:, i] / cell.k) for i, name in enumerate(names)]


def _none_clear(new: Estimate, old: Estimate) -> bool:
    """True if the test of `publishing.answers.comparison` marks no difference."""
    errors = np.maximum(separate_errors(old, new), unchanged_errors(old, new, (OTHERS, NEW)))
    return not beyond_chance(chances(new.frequencies - old.frequencies, errors)).any()


def _worst(held: FloatArray, named: FloatArray) -> dict[str, int]:
    chosen = {"worst value": int(held.mean(axis=0).argmin())}
    times = named.sum(axis=0)
    often = times >= max(2, NAMED_RUNS * len(named))
    if often.any():
        rate = np.where(often, (held * named).sum(axis=0) / np.maximum(times, 1), np.inf)
        chosen["worst named"] = int(rate.argmin())
    return chosen


def _row(cell: Cell, quantity: str, held: FloatArray, width: FloatArray, value: int | None = None) -> Covered:
    covered, n = float(held.mean()), held.size
    spread = float(held.std(ddof=1)) or math.sqrt(1 / n)  # at least of the size of one miss
    return Covered(
        cell=cell, quantity=quantity, value=value, runs=n, covered=covered, error=spread / math.sqrt(n),
        width=float(width.mean()),
    )  # fmt: skip


def _ends(estimate: Estimate, edges: FloatArray) -> list[tuple[float, float]]:
    average, percentiles = mean(estimate, edges), quantiles(estimate, edges)
    assert average is not None
    assert percentiles is not None
    return [(x.low - 1e-9, x.high + 1e-9) for x in (average, *percentiles)]


def _numbers(truth: FloatArray, edges: FloatArray) -> list[float]:
    reached = np.concatenate([[0.0], np.cumsum(truth)])
    upper = np.maximum(np.searchsorted(reached, PERCENTILES), 1)
    part = (np.array(PERCENTILES) - reached[upper - 1]) / (reached[upper] - reached[upper - 1])
    return [float(truth @ (edges[1:] + edges[:-1]) / 2), *(edges[upper - 1] + part).tolist()]


def measure(
    cells: Sequence[Cell], shapes: dict[str, Shape], runs: int, seed: int, seen: Callable[[str], None],
    processes: int | None = None,
) -> list[Covered]:  # fmt: skip
    """Measures all cells, and the rows of `lowest` again with the next seed."""
    rows: list[Covered] = []
    with worker_pool(processes, 0) as spread:
        for made in spread(_job, [(cell, shapes[cell.shape].make(cell.k), runs, seed, None) for cell in cells]):
            rows += made
            seen(f"{made[0].cell.shape}, {made[0].cell.mechanism}, k = {made[0].cell.k}")
        low = [row for of in by_quantity(rows).values() for row in lowest(of)]
        tasks = []
        for cell in dict.fromkeys(row.cell for row in low):
            values = {row.quantity: row.value for row in rows if row.cell == cell and row.value is not None}
            tasks.append((cell, shapes[cell.shape].make(cell.k), 2 * runs, seed + 1, values))
        again = {(row.cell, row.quantity): row for made in spread(_job, tasks) for row in made}
    for i, row in enumerate(rows):
        if row in low and (fresh := again.get((row.cell, row.quantity))) is not None:
            rows[i] = msgspec.structs.replace(row, again=fresh.covered, again_error=fresh.error)
    return rows


def _job(task: tuple[Cell, FloatArray, int, int, dict[str, int] | None]) -> list[Covered]:
    return rows_of(*task)


def by_quantity(rows: Sequence[Covered]) -> dict[str, list[Covered]]:
    return {name: [row for row in rows if row.quantity == name] for name in dict.fromkeys(row.quantity for row in rows)}


def lowest(rows: Sequence[Covered]) -> list[Covered]:
    return sorted(rows, key=lambda row: row.covered)[:LOWEST]


def tables(rows: Sequence[Covered]) -> list[Table]:
    runs = max((row.runs for row in rows), default=0)
    summary = Table("quantity", "cells", "mean", "lowest cell", "±", "lowest, again", "±", "width",
                    title=f"Hard cells: coverage of 95 % intervals; {runs} runs")  # fmt: skip
    shown = [summary]
    for quantity, of in by_quantity(rows).items():
        low = lowest(of)
        again = min((row for row in low if row.again is not None), key=lambda row: row.again or 0, default=None)
        summary.add_row(
            quantity, str(len(of)), _percent(float(np.mean([row.covered for row in of]))), _percent(low[0].covered),
            _percent(low[0].error), *(_percent(x) for x in ((again.again, again.again_error) if again else (None, None))),
            f"{np.mean([row.width for row in of]):.2f}",
        )  # fmt: skip
        table = Table("shape", "mechanism", "k", "ε", "n", "covered", "±", "again", "±", "width",
                      title=f"Hard cells with the lowest coverage: {quantity}")  # fmt: skip
        for row in low:
            cell = row.cell
            table.add_row(
                cell.shape, cell.mechanism, str(cell.k), f"{cell.eps:g}", f"{cell.n:,}", _percent(row.covered),
                _percent(row.error), _percent(row.again), _percent(row.again_error), f"{row.width:.2f}",
            )  # fmt: skip
        shown.append(table)
    return shown


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"
