"""Errors of the estimated distribution of a number: Square Wave beside OUE and OLH.

The truth is the histogram of the people's numbers, scaled to [0, 1], with the distribution function F, linear within each bin.

    wasserstein   ∫ |F̂ - F| dx
    quantile      mean of |F̂⁻¹(β) - F⁻¹(β)| over β = 0.1, 0.2, …, 0.9
    mean          |μ̂ - μ|
    variance      |σ̂² - σ²|, of the bins' middles

Source: Li et al. 2020, arXiv:1912.01051, §6.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import msgspec
import numpy as np
from rich.table import Table

from lab.drawn_tables import drawn_table
from lab.processes import worker_pool
from ldpstream.estimators import ibu, matrix_inversion, mle
from ldpstream.estimators.empirical_bayes import empirical_bayes
from ldpstream.estimators.estimate import Estimate
from ldpstream.estimators.maximum.ems import TOLERANCE, ems
from ldpstream.mechanisms import CountTable, Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray

DECILES = np.arange(1, 10) / 10
MEASURES = ("wasserstein", "quantile", "mean", "variance")


class Setting(msgspec.Struct, frozen=True):
    density: str
    bins: int
    people: int
    eps: float


class Row(msgspec.Struct, frozen=True):
    """Mean errors of one mechanism and estimator in one setting, over the runs."""

    setting: Setting
    method: str
    wasserstein: float
    quantile: float
    mean: float
    variance: float


def _beta(n: int, rng: np.random.Generator) -> FloatArray:
    return rng.beta(5, 2, n)


def _ages(n: int, rng: np.random.Generator) -> FloatArray:
    generation = rng.choice(3, n, p=[0.3, 0.45, 0.25])
    years = rng.normal(np.array([14.0, 38.0, 66.0])[generation], np.array([8.0, 11.0, 10.0])[generation])
    return _scaled(years, 0, 100)


def _weights(n: int, rng: np.random.Generator) -> FloatArray:
    heavier = rng.random(n) < 0.5
    return _scaled(rng.normal(np.where(heavier, 82.0, 66.0), np.where(heavier, 13.0, 11.0)), 30, 150)


def _incomes(n: int, rng: np.random.Generator) -> FloatArray:
    thousands = rng.lognormal(math.log(35), 0.6, n)
    rounded = rng.random(n) < 0.25
    return _scaled(np.where(rounded, np.clip(np.round(thousands / 10), 1, 10) * 10, thousands), 0, 150)


def _scaled(numbers: FloatArray, low: float, high: float) -> FloatArray:
    return np.clip((numbers - low) / (high - low), 0, 1)


DENSITIES: dict[str, Callable[[int, np.random.Generator], FloatArray]] = {
    "Beta(5, 2)": _beta,
    "ages": _ages,
    "weights": _weights,
    "incomes": _incomes,
}

Estimator = Callable[[Mechanism, CountTable], Estimate]
UNORDERED: dict[str, Estimator] = {
    "norm-sub": lambda m, table: matrix_inversion(m, table, post="norm-sub"),
    "ibu": lambda m, table: ibu(m, table, likelihood="support"),
    "mle": lambda m, table: mle(m, table, likelihood="support"),
    "eb": empirical_bayes,
    "eb ordered": partial(empirical_bayes, ordered=True),
}
WAVE: dict[str, Estimator] = {
    "ems": ems,
    "em": lambda m, table: ibu(m, table, delta=TOLERANCE * math.exp(m.eps_1) / table.n),  # the paper's rule for EM
    "norm-sub": lambda m, table: matrix_inversion(m, table, post="norm-sub"),
}
ESTIMATORS = {"SW": WAVE, "OUE": UNORDERED, "OLH": UNORDERED}


def settings(quick: bool) -> list[Setting]:
    bins, people, eps = ((32,), (10_000,), (1.0,)) if quick else ((32, 256), (10_000, 100_000), (0.5, 1.0, 2.0))
    return [Setting(*one) for one in product(DENSITIES, bins, people, eps)]


def errors(truth: FloatArray, found: FloatArray) -> tuple[float, ...]:
    """The `MEASURES` of an estimated histogram; both (k,) with sum 1 and no negative entry.

    >>> [round(error, 6) for error in errors(np.array([1.0, 0.0]), np.array([0.0, 1.0]))]
    [0.5, 0.5, 0.5, 0.0]
    """
    k = truth.size
    at = np.arange(k + 1) / k
    middles = (at[1:] + at[:-1]) / 2
    of_truth, of_found = (np.concatenate([[0.0], np.cumsum(f)]) for f in (truth, found))
    gap = of_found - of_truth
    left, right = np.abs(gap[:-1]), np.abs(gap[1:])
    crosses = gap[:-1] * gap[1:] < 0
    area = np.where(crosses, (left**2 + right**2) / np.maximum(left + right, 1e-300), left + right) / (2 * k)
    moved = [abs(_quantile(of_found, at, beta) - _quantile(of_truth, at, beta)) for beta in DECILES]
    means = [float(f @ middles) for f in (truth, found)]
    spreads = [float(f @ (middles - mean) ** 2) for f, mean in zip((truth, found), means, strict=True)]
    return float(area.sum()), float(np.mean(moved)), abs(means[1] - means[0]), abs(spreads[1] - spreads[0])


def _quantile(reached: FloatArray, at: FloatArray, beta: float) -> float:
    """The smallest x with F(x) >= β, for F linear between the edges."""
    i = min(max(int(np.searchsorted(reached, beta)), 1), at.size - 1)
    width = reached[i] - reached[i - 1]
    return float(at[i] if width <= 0 else at[i - 1] + (at[i] - at[i - 1]) * min(1.0, (beta - reached[i - 1]) / width))


def measure_one(setting: Setting, runs: int, seed: int) -> list[Row]:
    place = list(DENSITIES).index(setting.density)
    rng = np.random.default_rng([seed, place, setting.bins, setting.people, round(1000 * setting.eps)])
    found: dict[str, list[tuple[float, ...]]] = {}
    for _ in range(runs):
        numbers = DENSITIES[setting.density](setting.people, rng)
        bins = np.minimum((numbers * setting.bins).astype(np.int64), setting.bins - 1)
        people: IntArray = np.bincount(bins, minlength=setting.bins)
        for name, estimators in ESTIMATORS.items():
            m = mechanism(name, setting.bins, eps=setting.eps)
            table = drawn_table(m, people, rng)
            for estimator, estimate in estimators.items():
                f = estimate(m, table).frequencies
                found.setdefault(f"{name} {estimator}", []).append(errors(people / setting.people, f))
    return [Row(setting, method, *np.mean(of_runs, axis=0).tolist()) for method, of_runs in found.items()]


def measure(asked: list[Setting], runs: int, seed: int, seen: Callable[[str], None], processes: int | None = None) -> list[Row]:
    rows: list[Row] = []
    with worker_pool(processes, 0) as spread:
        for made in spread(_job, [(setting, runs, seed) for setting in asked]):
            rows += made
            seen(f"{made[0].setting.density}, {made[0].setting.bins} bins, ε = {made[0].setting.eps:g}")
    return rows


def _job(task: tuple[Setting, int, int]) -> list[Row]:
    return measure_one(*task)


def ratios(rows: list[Row], measure: str) -> dict[str, float]:
    logs: dict[str, list[float]] = {}
    for of_setting in _by_setting(rows):
        best = min(getattr(row, measure) for row in of_setting)
        for row in of_setting:
            logs.setdefault(row.method, []).append(math.log(getattr(row, measure) / best))
    means = {method: math.exp(float(np.mean(one))) for method, one in logs.items()}
    return dict(sorted(means.items(), key=lambda item: item[1]))


def _by_setting(rows: list[Row]) -> Iterator[list[Row]]:
    for setting in dict.fromkeys(row.setting for row in rows):
        yield [row for row in rows if row.setting == setting]


def summary_table(rows: list[Row]) -> Table:
    columns = {measure: ratios(rows, measure) for measure in MEASURES}
    n_settings = len(list(_by_setting(rows)))
    table = Table("method", *MEASURES, title=f"Error relative to the best method; geometric mean of {n_settings} settings")
    for method in columns["wasserstein"]:
        table.add_row(method, *(f"{columns[measure][method]:.2f}" for measure in MEASURES))
    return table
