"""Jobs for the mixtures of the free-will privacy paper, and the gathered results for the paper's figures and tables."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from lab.papers.free_will_mixes import distances
from lab.papers.reproduction import Job, Plan
from ldpstream.mechanisms.arguments import FloatArray


@dataclass(frozen=True, slots=True)
class Sizes:
    people: tuple[int, ...]
    repeats: int
    together: int


FULL = (1000, 3000, 10_000, 30_000, 100_000)
LINE, GRID, BITS = Sizes(FULL, 10, 5), Sizes(FULL, 5, 2), Sizes(FULL, 10, 2)
QUICK_LINE, QUICK_GRID = Sizes((1000, 10_000), 2, 2), Sizes((10_000,), 2, 2)


def sizes(plan: Plan, mix: str) -> Sizes:
    grid = mix.endswith("grid")
    if plan.quick:
        return QUICK_GRID if grid else QUICK_LINE
    return GRID if grid else BITS if mix.startswith("rappor") else LINE


def jobs(plan: Plan, mixes: Sequence[str]) -> list[Job]:
    return [
        Job(distances, {"mix": name, "n": n, "first": first, "repeats": repeats, "seed": plan.seed})
        for mix in mixes
        for name, n, first, repeats in _cut(plan, mix)
    ]


def gather(plan: Plan, mixes: Sequence[str], results: Sequence[dict[str, list[float]]]) -> dict[str, "Runs"]:
    found: dict[str, Runs] = {}
    left = iter(results)
    for mix in mixes:
        people = sizes(plan, mix).people
        parts: dict[int, list[dict[str, list[float]]]] = {n: [] for n in people}
        for _, n, _, _ in _cut(plan, mix):
            parts[n].append(next(left))
        methods = parts[people[0]][0]
        found[mix] = Runs(
            people, {method: np.array([[e for part in parts[n] for e in part[method]] for n in people]) for method in methods}
        )
    return found


def _cut(plan: Plan, mix: str) -> list[tuple[str, int, int, int]]:
    how = sizes(plan, mix)
    name = f"{mix}-small" if plan.quick and mix.startswith("shokri") else mix
    return [
        (name, n, first, min(how.together, how.repeats - first))
        for n in how.people
        for first in range(0, how.repeats, how.together)
    ]


@dataclass(frozen=True, slots=True)
class Runs:
    """Distances of a mixture's estimates from the truth: for each method, (people, repetitions)."""

    people: tuple[int, ...]
    distances: dict[str, FloatArray]

    def exists(self, method: str) -> bool:
        return not np.isnan(self.distances[method]).any()

    def mean(self, method: str) -> FloatArray:
        return np.asarray(self.distances[method].mean(axis=1))

    def sd(self, method: str) -> FloatArray:
        return np.asarray(self.distances[method].std(axis=1, ddof=1))

    def wins(self, better: str, worse: str) -> tuple[float, float]:
        difference = self.distances[worse] - self.distances[better]
        mean, error = difference.mean(axis=1), difference.std(axis=1, ddof=1) / math.sqrt(difference.shape[1])
        chance = norm.cdf(mean / np.maximum(error, 1e-300))
        return float((mean > 0).mean()), float(math.sqrt((chance * (1 - chance)).sum()) / len(self.people))

    def ratio(self, method: str, reference: str) -> tuple[float, float]:
        """Mean over the sizes of ln(distance / reference's distance), and the standard error of this mean."""
        a, b = self.distances[method], self.distances[reference]
        part = a / a.mean(axis=1, keepdims=True) - b / b.mean(axis=1, keepdims=True)
        errors = part.std(axis=1, ddof=1) / math.sqrt(a.shape[1])
        logs = np.log(a.mean(axis=1) / b.mean(axis=1))
        return float(logs.mean()), float(np.sqrt((errors**2).sum()) / len(self.people))
