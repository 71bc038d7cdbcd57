"""ALLOMFREE's experiments: every device samples one of several attributes (Smp) and reports it once, with a memoized mechanism.

The error is MSE_avg: the mean over attributes of the mean squared error over an attribute's values. As in the authors' code,
the estimates of their methods are clipped at 0 and divided by their sum.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from lab.bench.windows import former
from lab.datasets import Dataset, generated, load
from lab.drawn_tables import tabulate
from lab.error_measures import mse
from lab.panels import Curve, Panel
from lab.papers.allomfree_printed import DATASETS, GAINS
from lab.papers.reproduction import Job, Outcome, Plan, Row, Target
from ldpstream.estimators import matrix_inversion, post_process
from ldpstream.mechanisms import LONGITUDINAL, Mechanism

EPSILONS = tuple(x / 2 for x in range(1, 9))
RATIOS = (0.3, 0.6)
ENCODINGS = ("L-OSUE", "L-SOUE", "L-SUE", "L-OUE")
METHODS = ("ALLOMFREE", *ENCODINGS)
BEST = "the best of L-GRR, L-OSUE and L-OLH in exact calibration, with PowerNS"
PAPER = {"L-GRR": "paper"} | dict.fromkeys(ENCODINGS, "exact")  # the paper's calibration of the unary encodings is exact
PUBLISHED_RUNS = 100
RUNS = {"nursery": 100, "adult": 40, "ms_fimu": 20, "census_income": 8}
QUICK = {"nursery": 10, "adult": 5, "ms_fimu": 5, "census_income": 5}
QUICK_EPSILONS = (1.0, 4.0)
TITLES = {"nursery": "Nursery", "adult": "Adult", "ms_fimu": "MS-FIMU", "census_income": "Census-Income"}
# The paper prints the first five and the last eight of Census-Income's 33 sizes; the data set's description has the others.
ABSENT = {
    "ms_fimu": (88_935, (3, 3, 8, 12, 37, 11)),
    "census_income": (
        299_285,
        (9, 52, 47, 17, 3, 7, 24, 15, 5, 10, 2, 3, 6, 8, 6, 6, 51, 38, 8, 10, 9, 10, 3, 4, 5, 43, 43, 43, 5, 3, 3, 3, 2),
    ),
}


class Errors(TypedDict):
    source: str
    mse: dict[str, list[float]]


Found = Mapping[tuple[str, float, float], Errors]  # (data set, ratio, eps_inf) -> errors


@functools.lru_cache(maxsize=1)
def dataset(name: str, data: str | None) -> Dataset:
    if name in ABSENT:
        return generated(TITLES[name], *ABSENT[name], seed=1)
    return load(name, Path(data) if data else None)


def mechanisms_of(method: str, sizes: Sequence[int], eps_inf: float, eps_1: float) -> list[Mechanism]:
    if method == BEST:
        return [former(k, eps_inf, eps_1) for k in sizes]
    names = ("L-GRR", "L-OSUE") if method == "ALLOMFREE" else (method,)
    return [
        min(
            (LONGITUDINAL[m](k=k, eps_inf=eps_inf, eps_1=eps_1, calibration=PAPER[m]) for m in names),
            key=lambda m: m.variance(),
        )
        for k in sizes
    ]


def averaged_mse(people: Dataset, chosen: Sequence[Mechanism], post: str, rng: np.random.Generator) -> float:
    """MSE_avg of one run: every device draws an attribute and reports its value once."""
    drawn = rng.integers(len(chosen), size=len(people.values))
    total = 0.0
    for j, m in enumerate(chosen):
        truth = np.bincount(people.values[:, j], minlength=m.k) / len(people.values)
        raw = matrix_inversion(m, tabulate(m, people.values[drawn == j, j], rng))
        total += mse(truth, post_process(raw.frequencies, post, variance=raw.standard_errors**2))
    return total / len(chosen)


def errors(name: str, data: str | None, ratio: float, eps_inf: float, runs: int, methods: Sequence[str], seed: int) -> Errors:
    people = dataset(name, data)
    found: Errors = {"source": people.source, "mse": {}}
    for method in methods:
        rng = np.random.default_rng(
            [seed, DATASETS.index(name), round(1000 * ratio), round(1000 * eps_inf), [*METHODS, BEST].index(method)]
        )
        chosen = mechanisms_of(method, people.sizes, eps_inf, ratio * eps_inf)
        post = "power-ns" if method == BEST else "norm-mul"
        found["mse"][method] = [averaged_mse(people, chosen, post, rng) for _ in range(runs)]
    return found


def _jobs(plan: Plan, names: Sequence[str], ratios: Sequence[float]) -> list[Job]:
    data = str(plan.data) if plan.data else None
    groups = (METHODS, (BEST,)) if plan.best else (METHODS,)
    return [
        Job(
            errors,
            {
                "name": name,
                "data": None if name in ABSENT else data,
                "ratio": ratio,
                "eps_inf": eps_inf,
                "runs": _runs(name, plan),
                "methods": list(methods),
                "seed": plan.seed,
            },
        )
        for name in names
        for ratio in ratios
        for eps_inf in _epsilons(plan)
        for methods in groups
    ]


def _runs(name: str, plan: Plan) -> int:
    return (QUICK if plan.quick else RUNS)[name]


def _epsilons(plan: Plan) -> tuple[float, ...]:
    return QUICK_EPSILONS if plan.quick else EPSILONS


def _gather(plan: Plan, names: Sequence[str], ratios: Sequence[float], results: Sequence[Errors]) -> Found:
    groups = 2 if plan.best else 1
    keys = [(name, ratio, eps_inf) for name in names for ratio in ratios for eps_inf in _epsilons(plan)]
    found = {}
    for i, key in enumerate(keys):
        parts = results[groups * i : groups * (i + 1)]
        found[key] = Errors(source=parts[0]["source"], mse={m: runs for part in parts for m, runs in part["mse"].items()})
    return found


def gain(runs: Mapping[str, Sequence[float]], method: str, over: str) -> tuple[float, float]:
    """Reduction of a method's mean error relative to another method's mean error, in percent; and a standard deviation."""
    ratio = float(np.mean(runs[method]) / np.mean(runs[over]))
    relative = sum(
        np.var(runs[m], ddof=1) / np.mean(runs[m]) ** 2 * (1 / PUBLISHED_RUNS + 1 / len(runs[m])) for m in (method, over)
    )
    return 100 * (1 - ratio), 100 * ratio * math.sqrt(relative)


def _note(name: str, plan: Plan, found: Found) -> str:
    source = next(errors["source"] for key, errors in found.items() if key[0] == name)
    runs = _runs(name, plan)
    return ", ".join(filter(None, (source, f"{runs} runs" if runs != PUBLISHED_RUNS else "")))


def _table(ratio: float, plan: Plan, results: Sequence[Any]) -> Outcome:
    found = _gather(plan, DATASETS, (ratio,), results)
    printed = {row[0]: row[1:] for row in GAINS[ratio]}
    rows = []
    for column, (name, over) in enumerate((name, over) for name in DATASETS for over in ("L-SUE", "L-OUE")):
        note = _note(name, plan, found)
        runs = {str(eps_inf): found[name, ratio, eps_inf]["mse"] for eps_inf in _epsilons(plan)}
        ours = {eps_inf: gain(of, "ALLOMFREE", over) for eps_inf, of in runs.items()}
        best = {eps_inf: gain(of, BEST, over)[0] for eps_inf, of in runs.items()} if plan.best else {}
        if not plan.quick:  # the last row of the table
            values, spreads = zip(*ours.values(), strict=True)
            ours["Mean"] = float(np.mean(values)), math.hypot(*spreads) / len(spreads)
            best |= {"Mean": float(np.mean(list(best.values())))} if plan.best else {}
        rows += [
            Row(
                label=f"{TITLES[name]}, over {over}, {eps_inf if eps_inf == 'Mean' else f'ε∞ = {eps_inf}'}",
                ours=value,
                published=float(printed[eps_inf][column]),
                spread=spread,
                digit=0.005,
                best=best.get(eps_inf),
                lower_is_better=False,
                note=note,
            )
            for eps_inf, (value, spread) in ours.items()
        ]
    return Outcome(rows, notes=_NOTES if plan.best else _NOTES[:-1])


_NOTES = (
    "Values are reductions of the averaged MSE by ALLOMFREE, in percent. The authors' published code, but not the paper's text,"
    " clips estimates at 0 and divides them by their sum. This makes all errors, and the gains, smaller.",
    "MS-FIMU's table of persons and Census-Income are not available; independent, Zipf-distributed columns of the same n and k"
    " replace them. The error of clipped estimates depends on the distribution, so the rows of these data need not agree.",
    f"The column best is the gain of our best method: {BEST}.",
)


def _figure(name: str, plan: Plan, results: Sequence[Any]) -> Outcome:
    found = _gather(plan, (name,), RATIOS, results)
    epsilons, note = _epsilons(plan), _note(name, plan, found)
    methods = (*METHODS, BEST) if plan.best else METHODS
    rows, panels = [], []
    for ratio in RATIOS:
        runs = [found[name, ratio, eps_inf]["mse"] for eps_inf in epsilons]
        means = {m: [float(np.mean(r[m])) for r in runs] for m in methods}
        curves = [Curve("best" if m == BEST else m, epsilons, y) for m, y in means.items()]
        panels.append(Panel(f"{TITLES[name]}, ε₁ = {ratio} ε∞", "ε∞", "averaged MSE", curves, log_y=True))
        rows += [
            Row(
                label=f"averaged MSE of ALLOMFREE, ε₁ = {ratio} ε∞, ε∞ = {eps_inf}",
                ours=means["ALLOMFREE"][i],
                best=means[BEST][i] if plan.best else None,
                note=note,
            )
            for i, eps_inf in enumerate(epsilons)
        ]
    points = [found[name, ratio, eps_inf]["mse"] for ratio in RATIOS for eps_inf in epsilons]
    claims = (("ALLOMFREE", "L-SUE"), ("ALLOMFREE", "L-OUE"), ("L-OSUE", "L-OUE"), ("L-SOUE", "L-OUE"))
    held = [f"{a} below {b} at {sum(np.mean(p[a]) < np.mean(p[b]) for p in points)}" for a, b in claims]
    return Outcome(
        rows,
        panels,
        [
            f"The paper claims that four orders always hold. Here they hold at so many of {len(points)} points:"
            f" {', '.join(held)}.",
            *([f"Best: {BEST}."] if plan.best else []),
        ],
    )


def tables(authors: str) -> list[Target]:
    return [
        Target(
            f"allomfree-table-{number}",
            f"{authors}, Table {number}: gain in percent over L-SUE and L-OUE, ε₁ = {ratio} ε∞",
            functools.partial(_jobs, names=DATASETS, ratios=(ratio,)),
            functools.partial(_table, ratio),
        )
        for number, ratio in ((3, 0.3), (4, 0.6))
    ]


def figures(authors: str) -> list[Target]:
    return [
        Target(
            f"allomfree-figure-{number}",
            f"{authors}, Figure {number}: averaged MSE, {TITLES[name]}",
            functools.partial(_jobs, names=(name,), ratios=RATIOS),
            functools.partial(_figure, name),
        )
        for number, name in enumerate(DATASETS, 4)
    ]
