"""Compares our best memoized mechanism with the mechanisms of `lab.bench.literature`, in 500 cells of k, ε∞, ε₁ and steps."""

import math
from collections.abc import Callable
from functools import cache
from itertools import product

import msgspec
from rich.table import Table

from lab.bench.literature import LITERATURE, MEMO_SENT, Figures
from ldpstream.mechanisms import Mechanism, mechanism
from ldpstream.mechanisms.registry import choose
from ldpstream.mechanisms.wording import plural
from ldpstream.output.terminal import table

SIZES = (2, 3, 4, 7, 10, 14, 20, 50, 100, 200)
LOSSES = tuple((times * eps_1, eps_1) for eps_1 in (0.25, 0.5, 1.0, 1.5, 2.0) for times in (2, 4))
STEPS = (1, 4, 8, 12, 24)
SHOWN = ((10, 2.0, 1.0), (50, 2.0, 1.0), (50, 4.0, 2.0))  # k, eps_inf, eps_1
OURS = ("L-GRR", "L-OSUE", "L-OLH", "L-SS")
WINDOW = STEPS[-1]
NEAR = 0.99


class Row(msgspec.Struct, frozen=True):
    """One mechanism at one k, ε∞ and ε₁.

    Attributes:
        one, window: n Var of one share, from one report and from the mean of `WINDOW` reports.
        guess, guess_all: chance of a right guess from one report and from any number of reports.
        weight: honest people whom one false report outweighs.
    """

    mechanism: str
    one: float
    window: float
    guess: float
    guess_all: float
    weight: float
    bytes: int


class Rival(msgspec.Struct, frozen=True):
    """A mechanism of the literature against one of `REFERENCES`.

    Attributes:
        cells: number of cells in which the mechanism exists.
        least, where: the smallest ratio of its variance to the reference's, and the cell.
        below: number of cells with a ratio below `NEAR`.
    """

    mechanism: str
    cells: int
    least: float
    where: str
    below: int


class Result(msgspec.Struct, frozen=True):
    rivals: dict[str, list[Rival]]
    shown: dict[str, list[Row]]


class Cell(msgspec.Struct, frozen=True):
    """A domain size, two losses, and the number of reports that are averaged."""

    k: int
    eps_inf: float
    eps_1: float
    steps: int

    def __str__(self) -> str:
        return f"k = {self.k}, ε∞ = {self.eps_inf:g}, ε₁ = {self.eps_1:g}, {plural(self.steps, 'step')}"


@cache
def figures(name: str, k: int, eps: float) -> Figures | None:
    return LITERATURE[name](k, eps)


def rounds(name: str, k: int, eps_inf: float, eps_1: float) -> tuple[Figures, Figures] | None:
    """The figures of one report and of any number of reports; None if the mechanism does not exist for this k."""
    one, lasting = figures(name, k, eps_1), figures(name, k, eps_1 if name == MEMO_SENT else eps_inf)
    return None if one is None or lasting is None else (one, lasting)


def over(one: float, lasting: float, steps: int) -> float:
    return lasting + (one - lasting) / steps


def best(cell: Cell) -> Mechanism:
    built = (mechanism(name, cell.k, eps_inf=cell.eps_inf, eps_1=cell.eps_1, steps=cell.steps) for name in OURS)
    return min(built, key=lambda m: m.variance(steps=cell.steps))


def automatic(cell: Cell) -> Mechanism:
    return choose(cell.k, eps_inf=cell.eps_inf, eps_1=cell.eps_1, steps=cell.steps)[0]


REFERENCES: dict[str, tuple[Callable[[Cell], Mechanism], bool]] = {  # ours, and whether all values are equally frequent
    "`auto`": (automatic, False),
    "our best memoized mechanism": (best, False),
    "our best memoized mechanism, if all values are equally frequent": (best, True),
}


def compare(said: Callable[[str], None] = lambda _: None) -> Result:
    cells = [Cell(k, *losses, steps) for k, losses, steps in product(SIZES, LOSSES, STEPS)]
    found: dict[str, list[Rival]] = {}
    for title, (ours, equal) in REFERENCES.items():
        said(title)
        reference = [ours(cell).variance(1 / cell.k if equal else 0, 1, cell.steps) for cell in cells]
        found[title] = [_rival(name, cells, reference, equal) for name in LITERATURE]
    shown = {f"k = {k}, ε∞ = {eps_inf:g}, ε₁ = {eps_1:g}": rows(k, eps_inf, eps_1) for k, eps_inf, eps_1 in SHOWN}
    return Result(found, shown)


def _rival(name: str, cells: list[Cell], reference: list[float], equal: bool) -> Rival:
    ratios = []
    for cell, ours in zip(cells, reference, strict=True):
        if (both := rounds(name, cell.k, cell.eps_inf, cell.eps_1)) is not None:
            one, lasting = (figures.equal if equal else figures.variance for figures in both)
            ratios.append((over(one, lasting, cell.steps) / ours, str(cell)))
    return Rival(name, len(ratios), *min(ratios), sum(ratio < NEAR for ratio, _ in ratios))


def rows(k: int, eps_inf: float, eps_1: float) -> list[Row]:
    found = [_ours(mechanism(name, k, eps_inf=eps_inf, eps_1=eps_1)) for name in OURS]
    for name in LITERATURE:
        if (both := rounds(name, k, eps_inf, eps_1)) is not None:
            one, lasting = both
            window = over(one.variance, lasting.variance, WINDOW)
            found.append(Row(name, one.variance, window, one.guess, lasting.guess, one.weight, math.ceil(one.bits / 8)))
    return found


def _ours(m: Mechanism) -> Row:
    one, window = (m.variance(0, 1, steps) for steps in (1, WINDOW))
    return Row(m.name, one, window, float(m.guess(1)), float(m.guess(math.inf)), m.outweighs(), m.row_bytes)


NOTE = (
    "HR is Hadamard response, PGR projective geometry response, MSS modular subset selection; ASS, AUE and ALH are the"
    " adaptive forms of subset selection, unary encoding and local hashing. We know of no published memoized form of these"
    " mechanisms, except dBitFlipPM. So the tables give each of them the best form that can exist: its variance for ε₁"
    " after one report, and its variance for ε∞ after any number of reports, each with its own parameters. A real form has"
    " one set for both. dBitFlipPM sends its memo, so all its reports together lose ε₁. A variance is that of the share of"
    " a value that nobody has, by which `auto` chooses. The tables also have the chance of a right guess from one and from"
    " all reports, and the honest people whom one false report outweighs. `auto` accepts 0.9 % more variance, for a smaller"
    " report or less weight of a false report. Sources and formulas are in `lab/bench/literature.py`."
)


def tables(result: Result) -> list[Table]:
    found = []
    for title, rivals in result.rivals.items():
        against = table(f"Variance divided by that of {title}", "mechanism", "cells", "least", f"below {NEAR}", "where")
        against.columns[-1].justify = "left"
        for one in rivals:
            against.add_row(one.mechanism, str(one.cells), f"{one.least:.3f}", str(one.below), one.where)
        found.append(against)
    columns = ("mechanism", "1 report", f"{WINDOW} reports", "guess, 1", "all", "weight", "bytes")
    for title, shown in result.shown.items():
        beside = table(f"n Var of one share, {title}", *columns)
        for row in shown:
            chances = (f"{100 * chance:.1f} %" for chance in (row.guess, row.guess_all))
            beside.add_row(row.mechanism, f"{row.one:.4g}", f"{row.window:.4g}", *chances, f"{row.weight:.3g}", str(row.bytes))
        found.append(beside)
    return found
