"""Compares methods over the cells of the accuracy benchmark.

A method and the winner have the errors e_i and w_i in run i. The ratio r of their mean errors has the standard error se (delta
method):

    r = Σ_i e_i / Σ_i w_i        se = sd_i(e_i - r w_i) / (√runs · mean w)

The worst cells of a view are measured a second time with another seed, since the first look chose them by their errors.
"""

import math
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from lab.bench.accuracy.cells import NUMBERS, Cell
from lab.bench.accuracy.measure import CellErrors
from lab.bench.accuracy.shapes import FEW, HARD
from lab.bench.accuracy.slow_estimates import DEFAULT_ORDERED
from lab.bench.methods import DEFAULT

SURELY = 3.0  # standard errors
MARGIN = 1.05
VIEWS = {
    "all": "All values, mean squared error",
    "ordered": "Ordered values, mean squared error",
    "wasserstein": "Ordered values, Wasserstein distance",
    "few": "Few values and few people, mean squared error",
    "shuffled": "Values wrongly declared as ordered, mean squared error",
    "hard": "Hard cells, mean squared error",
}
DEFAULTS = {view: DEFAULT if view in ("all", "few", "hard") else DEFAULT_ORDERED for view in VIEWS}
WORST = 10  # cells of a view that are measured again
OWN_REPORTS = "pure-ldp FLH"  # another mechanism, with its own reports: never the winner


class Ratio(msgspec.Struct, frozen=True):
    value: float
    error: float

    def surely_above(self, factor: float) -> bool:
        return self.value - SURELY * self.error > factor

    def surely_below(self, factor: float) -> bool:
        return self.value + SURELY * self.error < factor


class Comparison(msgspec.Struct, frozen=True):
    """One cell of a view; `again` is the ratio of the default estimate to the same winner in the second look."""

    cell: Cell
    winner: str
    error: float
    ratios: dict[str, Ratio]
    again: Ratio | None = None


class Result(msgspec.Struct, frozen=True):
    runs: int
    seed: int
    views: dict[str, list[Comparison]]


class Summary(msgspec.Struct, frozen=True):
    method: str
    cells: int
    mean: float
    spread: float
    won: int
    sure: int
    worst: float


def ratio(errors: Sequence[float], others: Sequence[float]) -> Ratio:
    runs = min(len(errors), len(others))
    e, w = np.array(errors[:runs]), np.array(others[:runs])
    if not w.any():
        return Ratio(1.0 if not e.any() else math.inf, 0.0)
    value = e.sum() / w.sum()
    return Ratio(float(value), float((e - value * w).std(ddof=1) / (math.sqrt(runs) * w.mean())))


def compare(cell: Cell, errors: dict[str, list[float]]) -> Comparison:
    ours = {name: ratio(runs, errors["mi"]).value for name, runs in errors.items() if ":" not in name}
    winner = min(ours, key=lambda name: ours[name])
    for name, runs in errors.items():
        if ":" in name and not name.startswith(OWN_REPORTS) and ratio(runs, errors[winner]).surely_below(1):
            winner = name
    ratios = {name: ratio(runs, errors[winner]) for name, runs in errors.items()}
    return Comparison(cell, winner, float(np.mean(errors[winner])), ratios)


def errors_of(view: str, row: CellErrors) -> dict[str, list[float]] | None:
    """Returns the errors of a cell in a view, by method; None for a cell of other views."""
    hard = row.cell.shape in HARD or row.cell.mechanism == NUMBERS
    if view == "hard" and hard:
        without = {name: errors for name, errors in row.mse.items() if name not in (DEFAULT, DEFAULT_ORDERED)}
        return {DEFAULT: row.mse[DEFAULT_ORDERED if row.cell.ordered else DEFAULT]} | without
    if hard or view == "hard" or (row.cell.shape in FEW) != (view == "few"):
        return None
    if view in ("all", "few"):
        return {name: errors for name, errors in row.mse.items() if name != DEFAULT_ORDERED}
    if row.cell.ordered != (view in ("ordered", "wasserstein")):
        return None
    return row.wasserstein if view == "wasserstein" else row.mse


def result(rows: Sequence[CellErrors], runs: int, seed: int) -> Result:
    views = {
        view: [compare(row.cell, errors) for row in rows if (errors := errors_of(view, row)) is not None] for view in VIEWS
    }
    return Result(runs, seed, {view: cells for view, cells in views.items() if cells})


def worst_of_all(found: Result) -> list[Cell]:
    """Returns the cells that need a second look."""
    chosen = (one.cell for view, cells in found.views.items() for one in worst(cells, DEFAULTS[view], WORST))
    return list(dict.fromkeys(chosen))


def with_second_look(found: Result, fresh: Sequence[CellErrors]) -> Result:
    by_cell, views = {row.cell: row for row in fresh}, {}
    for view, cells in found.views.items():
        views[view] = list(cells)
        for i, one in enumerate(cells):
            errors = errors_of(view, by_cell[one.cell]) if one.cell in by_cell else None
            if errors is not None and one.winner in errors:
                again = ratio(errors[DEFAULTS[view]], errors[one.winner])
                views[view][i] = msgspec.structs.replace(one, again=again)
    return msgspec.structs.replace(found, views=views)


def summarise(cells: Sequence[Comparison]) -> list[Summary]:
    won = Counter(cell.winner for cell in cells)
    names = dict.fromkeys(name for cell in cells for name in cell.ratios)
    found = []
    for name in names:
        ratios = [cell.ratios[name] for cell in cells if name in cell.ratios]
        spread = math.sqrt(sum((one.error / one.value) ** 2 for one in ratios)) / len(ratios)
        mean = math.exp(sum(math.log(one.value) for one in ratios) / len(ratios))
        sure = sum(one.surely_above(MARGIN) for one in ratios)
        found.append(Summary(name, len(ratios), mean, mean * spread, won[name], sure, max(one.value for one in ratios)))
    return sorted(found, key=lambda one: (one.cells < len(cells), one.mean))


def worst(cells: Sequence[Comparison], method: str, number: int) -> list[Comparison]:
    def lower(cell: Comparison) -> float:
        return cell.ratios[method].value - SURELY * cell.ratios[method].error

    return sorted((cell for cell in cells if method in cell.ratios), key=lower, reverse=True)[:number]
