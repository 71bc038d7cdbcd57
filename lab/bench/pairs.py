"""Two attributes together: errors of a pair, coverage of its intervals, size and power of its test.

The rival asks each attribute with half of the budget, and multiplies the weights of the two reports of a person:

    w_i(y) w_j(y'),   w_v(y) = (1[y supports v] - q) / (p - q)
"""

import math
from collections.abc import Callable

import msgspec
import numpy as np
from rich.table import Table
from scipy.optimize import brentq
from scipy.special import chdtri, chndtr

from lab.audit.events import events
from ldpstream.estimators.pairs import (
    Counted,
    PairEstimate,
    Shares,
    independence,
    pair_estimate,
)
from ldpstream.mechanisms import Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray, integer, real
from ldpstream.mechanisms.registry import lightest

CELLS = [  # rows, columns, ε, people
    (2, 2, 1.0, 1000), (2, 2, 1.0, 100_000), (3, 5, 1.0, 10_000), (3, 5, 1.0, 100_000), (4, 10, 1.0, 100_000),
    (10, 10, 1.0, 100_000), (10, 10, 2.0, 100_000), (3, 5, 4.0, 10_000), (32, 32, 4.0, 100_000),
]  # fmt: skip
SIZE = 0.05
DEPENDENCE = 0.5  # part of the people who have the same relative rank in both attributes


def detectable_association(cell_variance: float, shape: tuple[int, int], size: float = 0.05, power: float = 0.8) -> float:
    """The smallest association that the test finds with this power, as Cramér's V, if both margins are uniform.

        V² = Σ (θ_ij - r_i c_j)² / (r_i c_j) / (min(k₁, k₂) - 1)

    With uniform margins, X² is approximately noncentral χ² with the noncentrality Σ (θ_ij - r_i c_j)² / `cell_variance`.

    Args:
        cell_variance: variance of one cell of the pair's inversion, without the part that all cells share.
        size: chance of a wrong finding if the attributes are independent, in [1e-9, 0.5].
        power: wanted chance of finding the association, in [0.5, 1 - 1e-9].

    Returns:
        V; above 1 if no association of this kind can be found with this power.
    """
    k1, k2 = (integer("shape", k, 2, 2**31) for k in shape)
    degrees, limit = (k1 - 1) * (k2 - 1), float(chdtri((k1 - 1) * (k2 - 1), real("size", size, 1e-9, 0.5)))
    wanted = real("power", power, 0.5, 1 - 1e-9)
    noncentrality = brentq(lambda x: chndtr(limit, degrees, x) - (1 - wanted), 0, 1e5)
    return math.sqrt(noncentrality * cell_variance * k1 * k2 / (min(k1, k2) - 1))


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One setting.

    Attributes:
        rows, columns, eps, people: k₁, k₂, the budget of a device, and the number of people of the whole survey.
        error, alone, product: root of the mean squared error of a cell: of the joint estimate; of the pair's own reports, if
            all people answer the pair; of the product of two reports.
        cells, margins, within: share of 95 % intervals that contain the truth: of cells, of the sums of rows and columns, and
            of the shares within rows.
        lowest: lowest coverage of a single cell.
        unknown: share of the rows whose shares within are not published.
        size: share of alarms of the test for independent attributes, at a nominal 0.05; None if it is never made.
        power: share of alarms at the association `v`, at which a power of 0.8 is expected; None if no table has it.
    """

    rows: int
    columns: int
    eps: float
    people: int
    mechanism: str
    runs: int
    error: float
    alone: float
    product: float
    cells: float
    margins: float
    within: float
    lowest: float
    unknown: float
    size: float | None
    power: float | None
    v: float


def shares_of(rows: int, columns: int, dependence: float) -> FloatArray:
    margins = [1 / np.arange(1.0, k + 1) for k in (rows, columns)]
    r, c = (margin / margin.sum() for margin in margins)
    ends, others = np.cumsum(r), np.cumsum(c)
    both = np.minimum.outer(ends, others)
    together = np.diff(np.diff(both, axis=0, prepend=0), axis=1, prepend=0)  # both values from one random number
    return np.asarray(dependence * together + (1 - dependence) * np.outer(r, c))


def associated(rows: int, columns: int, v: float) -> FloatArray | None:
    """A table with uniform margins and Cramér's V = v; None if V cannot be so large for this kind of table."""
    i, j = np.arange(rows), np.arange(columns)
    wave = np.outer(np.cos(math.pi * (i + 0.5) / rows), np.cos(math.pi * (j + 0.5) / columns))
    wave *= v * math.sqrt((min(rows, columns) - 1) / (rows * columns) / (wave**2).sum())
    table = 1 / (rows * columns) + wave
    return np.asarray(table) if table.min() >= 0 else None


def measure(runs: int, seed: int, progress: Callable[[str], None]) -> list[Result]:
    found = []
    for number, (rows, columns, eps, people) in enumerate(CELLS):
        progress(f"{rows} × {columns}, ε = {eps:g}, {people:,} people")
        found.append(measure_one(number, runs, seed))
    return found


def measure_one(number: int, runs: int, seed: int) -> Result:
    rows, columns, eps, people = CELLS[number]
    rng, shape = np.random.default_rng([seed, number]), (rows, columns)
    m = [_best(k, eps) for k in (rows * columns, rows, columns)]
    halves = [_best(k, eps / 2) for k in shape]
    truth = shares_of(rows, columns, DEPENDENCE)
    variance = float(_own(m[0])[0]) / (people / 3)
    v = detectable_association(variance, shape, SIZE)
    at_v = associated(rows, columns, v)
    errors, held, unknown, alarms, found = np.zeros((3, runs)), _Held(truth), 0.0, list[bool](), list[bool]()
    for run in range(runs):
        counts = _counts(m, truth, people, rng)
        estimate = pair_estimate(counts, shape)
        assert estimate is not None
        everybody = rng.choice(truth.size, people, p=truth.ravel())
        alone = m[0].reading.inversion(m[0].tabulate(m[0].report(everybody, rng))).reshape(shape)
        rival = product(halves, everybody // columns, everybody % columns, rng)
        errors[:, run] = [float(((one - truth) ** 2).mean()) for one in (estimate.shares, alone, rival)]
        held.add(estimate)
        unknown += float(np.isnan(estimate.within(0).shares[:, 0]).mean()) / runs
        for shares, said in ((shares_of(rows, columns, 0.0), alarms), (at_v, found)):
            tested = None if shares is None else independence(_counts(m, shares, people, rng), shape)
            if tested is not None:
                said.append(tested.p < SIZE)
    error, alone_error, product_error = np.sqrt(errors.mean(axis=1)).tolist()
    return Result(
        rows=rows, columns=columns, eps=eps, people=people, mechanism=m[0].name, runs=runs,
        error=error, alone=alone_error, product=product_error,
        cells=held.mean("cells"), margins=held.mean("margins"), within=held.mean("within"), lowest=held.lowest("cells"),
        unknown=unknown, size=float(np.mean(alarms)) if alarms else None, power=float(np.mean(found)) if found else None, v=v,
    )  # fmt: skip


def _best(k: int, eps: float) -> Mechanism:
    built = [mechanism(name, k, eps=eps) for name in ("GRR", "OLH", "OUE")]
    return lightest([(m, m.variance()) for m in built])


def _own(m: Mechanism) -> FloatArray:
    return np.asarray(m.reading.support_covariance(np.full(m.k, 1 / m.k)).own / (m.p - m.q) ** 2)


def _counts(m: list[Mechanism], truth: FloatArray, people: int, rng: np.random.Generator) -> list[Counted]:
    values = np.array_split(rng.choice(truth.size, people, p=truth.ravel()), 3)
    k = truth.shape[1]
    asked = (values[0], values[1] // k, values[2] % k)
    return [Counted([(own, own.tabulate(own.report(v, rng)))]) for own, v in zip(m, asked, strict=True)]


def product(m: list[Mechanism], first: IntArray, second: IntArray, rng: np.random.Generator) -> FloatArray:
    weights = []
    for own, values in zip(m, (first, second), strict=True):
        reports = own.report(values, rng)
        supported = np.array([events(own).supports(reports, np.full(len(reports), v)) for v in range(own.k)])
        weights.append((supported - own.q) / (own.p - own.q))
    return np.asarray(weights[0] @ weights[1].T / len(first))


class _Held:
    def __init__(self, truth: FloatArray) -> None:
        self._truths = {
            "cells": [truth], "margins": [truth.sum(axis=1), truth.sum(axis=0)],
            "within": [truth / truth.sum(axis=1, keepdims=True)],
        }  # fmt: skip
        self._runs: dict[str, list[FloatArray]] = {name: [] for name in self._truths}

    def add(self, estimate: PairEstimate) -> None:
        found: dict[str, list[Shares]] = {
            "cells": [estimate.cells()], "margins": [estimate.margin(0), estimate.margin(1)], "within": [estimate.within(0)],
        }  # fmt: skip
        for name, parts in found.items():
            inside = [(s.low <= truth) & (truth <= s.high) for s, truth in zip(parts, self._truths[name], strict=True)]
            self._runs[name].append(np.concatenate([part.ravel() for part in inside]))

    def mean(self, name: str) -> float:
        return float(np.mean(self._runs[name]))

    def lowest(self, name: str) -> float:
        return float(np.mean(self._runs[name], axis=0).min())


def error_table(rows: list[Result]) -> Table:
    table = Table(title="Root of the mean squared error of a cell, in percentage points")
    for column in (
        "table",
        "ε",
        "people",
        "pair's mechanism",
        "joint",
        "pair, all people",
        "two reports",
        "two reports / joint",
    ):
        table.add_column(column, justify="right")
    for r in rows:
        errors = (f"{100 * error:.2f}" for error in (r.error, r.alone, r.product))
        table.add_row(
            f"{r.rows} × {r.columns}", f"{r.eps:g}", f"{r.people:,}", r.mechanism, *errors, f"{r.product / r.error:.1f}"
        )
    return table


def coverage_table(rows: list[Result]) -> Table:
    table = Table(title="95 % intervals that contain the truth, and alarms of the test at 5 %")
    heads = (
        "table",
        "ε",
        "people",
        "runs",
        "cells",
        "lowest cell",
        "sums",
        "within rows",
        "rows unknown",
        "size",
        "V",
        "power",
    )
    for column in heads:
        table.add_column(column, justify="right")
    for r in rows:
        shares = (f"{100 * share:.1f} %" for share in (r.cells, r.lowest, r.margins, r.within, r.unknown))
        tested = ("–" if share is None else f"{100 * share:.1f} %" for share in (r.size, r.power))
        size, power = tested
        table.add_row(
            f"{r.rows} × {r.columns}", f"{r.eps:g}", f"{r.people:,}", f"{r.runs:,}", *shares, size, f"{r.v:.2f}", power
        )
    return table
