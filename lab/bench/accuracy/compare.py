"""Compares methods over the cells of the accuracy benchmark.

A method and the winner have the errors e_i and w_i in run i. The ratio r of their mean errors has the standard error se (delta
method):

    r = Σ_i e_i / Σ_i w_i        se = sd_i(e_i - r w_i) / (√runs · mean w)
"""

import math
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from lab.bench.accuracy.cells import Cell
from lab.bench.accuracy.measure import CellErrors
from lab.bench.accuracy.shapes import FEW
from lab.bench.accuracy.slow_estimates import DEFAULT_ORDERED

SURELY = 3.0  # standard errors
MARGIN = 1.05
VIEWS = {
    "all": "All values, mean squared error",
    "ordered": "Ordered values, mean squared error",
    "wasserstein": "Ordered values, Wasserstein distance",
    "few": "Few values and few people, mean squared error",
    "shuffled": "Values wrongly declared as ordered, mean squared error",
}
OWN_REPORTS = "pure-ldp FLH"  # another mechanism, with its own reports: never the winner


class Ratio(msgspec.Struct, frozen=True):
    value: float
    error: float

    def surely_above(self, factor: float) -> bool:
        return self.value - SURELY * self.error > factor

    def surely_below(self, factor: float) -> bool:
        return self.value + SURELY * self.error < factor


class Comparison(msgspec.Struct, frozen=True):
    cell: Cell
    winner: str
    error: float
    ratios: dict[str, Ratio]


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


def result(rows: Sequence[CellErrors], runs: int, seed: int) -> Result:
    def unordered(asked: Sequence[CellErrors]) -> list[Comparison]:
        return [compare(row.cell, {name: e for name, e in row.mse.items() if name != DEFAULT_ORDERED}) for row in asked]

    few = [row for row in rows if row.cell.shape in FEW]
    rows = [row for row in rows if row.cell.shape not in FEW]
    views = {
        "all": unordered(rows),
        "few": unordered(few),
        "ordered": [compare(row.cell, row.mse) for row in rows if row.cell.ordered],
        "wasserstein": [compare(row.cell, row.wasserstein) for row in rows if row.cell.ordered],
        "shuffled": [compare(row.cell, row.mse) for row in rows if not row.cell.ordered],
    }
    return Result(runs, seed, {name: cells for name, cells in views.items() if cells})


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
