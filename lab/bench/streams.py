"""Compares the spaced level with the seven methods of LDP-IDS: histograms at every step under w-event ε-LDP.

MSE     mean of (published - true share)² over all steps and values
MRE     mean of |published - true share| / max(true share, bound); the bound is 0.1 % (`mre`), or one person (`mre_person`)
AUC     area under the ROC curve of a detector of steps at which a value's true share is above min + 0.75 (max - min)
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from scipy.stats import rankdata

from lab.bench.stream_data import SYNTHETIC, Stream, real, synthetic
from lab.bench.stream_rivals import RIVALS, oracle, publish
from lab.bench.stream_spaced import filtered, spaced_level
from lab.processes import worker_pool
from ldpstream.mechanisms.arguments import FloatArray

RAW, FILTERED = "raw", "filtered"
EVENT = 0.75
SANITY = 0.001
WINDOWS = {"MS-FIMU": (3, 7), "PWGTP": (20,)}


@dataclass(frozen=True, slots=True)
class Plan:
    people: int
    steps: int
    window: int
    sizes: tuple[int, ...]
    epsilons: tuple[float, ...]


FULL = Plan(200_000, 800, 20, (2, 10, 30, 100), (0.5, 1.0, 2.0))  # people, steps, window and ε as in LDP-IDS
QUICK = Plan(20_000, 60, 10, (2, 10), (1.0,))


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    mse: float
    mre: float
    mre_person: float
    auc: float


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    stream: str
    k: int
    n: int
    steps: int
    window: int
    eps: float
    repeats: int
    errors: dict[str, Errors]

    def best(self, measure: str) -> str:
        sign = -1 if measure == "auc" else 1
        return min(RIVALS, key=lambda name: sign * float(getattr(self.errors[name], measure)))

    def gain(self, measure: str) -> float:
        return float(getattr(self.errors[self.best(measure)], measure) / getattr(self.errors[FILTERED], measure))


class Result(msgspec.Struct, frozen=True, kw_only=True):
    repeats: int
    seed: int
    cells: list[Cell]


@dataclass(frozen=True, slots=True)
class _Task:
    name: str
    k: int
    plan: Plan
    window: int
    eps: float
    stream: Stream | None
    repeats: int
    seed: int


def errors(published: FloatArray, truth: FloatArray, n: int) -> Errors:
    off = np.abs(published - truth)
    return Errors(
        mse=float(np.mean(off**2)),
        mre=float(np.mean(off / np.maximum(truth, SANITY))),
        mre_person=float(np.mean(off / np.maximum(truth, 1 / n))),
        auc=detection(published, truth),
    )


def detection(published: FloatArray, truth: FloatArray) -> float:
    areas = []
    for v in [1] if truth.shape[1] == 2 else range(truth.shape[1]):
        low, high = truth[:, v].min(), truth[:, v].max()
        event = truth[:, v] > low + EVENT * (high - low)
        if n := int(event.sum()):
            ranks = float(rankdata(published[:, v])[event].sum())
            areas.append((ranks - n * (n + 1) / 2) / (n * (event.size - n)))
    return float(np.mean(areas)) if areas else float("nan")


def measure(
    plan: Plan, folder: Path | None, repeats: int, seed: int, seen: Callable[[str], None], processes: int | None = None
) -> Result:
    made = [(name, k, plan.window, None) for k in plan.sizes for name in SYNTHETIC]
    given = [(s.name, s.k, w, s) for s in (real(folder) if folder else []) for w in WINDOWS[s.name]]
    tasks = [_Task(name, k, plan, w, eps, s, repeats, seed) for name, k, w, s in [*made, *given] for eps in plan.epsilons]
    cells: list[Cell] = []
    with worker_pool(processes, len(tasks)) as spread:
        for cell in spread(_cell, tasks):
            cells.append(cell)
            seen(f"{len(cells)} of {len(tasks)} settings")
    return Result(repeats=repeats, seed=seed, cells=cells)


def _cell(task: _Task) -> Cell:
    digest = hashlib.sha256(f"{task.name} {task.k} {task.window} {task.eps}".encode()).digest()
    rng = np.random.default_rng([task.seed, *digest[:8]])
    found: dict[str, list[Errors]] = {}
    runs = task.repeats * max(1, task.plan.steps // len(task.stream.people)) if task.stream else task.repeats
    for _ in range(runs):
        stream = task.stream or synthetic(task.name, task.k, task.plan.people, task.plan.steps, rng)
        shares = {name: publish(name, stream, task.eps, task.window, rng).shares for name in RIVALS}
        raw, reports = spaced_level(stream, task.eps, task.window, rng)
        fo = oracle(task.k, task.eps)
        smooth = filtered(raw, reports, fo.p, fo.q)
        for name, published in {**shares, RAW: raw, FILTERED: smooth}.items():
            found.setdefault(name, []).append(errors(published, stream.shares, stream.n))
    return Cell(
        stream=task.name,
        k=task.k,
        n=stream.n,
        steps=len(stream.people),
        window=task.window,
        eps=task.eps,
        repeats=runs,
        errors={name: _mean(made) for name, made in found.items()},
    )


def _mean(runs: list[Errors]) -> Errors:
    return Errors(**{f: float(np.mean([getattr(run, f) for run in runs])) for f in Errors.__struct_fields__})
