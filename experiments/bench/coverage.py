"""Coverage of the 95 % intervals of every mechanism and estimator, for a step and for a window.

Every run draws n people from a fixed distribution over ten values. The people report at every step of the window, with the same
memo if the mechanism memoizes. Every estimator then estimates the distribution. Coverage is the share of intervals, over all
runs and values, that contain the value's true share. The true shares lie a few standard errors above zero. For a share of zero,
the maximum of the likelihood lies on the boundary, and no normal interval can be exact.
"""

import math
from collections.abc import Callable

import msgspec
import numpy as np
from rich.table import Table

from estimators import ibu, matrix_inversion, mle
from estimators.estimate import Estimate
from experiments.processes import worker_pool
from mechanisms import LONGITUDINAL, NAMES, CountTable, Mechanism, mechanism
from mechanisms.arguments import FloatArray

SHARES = np.array([0.20, 0.16, 0.13, 0.11, 0.09, 0.08, 0.07, 0.06, 0.05, 0.05])
PEOPLE, EPS, WINDOW = 20_000, 2.0, 4
NOMINAL = 0.95


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """One mechanism, estimator and span.

    Attributes:
        mechanism, estimator: the names of both.
        steps: 1 for a step, else the number of steps of the window.
        runs: number of repetitions.
        covered: share of intervals, over runs and values, that contain the true share.
        worst: coverage of the value whose coverage is farthest from 0.95.
        spread: standard deviation of the estimates over runs, divided by the mean published standard error; a mean over the
            values. Exact standard errors give 1.
    """

    mechanism: str
    estimator: str
    steps: int
    runs: int
    covered: float
    worst: float
    spread: float


ESTIMATORS: dict[str, Callable[[Mechanism, CountTable, int], Estimate]] = {
    "mi": lambda m, table, steps: matrix_inversion(m, table, steps=steps),
    "ibu": lambda m, table, steps: ibu(m, table, steps=steps),
    "mle": lambda m, table, steps: mle(m, table, steps=steps),
    "mle support": lambda m, table, steps: mle(m, table, steps=steps, likelihood="support"),
}


def observe(m: Mechanism, steps: int, rng: np.random.Generator) -> CountTable:
    """Count table of one run, in which the same people report at every step."""
    return m.tabulate(m.simulate(rng.choice(SHARES.size, PEOPLE, p=SHARES), rng, steps))


def measure_one(name: str, steps: int, runs: int, seed: int) -> list[Coverage]:
    """The coverage of all estimators of one mechanism, on the same runs."""
    k, rng = SHARES.size, np.random.default_rng([seed, NAMES.index(name), steps])
    m = mechanism(name, k=k, eps_inf=2 * EPS, eps_1=EPS) if name in LONGITUDINAL else mechanism(name, k=k, eps=EPS)
    found = {estimator: (np.empty((runs, k)), np.empty((runs, k))) for estimator in ESTIMATORS}
    for run in range(runs):
        table = observe(m, steps, rng)
        for estimator, (frequencies, standard_errors) in found.items():
            estimate = ESTIMATORS[estimator](m, table, steps)
            frequencies[run], standard_errors[run] = estimate.frequencies, estimate.standard_errors
    return [
        coverage_of(name, estimator, steps, frequencies, standard_errors)
        for estimator, (frequencies, standard_errors) in found.items()
    ]


def coverage_of(name: str, estimator: str, steps: int, f: FloatArray, errors: FloatArray) -> Coverage:
    """The coverage of the (runs, k) estimates `f` with standard errors `errors`."""
    held = (np.abs(f - SHARES) <= 1.959963984540054 * errors).mean(axis=0)
    return Coverage(
        mechanism=name,
        estimator=estimator,
        steps=steps,
        runs=len(f),
        covered=float(held.mean()),
        worst=float(held[np.abs(held - NOMINAL).argmax()]),
        spread=float((f.std(axis=0) / errors.mean(axis=0)).mean()),
    )


def measure(
    runs: int, seed: int, seen: Callable[[str], None], names: tuple[str, ...] = NAMES, processes: int | None = None
) -> list[Coverage]:
    """Measures every mechanism's coverage, for a step and for a window, on all cores.

    Args:
        runs: repetitions, at least 2.
        seed: seed of all randomness; the result does not depend on the number of cores.
        seen: called with the name of each finished task.
        names: the mechanisms.
        processes: number of worker processes; one for each core if left out.
    """
    tasks = [(name, steps, runs, seed) for name in names for steps in (1, WINDOW)]
    rows: list[Coverage] = []
    with worker_pool(processes, len(tasks)) as spread:
        for made in spread(_job, tasks):
            rows += made
            seen(f"{made[0].mechanism}, {made[0].steps} steps")
    return rows


def _job(task: tuple[str, int, int, int]) -> list[Coverage]:
    return measure_one(*task)


def coverage_table(rows: list[Coverage]) -> Table:
    """Table of the coverages: a line for each mechanism and estimator, with the step beside the window."""
    shown = Table("mechanism", "estimator", "step", "worst value", "spread", f"window of {WINDOW}", "worst value", "spread",
                  title=f"Share of intervals that hold the truth; {rows[0].runs} runs")  # fmt: skip
    by_span = {(row.mechanism, row.estimator, row.steps): row for row in rows}
    for name, estimator in dict.fromkeys((row.mechanism, row.estimator) for row in rows):
        cells = [
            text
            for steps in (1, WINDOW)
            for row in [by_span[name, estimator, steps]]
            for text in (f"{100 * row.covered:.2f} %", f"{100 * row.worst:.1f} %", f"{row.spread:.3f}")
        ]
        shown.add_row(name, estimator, *cells)
    return shown


def slack(runs: int, sigmas: float = 4.0) -> float:
    """Returns `sigmas` times the standard deviation of the coverage of `runs` independent 95 % intervals."""
    return sigmas * math.sqrt(NOMINAL * (1 - NOMINAL) / runs)
