"""Measures errors of our and another library's estimators, by mechanism, domain, ε, distribution and population.

A setting's error is the mean squared error over its values, averaged over repetitions with fresh values and fresh reports. The
memoized mechanisms report once, with ε∞ = 2 ε₁ and ε₁ = ε. The populations are the five synthetic populations of Arcolezi,
Cerna and Palamidessi 2023, §4.1: n samples, cut into k bins of equal width.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np

from estimators import ibu, matrix_inversion, mle, post_process
from estimators.post_processing import NAMES as POST_NAMES
from experiments.error_measures import mse
from experiments.peers.environment import accuracy_of_peers
from experiments.processes import worker_pool
from mechanisms import LONGITUDINAL, NAMES, CountTable, Mechanism, mechanism
from mechanisms.arguments import FloatArray, IntArray

DOMAINS = (2, 10, 100, 1000)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
SIZES = (20_000, 100_000)
PEER_DOMAINS, PEER_EPSILONS, PEER_SIZE = (10, 100), (1.0, 4.0), 20_000
SHAPES: dict[str, Callable[[np.random.Generator, int], FloatArray]] = {
    "gaussian": lambda rng, n: rng.normal(1000, 10, n),
    "exponential": lambda rng, n: rng.exponential(1, n),
    "uniform": lambda rng, n: rng.uniform(100, 10_000, n),
    "poisson": lambda rng, n: rng.poisson(5, n).astype(float),
    "triangular": lambda rng, n: rng.triangular(100, 4500, 10_000, n),
}
HASHED = ("BLH", "OLH", "L-BLH", "L-OLH")


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting: mechanism, k values, ε, shape of the population and n reports."""

    mechanism: str
    k: int
    eps: float
    shape: str
    n: int


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Mean squared errors in one setting, by the estimator's name; `best` is our estimator with the smallest error.

    The names of our estimators: `mi`, `mi` with each post-processing, `ibu` (at most 10 000 iterations), and `mle`. As in the
    literature, `ibu` and `mle` use the support counts. Local hashing also has `ibu` and `mle` of the exact likelihood. The
    names of another library's estimators begin with the library's name and a colon.
    """

    setting: Setting
    mse: dict[str, float]
    best: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """All rows, the number of repetitions, and the seed."""

    repeats: int
    seed: int
    rows: list[Row]


def settings(quick: bool = False) -> list[Setting]:
    """The whole grid, or with `quick` a small grid that runs in seconds."""
    domains, epsilons, sizes = ((10, 100), (1.0,), (20_000,)) if quick else (DOMAINS, EPSILONS, SIZES)
    return [
        Setting(mechanism=name, k=k, eps=eps, shape=shape, n=n)
        for name, k, eps, n, shape in itertools.product(NAMES, domains, epsilons, sizes, SHAPES)
    ]


def population(shape: str, k: int, n: int, rng: np.random.Generator) -> IntArray:
    """(n,) values in [0, k): samples of a shape, cut into k bins of equal width from the smallest to the largest.

    If all samples are equal, they are all in the first bin.
    """
    samples = SHAPES[shape](rng, n)
    width = np.ptp(samples) / k or 1.0
    return np.asarray(np.minimum((samples - samples.min()) / width, k - 1).astype(np.int64))


def build(setting: Setting) -> Mechanism:
    """The mechanism of a setting."""
    if setting.mechanism in LONGITUDINAL:
        return mechanism(setting.mechanism, k=setting.k, eps_inf=2 * setting.eps, eps_1=setting.eps)
    return mechanism(setting.mechanism, k=setting.k, eps=setting.eps)


def tabulate(m: Mechanism, values: IntArray, rng: np.random.Generator) -> CountTable:
    """Count table of one report of each value; made in parts, so that the bits of a large domain fit into memory."""
    table = m.empty_table()
    for part in np.array_split(values, max(1, len(values) * m.report_dtype.itemsize // 2**23)):
        table += m.tabulate(m.simulate(part, rng))
    return table


def estimates(m: Mechanism, table: CountTable, exact: bool = True) -> Iterator[tuple[str, FloatArray]]:
    """Yields every estimator's name and frequencies; without `exact`, yields only what the service publishes."""
    raw = matrix_inversion(m, table)
    for method in POST_NAMES:
        name = "mi" if method == "none" else f"mi {method}"
        yield name, post_process(raw.frequencies, method, variance=raw.standard_errors**2)
    yield "ibu", ibu(m, table, likelihood="support").frequencies
    yield "mle", mle(m, table, likelihood="support").frequencies
    if exact and m.name in HASHED:
        yield "ibu exact", ibu(m, table, likelihood="exact").frequencies
        yield "mle exact", mle(m, table, likelihood="exact").frequencies


def errors(setting: Setting, repeats: int, seed: int) -> Row:
    """The row of one setting; the row does not depend on other settings."""
    digest = hashlib.sha256(msgspec.json.encode(setting)).digest()
    rng = np.random.default_rng([seed, *digest[:8]])
    m, total = build(setting), {}  # type: Mechanism, dict[str, float]
    for _ in range(repeats):
        values = population(setting.shape, setting.k, setting.n, rng)
        truth = np.bincount(values, minlength=setting.k) / setting.n
        for name, frequencies in estimates(m, tabulate(m, values, rng)):
            total[name] = total.get(name, 0.0) + mse(truth, frequencies) / repeats
    return Row(setting=setting, mse=total, best=min(total, key=lambda name: total[name]))


def measure(
    grid: list[Setting], repeats: int, seed: int, peers: bool, seen: Callable[[str], None], processes: int | None = None
) -> Result:
    """Measures every row of the grid, on all cores; the number of cores does not change the results.

    Args:
        grid: the settings.
        repeats: repetitions of each setting, at least 1.
        seed: seed of all randomness.
        peers: True to measure multi-freq-ldpy too, on the library's own reports from the same kind of population. The library
            runs once for each setting that takes a reasonable time: k of 10 and 100, ε of 1 and 4, n = 20 000.
        seen: called with a line of progress.
        processes: number of worker processes; one for each core if left out.

    Raises:
        PeersError: if the other library cannot be installed or run.
    """
    rows: dict[Setting, Row] = {}
    with worker_pool(processes, len(grid)) as spread:
        for row in spread(_job, [(setting, repeats, seed) for setting in grid]):
            rows[row.setting] = row
            seen(f"{len(rows)} of {len(grid)} settings")
    if peers:
        for setting, found in _peers(grid, seed, seen):
            row = rows[setting]
            rows[setting] = msgspec.structs.replace(row, mse={**row.mse, **found})
    return Result(repeats=repeats, seed=seed, rows=[rows[setting] for setting in grid])


def _job(task: tuple[Setting, int, int]) -> Row:
    return errors(*task)


def _peers(grid: list[Setting], seed: int, seen: Callable[[str], None]) -> Iterator[tuple[Setting, dict[str, float]]]:
    rng = np.random.default_rng(seed)
    asked: list[Setting] = []
    tasks: list[dict[str, Any]] = []
    for setting in grid:
        if setting.k in PEER_DOMAINS and setting.eps in PEER_EPSILONS and setting.n == PEER_SIZE:
            counts = np.bincount(population(setting.shape, setting.k, setting.n, rng), minlength=setting.k)
            asked.append(setting)
            tasks.append({"mechanism": setting.mechanism, "k": setting.k, "eps": setting.eps, "counts": counts.tolist()})
    for line in accuracy_of_peers(tasks, seen):
        if "error" not in line:
            task = tasks[line["task"]]
            truth = np.array(task["counts"]) / sum(task["counts"])
            found = {f"multi-freq-ldpy: {name}": mse(truth, frequencies) for name, frequencies in line["estimates"].items()}
            yield asked[line["task"]], found
