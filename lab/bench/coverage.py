"""Coverage of 95 % intervals by mechanism and estimator, for a step and for a window.

Coverage is the share of intervals, over all runs and values, that contain the value's share in the distribution.
"""

from collections.abc import Callable

import msgspec
import numpy as np
from rich.table import Table

from lab.bench import coverage_hard
from lab.bench.accuracy.shapes import FEW
from lab.bench.coverage_cells import CellCoverage, cells_table, few_table, lowest_table
from lab.drawn_tables import drawn_table
from lab.processes import worker_pool
from ldpstream.estimators import empirical_bayes, ibu, matrix_inversion, mle
from ldpstream.estimators.estimate import Estimate
from ldpstream.mechanisms import LONGITUDINAL, NAMES, CountTable, Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray

SHARES = np.array([0.20, 0.16, 0.13, 0.11, 0.09, 0.08, 0.07, 0.06, 0.05, 0.05])
PEOPLE, EPS, WINDOW = 20_000, 2.0, 4
NOMINAL = 0.95
TOP = 10


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """One mechanism, estimator and span.

    Attributes:
        steps: 1 for a step, else the number of steps of the window.
        covered: share of intervals, over runs and values, that contain the true share.
        worst: coverage of the value whose coverage is farthest from 0.95.
        spread: standard deviation of the estimates over runs, divided by the mean published standard error; a mean over the
            values.
        top: coverage of the ten values with the largest estimates of each run.
    """

    mechanism: str
    estimator: str
    shape: str = ""
    k: int = SHARES.size
    eps: float = EPS
    steps: int
    runs: int
    covered: float
    worst: float
    spread: float
    top: float


class Result(msgspec.Struct, frozen=True):
    spans: list[Coverage]
    cells: list[CellCoverage]
    hard: list[coverage_hard.Covered] = []


SHAPES: dict[str, Callable[[FloatArray], FloatArray]] = {  # from the ranks 1 … k to shares in proportion
    "Zipf": lambda rank: 1 / rank,
    "flat": lambda rank: np.ones(rank.size),
    "geometric": lambda rank: 0.95**rank,
    "half in one": lambda rank: np.where(rank == 1, rank.size - 1.0, 1.0),
}
SHAPED = [  # mechanism, ε, k, shape
    ("GRR", 1.0, 3, "Zipf"), ("OUE", 1.0, 10, "Zipf"), ("OUE", 1.0, 100, "Zipf"), ("OUE", 1.0, 500, "Zipf"),
    ("OUE", 1.0, 1000, "Zipf"), ("L-OSUE", 1.0, 1000, "geometric"), ("GRR", 4.0, 1000, "Zipf"), ("OUE", 1.0, 500, "flat"),
    ("OUE", 1.0, 1000, "flat"), ("OUE", 1.0, 1000, "half in one"),
]  # fmt: skip
SHAPED_PEOPLE = 50_000
PUBLISHED = ("eb", "mi", "ibu", "mle support")

ESTIMATORS: dict[str, Callable[[Mechanism, CountTable, int], Estimate]] = {
    "eb": lambda m, table, steps: empirical_bayes(m, table, steps=steps),
    "mi": lambda m, table, steps: matrix_inversion(m, table, steps=steps),
    "ibu": lambda m, table, steps: ibu(m, table, steps=steps),
    "mle": lambda m, table, steps: mle(m, table, steps=steps),
    "mle support": lambda m, table, steps: mle(m, table, steps=steps, likelihood="support"),
}


def observe(m: Mechanism, steps: int, rng: np.random.Generator) -> CountTable:
    return m.tabulate(m.simulate(rng.choice(SHARES.size, PEOPLE, p=SHARES), rng, steps))


def measure_one(name: str, steps: int, runs: int, seed: int) -> list[Coverage]:
    k, rng = SHARES.size, np.random.default_rng([seed, NAMES.index(name), steps])
    m = mechanism(name, k=k, eps_inf=2 * EPS, eps_1=EPS) if name in LONGITUDINAL else mechanism(name, k=k, eps=EPS)
    found = {estimator: Runs(SHARES) for estimator in ESTIMATORS}
    for _ in range(runs):
        table = observe(m, steps, rng)
        for estimator, seen in found.items():
            seen.add(ESTIMATORS[estimator](m, table, steps))
    return [seen.coverage(name, estimator, steps) for estimator, seen in found.items()]


def measure_shape(number: int, runs: int, seed: int) -> list[Coverage]:
    name, eps, k, shape = SHAPED[number]
    rng = np.random.default_rng([seed, len(NAMES) + number, 1])
    m = mechanism(name, k=k, eps_inf=2 * eps, eps_1=eps) if name in LONGITUDINAL else mechanism(name, k=k, eps=eps)
    shares = SHAPES[shape](np.arange(1.0, k + 1))
    shares = shares / shares.sum()
    found = {estimator: Runs(shares) for estimator in PUBLISHED}
    for _ in range(runs):
        table = drawn_table(m, rng.multinomial(SHAPED_PEOPLE, shares), rng)
        for estimator, seen in found.items():
            seen.add(ESTIMATORS[estimator](m, table, 1))
    rows = [seen.coverage(name, estimator, 1) for estimator, seen in found.items()]
    return [msgspec.structs.replace(row, shape=shape, k=k, eps=eps) for row in rows]


class Runs:
    def __init__(self, shares: FloatArray) -> None:
        self._shares, self._runs, self._top = shares, 0, 0.0
        self._held, self._errors, self._moved, self._squared = (np.zeros(shares.size) for _ in range(4))

    def add(self, estimate: Estimate) -> None:
        low, high = estimate.interval(NOMINAL)
        moved = estimate.frequencies - self._shares
        self._runs += 1
        held = (low <= self._shares) & (self._shares <= high)
        self._held += held
        self._top += held[np.argsort(-estimate.frequencies, kind="stable")[:TOP]].mean()
        self._errors += estimate.standard_errors
        self._moved += moved
        self._squared += moved**2

    def coverage(self, name: str, estimator: str, steps: int) -> Coverage:
        n, held = self._runs, self._held / self._runs
        deviation = np.sqrt(np.maximum(self._squared / n - (self._moved / n) ** 2, 0))
        return Coverage(
            mechanism=name,
            estimator=estimator,
            steps=steps,
            runs=n,
            covered=float(held.mean()),
            worst=float(held[np.abs(held - NOMINAL).argmax()]),
            spread=float((deviation / (self._errors / n)).mean()),
            top=float(self._top / n),
        )


def measure(
    runs: int, seed: int, seen: Callable[[str], None], names: tuple[str, ...] = NAMES, processes: int | None = None
) -> list[Coverage]:
    tasks: list[tuple[str | int, int, int, int]] = [(name, steps, runs, seed) for name in names for steps in (1, WINDOW)]
    tasks += [(number, 1, runs, seed) for number in range(len(SHAPED))] if names == NAMES else []
    rows: list[Coverage] = []
    with worker_pool(processes, len(tasks)) as spread:
        for made in spread(_job, tasks):
            rows += made
            seen(f"{made[0].mechanism}, {made[0].steps} steps")
    return rows


def _job(task: tuple[str | int, int, int, int]) -> list[Coverage]:
    what, steps, runs, seed = task
    return measure_one(what, steps, runs, seed) if isinstance(what, str) else measure_shape(what, runs, seed)


def coverage_table(rows: list[Coverage]) -> Table:
    shown = Table("mechanism", "estimator", "step", "worst value", "spread", f"window of {WINDOW}", "worst value", "spread",
                  title=f"Share of intervals that hold the truth; {rows[0].runs} runs")  # fmt: skip
    by_span = {(row.mechanism, row.estimator, row.steps): row for row in rows if not row.shape}
    for name, estimator in dict.fromkeys((name, estimator) for name, estimator, _ in by_span):
        cells = [
            text
            for steps in (1, WINDOW)
            for row in [by_span[name, estimator, steps]]
            for text in (f"{100 * row.covered:.2f} %", f"{100 * row.worst:.1f} %", f"{row.spread:.3f}")
        ]
        shown.add_row(name, estimator, *cells)
    return shown


def shaped_table(rows: list[Coverage]) -> Table:
    shown = Table("mechanism", "ε", "k", "shares", "estimator", "all values", "ten largest", "worst value",
                  title=f"Share of intervals that hold the truth; {SHAPED_PEOPLE:,} people, {rows[0].runs} runs")  # fmt: skip
    for row in rows:
        if row.shape:
            cells = (f"{100 * share:.1f} %" for share in (row.covered, row.top, row.worst))
            shown.add_row(row.mechanism, f"{row.eps:g}", str(row.k), row.shape, row.estimator, *cells)
    return shown


def tables(result: Result) -> list[Table]:
    grid = [row for row in result.cells if row.cell.shape not in FEW]
    few = [row for row in result.cells if row.cell.shape in FEW]
    hard = coverage_hard.tables(result.hard)
    if not grid:
        return hard
    shown = [coverage_table(result.spans), shaped_table(result.spans), cells_table(grid), lowest_table(grid), *hard]
    return [*shown, few_table(few), lowest_table(few, "Few values and few people: cells with the lowest coverage")]
