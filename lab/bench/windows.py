"""Windows of memoized reports: L-SS beside the other candidates of ``auto``, `auto` now and formerly, and errors on real data.

The former `auto` compared single reports of L-GRR, L-OLH and L-OSUE, and accepted 3 % more variance. Variances are
exact, for a share of 0; the measured errors are mean squared errors over all values, of people with the answers of the UCI
census "Adult".
"""

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from rich.table import Table

from lab.datasets import adult_numbers, adult_occupations
from ldpstream.mechanisms import Mechanism, mechanism
from ldpstream.mechanisms.registry import choose, lightest
from ldpstream.output.terminal import table

PAIRS = ((0.5, 0.25), (1.0, 0.5), (2.0, 1.0), (4.0, 2.0), (4.0, 1.0), (8.0, 2.0))
SHOWN = (5, 7, 10, 14, 20, 30, 50, 100, 200)
FORMER = ("L-GRR", "L-OLH", "L-OSUE")
CELLS = [
    (k, ratio * eps_1, eps_1, steps)
    for k in (2, 3, 4, 6, 8, 10, 15, 20, 30, 50, 100, 200)
    for eps_1 in (0.25, 0.5, 1.0, 2.0)
    for ratio in (2.0, 4.0)
    for steps in (1, 4, 8, 12, 24)
]  # 480 cells
MANY = 10**9  # steps that stand for infinitely many


class Ratio(msgspec.Struct, frozen=True):
    """V_T of L-SS divided by that of the best of the three former candidates, and the two set sizes."""

    k: int
    eps_inf: float
    eps_1: float
    steps: int
    ratio: float
    memo_size: int
    omega: int


class Measured(msgspec.Struct, frozen=True):
    """Mean squared errors of the estimates of a window, with `auto` as it was and as it is."""

    dataset: str
    k: int
    people: int
    former: str
    now: str
    expected: float
    measured: float


def former(k: int, eps_inf: float, eps_1: float) -> Mechanism:
    built = [mechanism(name, k, eps_inf=eps_inf, eps_1=eps_1) for name in FORMER]
    near = [m for m in built if m.variance() <= 1.03 * min(one.variance() for one in built)]
    return lightest([(m, 1.0) for m in near])


def ratios() -> list[Ratio]:
    found = []
    for eps_inf, eps_1 in PAIRS:
        for k in SHOWN:
            rivals = [mechanism(name, k, eps_inf=eps_inf, eps_1=eps_1) for name in FORMER]
            for steps in (1, 8, 24, MANY):
                own = mechanism("L-SS", k, eps_inf=eps_inf, eps_1=eps_1, steps=steps)
                needed = own.parameters()
                assert needed.memo_size is not None
                assert needed.omega is not None
                least = min(m.variance(steps=steps) for m in rivals)
                share = own.variance(steps=steps) / least
                found.append(Ratio(k, eps_inf, eps_1, steps, share, needed.memo_size, needed.omega))
    return found


def choices() -> list[float]:
    """V_T of `auto` divided by that of the former `auto`, for every cell."""
    return [
        choose(k, eps_inf=eps_inf, eps_1=eps_1, steps=steps)[0].variance(steps=steps)
        / former(k, eps_inf, eps_1).variance(steps=steps)
        for k, eps_inf, eps_1, steps in CELLS
    ]


def measure(folder: Path, runs: int, seed: int, steps: int = 24) -> list[Measured]:
    """Simulates every person's reports of a window, with ε∞ = 2 and ε₁ = 1. The people are the same in all runs."""
    rng, found = np.random.default_rng(seed), []
    people = {"age": adult_numbers(folder, 0), "occupation": adult_occupations(folder), "hours": adult_numbers(folder, 12)}
    for name, counts in people.items():
        k, n = counts.size, int(counts.sum())
        shares, values = counts / n, np.repeat(np.arange(k), counts)
        two = former(k, 2.0, 1.0), choose(k, eps_inf=2.0, eps_1=1.0, steps=steps)[0]
        noise = [float((m.reading.inversion_variances(shares, n, steps) - shares * (1 - shares) / n).mean()) for m in two]
        tables = [[m.tabulate(m.simulate(values, rng, steps)) for _ in range(runs)] for m in two]
        errors = [
            [float(((m.reading.inversion(t) - shares) ** 2).mean()) for t in own] for m, own in zip(two, tables, strict=True)
        ]
        measured = float(np.mean(errors[1]) / np.mean(errors[0]))
        found.append(Measured(name, k, n, two[0].name, two[1].name, noise[1] / noise[0], measured))
    return found


def ratio_table(rows: Sequence[Ratio]) -> Table:
    shown = table("V_T of L-SS / best of L-GRR, L-OLH, L-OSUE; beside ε∞ and ε₁: m,w", "T", *(str(k) for k in SHOWN))
    for eps_inf, eps_1 in PAIRS:
        of_pair = [row for row in rows if (row.eps_inf, row.eps_1) == (eps_inf, eps_1)]
        shown.add_row(f"{eps_inf:g}, {eps_1:g}", *(f"{r.memo_size},{r.omega}" for r in of_pair if r.steps == 1))
        for steps in (1, 8, 24, MANY):
            name = "∞" if steps == MANY else str(steps)
            shown.add_row(name, *(f"{row.ratio:.2f}" for row in of_pair if row.steps == steps))
    return shown


def choice_table(found: Sequence[float]) -> Table:
    shown = table(
        f"V_T of auto / V_T of the former auto, in {len(found)} cells", "T", "least", "median", "largest", "below 0.97"
    )
    for steps in sorted({cell[3] for cell in CELLS}):
        cells = np.array([ratio for ratio, cell in zip(found, CELLS, strict=True) if cell[3] == steps])
        numbers = cells.min(), np.median(cells), cells.max()
        shown.add_row(str(steps), *(f"{x:.3f}" for x in numbers), f"{(cells < 0.97).mean():.0%}")
    shown.caption = f"geometric mean {math.exp(float(np.log(found).mean())):.3f}"
    return shown


def measured_table(rows: Sequence[Measured]) -> Table:
    title = "Mean squared error of a window of 24 steps, ε∞ = 2, ε₁ = 1: now / formerly"
    shown = table(title, "data", "k", "people", "formerly", "now", "expected", "measured")
    for row in rows:
        ratios_ = f"{row.expected:.3f}", f"{row.measured:.3f}"
        shown.add_row(row.dataset, str(row.k), f"{row.people:,}", row.former, row.now, *ratios_)
    return shown
