"""The default estimate of a number from Square Wave beside EMS and Haar wavelets: errors, and coverage of 95 % intervals.

Numbers are scaled to [0, 1]. The truth is the distribution from which the people are drawn.

    rmse          root of the mean, over the runs, of the sum of the squared errors of the shares
    wasserstein   ∫ |F̂ - F| dx
    q50, q90, q99 absolute error of the median and of percentiles; F is linear within a bin
    mean          absolute error of the mean
"""

import math
from collections.abc import Callable
from itertools import product

import msgspec
import numpy as np
from rich.table import Table
from scipy import stats

from lab.bench.wavelets import wavelets
from lab.drawn_tables import drawn_table
from lab.processes import worker_pool
from ldpstream.estimators import empirical_bayes, ems
from ldpstream.estimators.quantiles import PERCENTILES, Number, mean, quantiles
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.families.square_wave import SquareWave

MEASURES = ("rmse", "wasserstein", "q50", "q90", "q99", "mean")
INTERVALS = ("shares", "mean", "q50", "q90", "q99")
Shape = Callable[[int], FloatArray]


class Cell(msgspec.Struct, frozen=True):
    shape: str
    k: int
    n: int
    eps: float


class Row(msgspec.Struct, frozen=True):
    cell: Cell
    errors: dict[str, float]
    ems: dict[str, float]
    wavelets: dict[str, float]
    covered: dict[str, float]
    width: dict[str, float]


def density(k: int, cdf: Callable[[FloatArray], FloatArray]) -> FloatArray:
    f = np.diff(cdf(np.linspace(0, 1, k + 1)))
    return np.asarray(f / f.sum())


def normals(*parts: tuple[float, float, float]) -> Callable[[FloatArray], FloatArray]:
    return lambda x: np.asarray(sum(weight * stats.norm.cdf(x, centre, sd) for weight, centre, sd in parts))


def without(f: FloatArray, *holes: tuple[float, float]) -> FloatArray:
    x = (np.arange(f.size) + 0.5) / f.size
    kept = np.where(np.any([(low < x) & (x < high) for low, high in holes], axis=0), 0.0, f)
    return np.asarray(kept / kept.sum())


def heaped(f: FloatArray, every: float, part: float) -> FloatArray:
    step = max(2, round(f.size * every))
    heaps = np.arange(step // 2, f.size, step)
    nearest = heaps[np.abs(heaps - np.arange(f.size)[:, None]).argmin(axis=1)]
    return np.asarray((1 - part) * f + np.bincount(nearest, part * f, f.size))


def with_spikes(f: FloatArray, *spikes: tuple[float, float]) -> FloatArray:
    result = (1 - sum(part for _, part in spikes)) * f
    for place, part in spikes:
        result[int(place * f.size)] += part
    return np.asarray(result)


def uneven(f: FloatArray, by: float) -> FloatArray:
    """Multiplies the shares by log-normal factors with this standard deviation of the logarithm."""
    factors = np.exp(by * np.random.default_rng([18, f.size]).standard_normal(f.size))
    return np.asarray(f * factors / (f @ factors))


TUNED: dict[str, Shape] = {
    "smooth": lambda k: density(k, stats.beta(5, 2).cdf),
    "bimodal": lambda k: density(k, normals((0.5, 0.3, 0.08), (0.5, 0.65, 0.1))),
    "hole": lambda k: without(density(k, stats.beta(2, 2).cdf), (0.35, 0.55)),
    "heaps": lambda k: heaped(density(k, normals((0.5, 0.3, 0.09), (0.5, 0.45, 0.11))), 0.05, 0.5),
    "spike": lambda k: with_spikes(density(k, normals((1, 0.5, 0.15))), (0.3, 0.2)),
    "uniform": lambda k: np.full(k, 1 / k),
    "two values": lambda k: with_spikes(np.full(k, 1 / k), (0.2, 0.6), (0.7, 0.38)),
    "heavy tail": lambda k: density(k, stats.lognorm(0.8, scale=0.12).cdf),
}
HELD_OUT: dict[str, Shape] = {
    "ages": lambda k: density(k, normals((0.3, 0.14, 0.08), (0.45, 0.38, 0.11), (0.25, 0.66, 0.1))),
    "narrow": lambda k: density(k, normals((1, 0.62, 0.04))),
    "two holes": lambda k: without(density(k, lambda x: x + x**2 / 2), (0.15, 0.3), (0.6, 0.85)),
    "tens": lambda k: heaped(density(k, stats.gamma(3, scale=0.1).cdf), 0.1, 0.35),
    "many zeros": lambda k: with_spikes(density(k, stats.expon(scale=0.2).cdf), (0, 0.35)),
    "part of the range": lambda k: density(k, lambda x: np.clip((x - 0.25) / 0.5, 0, 1)),
    "three values": lambda k: with_spikes(density(k, normals((1, 0.5, 0.2))), (0.1, 0.5), (0.5, 0.3), (0.9, 0.15)),
    "power law": lambda k: density(k, stats.lomax(1.5, scale=0.04).cdf),
}
HARD: dict[str, Shape] = {  # the shapes for which intervals were worst
    "irregular": lambda k: uneven(density(k, stats.beta(3, 4).cdf), 0.15),
    "round numbers": lambda k: heaped(density(k, stats.gamma(4, scale=0.1).cdf), 0.05, 1.0),
    "far group": lambda k: with_spikes(density(k, normals((1, 0.25, 0.08))), (0.95, 0.014)),
}
SHAPES = TUNED | HELD_OUT | HARD
GROUPS = {"tuned and held-out shapes": [*TUNED, *HELD_OUT], "held-out shapes": [*HELD_OUT], "hard shapes": [*HARD]}


def cells(quick: bool) -> list[Cell]:
    grid = ((16,), (1000,), (1.0,)) if quick else ((64,), (1000, 10_000, 100_000), (0.5, 1.0, 2.0, 4.0))
    shapes = ("smooth", "ages") if quick else SHAPES
    return [Cell(*one) for one in product(shapes, *grid)]


def quantile(f: FloatArray, q: float) -> float:
    reached = np.concatenate([[0.0], np.cumsum(f) / f.sum()])
    i = min(max(int(np.searchsorted(reached, q)), 1), f.size)
    return float((i - 1 + min(1.0, (q - reached[i - 1]) / max(reached[i] - reached[i - 1], 1e-300))) / f.size)


def errors(truth: FloatArray, found: FloatArray, mean_found: float | None = None) -> list[float]:
    middles = (np.arange(truth.size) + 0.5) / truth.size
    moved = [abs(quantile(found, q) - quantile(truth, q)) for q in PERCENTILES]
    own_mean = float(found @ middles) if mean_found is None else mean_found
    area = float(np.abs(np.cumsum(found - truth)).mean())
    return [float(((found - truth) ** 2).sum()), area, *moved, abs(own_mean - float(truth @ middles))]


def measure_one(cell: Cell, runs: int, seed: int) -> Row:
    f, m, edges = SHAPES[cell.shape](cell.k), SquareWave(cell.k, cell.eps), np.linspace(0, 1, cell.k + 1)
    rng = np.random.default_rng([seed, list(SHAPES).index(cell.shape), cell.k, cell.n, round(1000 * cell.eps)])
    truth = [float(f @ (edges[1:] + edges[:-1]) / 2), *(quantile(f, q) for q in PERCENTILES)]
    own, of_ems, of_wavelets, covered, widths = [], [], [], [], []
    for _ in range(runs):
        people = rng.multinomial(cell.n, f)
        table = drawn_table(m, people, rng)
        estimate = empirical_bayes(m, table, ordered=True)
        average, percentiles = mean(estimate, edges), quantiles(estimate, edges)
        assert average is not None
        assert percentiles is not None
        numbers: list[Number] = [average, *percentiles]
        low, high = estimate.interval()
        own.append(errors(f, estimate.frequencies, average.value))
        of_ems.append(errors(f, ems(m, table).frequencies))
        of_wavelets.append(errors(f, wavelets(people, cell.eps, rng)))
        hit = [x.low - 1e-9 <= t <= x.high + 1e-9 for x, t in zip(numbers, truth, strict=True)]
        covered.append([float(((low <= f) & (f <= high)).mean()), *hit])
        widths.append([float((high - low).mean()), *(x.high - x.low for x in numbers)])
    found = [_means(own), _means(of_ems), _means(of_wavelets)]
    return Row(cell, *found, *(dict(zip(INTERVALS, np.mean(x, axis=0).tolist(), strict=True)) for x in (covered, widths)))


def _means(of_runs: list[list[float]]) -> dict[str, float]:
    means = np.mean(of_runs, axis=0)
    means[0] = math.sqrt(means[0])
    return dict(zip(MEASURES, means.tolist(), strict=True))


def measure(asked: list[Cell], runs: int, seed: int, seen: Callable[[str], None], processes: int | None = None) -> list[Row]:
    rows = []
    with worker_pool(processes, 0) as spread:
        for row in spread(_job, [(cell, runs, seed) for cell in asked]):
            rows.append(row)
            seen(f"{row.cell.shape}, k = {row.cell.k}, n = {row.cell.n:,}, ε = {row.cell.eps:g}")
    return rows


def _job(task: tuple[Cell, int, int]) -> Row:
    return measure_one(*task)


def ratio_table(rows: list[Row], name_of_rival: str = "EMS") -> Table:
    table = Table("shape", *MEASURES, "worst rmse", title=f"Error of the default estimate, relative to {name_of_rival}")
    for name in [*dict.fromkeys(row.cell.shape for row in rows), *GROUPS]:
        chosen = _of(rows, name)
        if chosen:
            rivals = [row.ems if name_of_rival == "EMS" else row.wavelets for row in chosen]
            ratios = {
                m: [row.errors[m] / max(one[m], 1e-12) for row, one in zip(chosen, rivals, strict=True)] for m in MEASURES
            }
            means = (f"{math.exp(float(np.mean(np.log(np.maximum(ratios[m], 1e-12))))):.2f}" for m in MEASURES)
            worst = max(zip(ratios["rmse"], chosen, strict=True), key=lambda one: one[0])
            where = f"{worst[0]:.2f} (n = {worst[1].cell.n:,}, ε = {worst[1].cell.eps:g})"
            table.add_row(name, *means, where)
    return table


def coverage_table(rows: list[Row]) -> Table:
    table = Table("shape", *INTERVALS, title="Coverage of the 95 % intervals, % (worst cell)")
    for name in [*dict.fromkeys(row.cell.shape for row in rows), *GROUPS]:
        chosen = _of(rows, name)
        if chosen:
            found = {kind: [100 * row.covered[kind] for row in chosen] for kind in INTERVALS}
            table.add_row(name, *(f"{np.mean(x):.1f} ({min(x):.0f})" for x in found.values()))
    return table


def _of(rows: list[Row], name: str) -> list[Row]:
    return [row for row in rows if row.cell.shape in GROUPS.get(name, (name,))]
