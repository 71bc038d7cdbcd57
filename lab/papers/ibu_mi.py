"""Arcolezi, Cerna and Palamidessi 2023, "On the Utility Gain of Iterative Bayesian Update": Tables 2 and 3, Figures 1 to 4."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lab.panels import Curve, Panel
from lab.papers.ibu_runs import EPSILONS, errors
from lab.papers.reproduction import Job, Outcome, Plan, Row, Target
from ldpstream.mechanisms.arguments import FloatArray

PAPER = "Arcolezi, Cerna and Palamidessi 2023"
THEIR_RUNS, RUNS, QUICK_RUNS = 20, 20, 2
DOMAINS, SIZES = (2, 50, 100, 200), (20_000, 100_000)
SHAPES = {"Gauss.": "gaussian", "Exp.": "exponential", "Unif.": "uniform", "Poiss.": "poisson", "Triang.": "triangular"}
SHAPES["Real"] = "real"
METRICS = ("MSE", "MAE")
ONE_TIME = ("GRR", "SUE", "OUE", "SS", "THE", "BLH", "OLH")
CHAINS = ("L-GRR", "L-SUE", "L-OUE", "L-SOUE", "L-OSUE", "L-BLH", "L-OLH")
QUICK = ("GRR", "OLH", "L-GRR", "L-OSUE"), ("Gauss.", "Unif.", "Poiss.")
# gains in per cent, MSE and MAE for each of the mechanisms above, then for the mechanisms' average
TABLES: dict[tuple[str, ...], dict[str, tuple[int, ...]]] = {
    ONE_TIME: {
        "Gauss.": (1, 1, 13, 7, 10, 6, 3, 1, 13, 7, 16, 9, 11, 7, 9, 5),
        "Exp.": (16, 11, 26, 15, 27, 16, 19, 11, 26, 15, 16, 10, 27, 16, 22, 13),
        "Unif.": (0, 0, 29, 21, 20, 14, 14, 10, 31, 22, 57, 43, 18, 12, 24, 17),
        "Poiss.": (39, 28, 41, 26, 44, 28, 41, 27, 41, 27, 14, 6, 46, 30, 38, 24),
        "Triang.": (0, 0, 21, 13, 15, 9, 10, 6, 23, 14, 36, 21, 15, 9, 17, 10),
        "Real": (31, 21, 40, 23, 42, 25, 34, 19, 42, 25, 21, 11, 44, 27, 36, 21),
        "Avg.": (14, 10, 28, 17, 26, 16, 20, 12, 29, 18, 26, 16, 26, 16, 24, 15),
    },
    CHAINS: {
        "Gauss.": (14, 5, 13, 8, 9, 5, 10, 7, 12, 7, 2, 0, 7, 4, 9, 5),
        "Exp.": (4, 1, 27, 16, 26, 15, 27, 16, 27, 16, 4, 2, 20, 12, 19, 11),
        "Unif.": (36, 25, 31, 22, 12, 8, 16, 11, 18, 13, 54, 43, 21, 16, 26, 19),
        "Poiss.": (5, 2, 43, 28, 48, 32, 49, 32, 44, 29, 11, 6, 42, 30, 34, 22),
        "Triang.": (28, 17, 24, 15, 11, 7, 13, 9, 16, 10, 26, 14, 14, 9, 18, 11),
        "Real": (4, 1, 43, 25, 43, 27, 44, 27, 43, 25, 9, 4, 34, 22, 31, 18),
        "Avg.": (15, 8, 30, 19, 24, 15, 26, 17, 26, 16, 17, 11, 23, 15, 23, 14),
    },
}
NOTES = (
    "Bins are those of the paper's notebook: k + 1 bins of equal width, of which the last two are one value. The paper's"
    " incomes are not available; here, «Real» stands for log-normal incomes. Values of «Real», and averages that include"
    " «Real», need not agree.",
    "If the column best has numbers, they are the gains of PowerNS with reports in the exact calibration, over the paper's MI.",
    "Local hashing uses linear forms in place of the paper's hash functions. At ε = 4 OLH has g = 53, a prime power, in place"
    " of 56 in the paper's package. SS uses the subset size with the least variance; the package rounds the size instead.",
)
SPREAD_NOTE = (
    " The random error of that single population is part of ±; it is large for the bins of the exponential distribution."
)
CHANNEL_NOTE = (
    "For L-GRR, L-BLH and L-OLH the paper's IBU uses a channel with q = p₁q₂ + q₁p₂. For more than two symbols this q lacks"
    " (k-2) q₁q₂, and for hashing it is not 1/g. The channel therefore differs from the mechanism's own channel. The paper's"
    " channel gives the published gains; in Table 3, the rows' notes have the gains with the mechanism's own channel. (The"
    " printed p, p₁p₂ + q₁q₂, lacks (k-2) q₁q₂ too; the package's p is right.)"
)


@dataclass(frozen=True, slots=True)
class Setting:
    mechanism: str
    shape: str
    k: int
    n: int
    eps: float


Found = dict[Setting, dict[str, FloatArray]]
"""The errors of a setting's estimators, (2, runs) each: mean squared errors, then mean absolute errors."""


def runs(plan: Plan) -> int:
    return QUICK_RUNS if plan.quick else RUNS


def notes(plan: Plan, names: tuple[str, ...], means: str = "Gains are means", spread: str = "") -> list[str]:
    first = (
        f"{means} over {runs(plan)} runs of a setting ({THEIR_RUNS} in the paper), each with a fresh population. The paper also"
        f" states fresh populations, but its notebook draws one population for all runs.{spread}"
    )
    return [first, *NOTES, *([CHANNEL_NOTE] if names is CHAINS else [])]


def choice(plan: Plan, names: Sequence[str]) -> tuple[list[str], list[str]]:
    return [m for m in names if not plan.quick or m in QUICK[0]], [s for s in SHAPES if not plan.quick or s in QUICK[1]]


def jobs(plan: Plan, names: Sequence[str], shapes: Iterable[str], domains: Sequence[int], sizes: Sequence[int]) -> list[Job]:
    common = {"runs": runs(plan), "best": plan.best, "seed": plan.seed}
    grid = itertools.product(names, shapes, domains, sizes)
    return [Job(errors, {"name": m, "shape": SHAPES[s], "k": k, "n": n, **common}) for m, s, k, n in grid]


def read(planned: Sequence[Job], results: Sequence[Any]) -> Found:
    back = {shape: label for label, shape in SHAPES.items()}
    found = {}
    for job, result in zip(planned, results, strict=True):
        a = job.arguments
        for eps, measured in zip(EPSILONS, result, strict=True):
            setting = Setting(a["name"], back[a["shape"]], a["k"], a["n"], eps)
            found[setting] = {estimator: np.array(x) for estimator, x in measured.items()}
    return found


def gain(measured: dict[str, FloatArray], estimator: str = "ibu") -> FloatArray:
    """(2, runs) utility gains Γ of an estimator over MI, in per cent: of mean squared, then of mean absolute errors.

    Γ of a run is the reduction of the error relative to MI's error, and at least 0 (Eq. 1).
    """
    return np.asarray(100 * np.maximum(1 - measured[estimator] / measured["mi"], 0))


def mean_gain(found: Found, chosen: Callable[[Setting], bool], estimator: str = "ibu") -> FloatArray:
    return np.asarray(np.mean([gain(x, estimator) for setting, x in found.items() if chosen(setting)], axis=0))


def chance(found: Found, chosen: Callable[[Setting], bool]) -> FloatArray:
    gains = np.array([gain(x) for setting, x in found.items() if chosen(setting)])
    reports = gains.var(axis=2, ddof=1).mean(axis=0) / len(gains)
    populations = np.maximum(gains.mean(axis=0).var(axis=1, ddof=1) - reports, 0)
    ours = gains.shape[2]
    return np.asarray(np.sqrt(reports * (1 / THEIR_RUNS + 1 / ours) + populations * (1 + 1 / ours)))


def table_rows(plan: Plan, names: tuple[str, ...], found: Found) -> list[Row]:
    mechanisms, shapes = choice(plan, names)
    if not plan.quick:
        mechanisms, shapes = [*mechanisms, "Avg."], [*shapes, "Avg."]
    rows = []
    for shape, name in itertools.product(shapes, mechanisms):

        def chosen(s: Setting, shape: str = shape, name: str = name) -> bool:
            return shape in (s.shape, "Avg.") and name in (s.mechanism, "Avg.")

        published = TABLES[names][shape]
        column = 2 * (*names, "Avg.").index(name)
        ours, spread = mean_gain(found, chosen).mean(axis=1), chance(found, chosen)
        best = mean_gain(found, chosen, "best").mean(axis=1).tolist() if plan.best else [None, None]
        chain = mean_gain(found, chosen, "chain").mean(axis=1) if name in ("L-GRR", "L-BLH", "L-OLH") else None
        for i, metric in enumerate(METRICS):
            remarks = [f"own channel: {chain[i]:.0f}"] if chain is not None else []
            remarks += ["incomes generated"] if shape in ("Real", "Avg.") else []
            rows.append(
                Row(
                    label=f"{shape} {name} {metric}",
                    published=published[column + i],
                    ours=float(ours[i]),
                    spread=float(spread[i]),
                    digit=0.5,
                    best=best[i],
                    lower_is_better=False,
                    note=", ".join(remarks),
                )
            )
    return rows


def mean_mse_gain(found: Found, **fixed: object) -> float:
    return float(mean_gain(found, lambda s: all(getattr(s, name) == value for name, value in fixed.items()))[0].mean())


def claim(text: str, holds: bool, note: str = "") -> Row:
    return Row(label=f"{text} (1: yes)", published=1, ours=float(holds), lower_is_better=False, note=note)


def ratio(measured: dict[str, FloatArray]) -> float:
    return float(100 * (1 - measured["ibu"][0].mean() / measured["mi"][0].mean()))


def bars(plan: Plan, names: tuple[str, ...], found: Found) -> Outcome:
    gains = {(s.mechanism, s.eps): max(ratio(x), 0.0) for s, x in found.items()}
    shown = list(dict.fromkeys(s.mechanism for s in found))
    curves = [Curve(name, EPSILONS, [gains[name, eps] for eps in EPSILONS]) for name in shown]
    average = {eps: float(np.mean([gains[name, eps] for name in shown])) for eps in EPSILONS}
    curves.append(Curve("AvgGain", EPSILONS, list(average.values())))
    panels = [Panel("generated incomes, n = 20 000, k = 100", "ε₁" if names is CHAINS else "ε", "gain in MSE (%)", curves)]
    rows = [Row(label=f"AvgGain at ε = {eps:g}", ours=x, lower_is_better=False) for eps, x in average.items()]
    if not plan.quick:
        note = "incomes generated"

        def better(eps: float, some: Sequence[str] = names) -> bool:
            return all(gains[name, eps] > 0 for name in some)

        if names is ONE_TIME:
            rows += [claim(f"ε = {eps:g}: IBU better for all seven", better(eps), note) for eps in (2.0, 4.0)]
            rows.append(claim("ε = 1: IBU better for GRR, OUE, SS and OLH", better(1.0, ("GRR", "OUE", "SS", "OLH")), note))
            rows.append(claim("ε = 1: IBU not better for BLH", gains["BLH", 1.0] == 0, note))
        else:
            none = gains["L-SUE", 1.0] == 0 and gains["L-BLH", 1.0] == 0
            rows.append(claim("ε₁ = 1: IBU not better for L-SUE and L-BLH", none, note))
        order = average[2.0] > average[4.0] > average[1.0]
        rows.append(claim("AvgGain is highest at ε = 2, then 4, then 1", order, note))
    return Outcome(rows, panels, notes(plan, names, "A gain compares mean errors"))


def sweeps(plan: Plan, names: tuple[str, ...], found: Found) -> Outcome:
    axes: dict[str, Sequence[float]] = {"eps": EPSILONS, "n": SIZES, "k": DOMAINS}
    shapes = choice(plan, names)[1]
    panels = []
    for axis, x in axes.items():
        curves = [Curve(shape, x, [mean_mse_gain(found, shape=shape, **{axis: at}) for at in x]) for shape in shapes]
        label = ("ε₁" if names is CHAINS else "ε") if axis == "eps" else axis
        panels.append(Panel("all mechanisms", label, "mean gain in MSE (%)", curves))
    by_eps, by_n, by_k = ([float(np.mean(y)) for y in zip(*(c.y for c in panel.curves), strict=True)] for panel in panels)
    single = {shape: max(gain(x)[0].mean() for s, x in found.items() if s.shape == shape) for shape in shapes}
    mean = {shape: mean_mse_gain(found, shape=shape) for shape in shapes}
    rows = [Row(label=f"{shape} mean gain", ours=x, lower_is_better=False) for shape, x in mean.items()]
    if not plan.quick:
        table = f"Table {2 if names is ONE_TIME else 3}"
        falling = [curve.label for curve in panels[0].curves if curve.y[0] > curve.y[1] > curve.y[2]]
        larger = [curve.label for curve in panels[1].curves if curve.y[1] > curve.y[0]]
        lowest = sorted(mean, key=lambda shape: mean[shape])[:2]
        rows += [
            claim("the uniform distribution has the highest single gain", max(single, key=lambda s: single[s]) == "Unif."),
            claim(
                "Gaussian and exponential have the lowest mean gains",
                set(lowest) == {"Gauss.", "Exp."},
                f"the paper's own {table} and its text: Gaussian and triangular",
            ),
            claim(
                "the gain falls as ε rises", by_eps[0] > by_eps[1] > by_eps[2], f"it falls for: {', '.join(falling) or 'none'}"
            ),
            claim("the gain is higher for the larger n", by_n[1] > by_n[0], f"higher for: {', '.join(larger) or 'none'}"),
            claim("the gain is higher for k = 200 than for k = 2", by_k[-1] > by_k[0]),
        ]
    return Outcome(rows, panels, notes(plan, names))


def _table(plan: Plan, names: tuple[str, ...], found: Found) -> Outcome:
    return Outcome(table_rows(plan, names, found), notes=notes(plan, names, spread=SPREAD_NOTE))


def _target(
    name: str, title: str, names: tuple[str, ...], finish: Callable[[Plan, tuple[str, ...], Found], Outcome], one: bool = False
) -> Target:
    def planned(plan: Plan) -> list[Job]:
        mechanisms, shapes = choice(plan, names)
        return jobs(plan, mechanisms, ["Real"], [100], [20_000]) if one else jobs(plan, mechanisms, shapes, DOMAINS, SIZES)

    return Target(name, title, planned, lambda plan, results: finish(plan, names, read(planned(plan), results)))


TARGETS: tuple[Target, ...] = (
    _target("ibu-table-2", f"{PAPER}, Table 2: gain (%) of IBU over MI, one-time mechanisms", ONE_TIME, _table),
    _target("ibu-table-3", f"{PAPER}, Table 3: gain (%) of IBU over MI, memoized mechanisms", CHAINS, _table),
    _target("ibu-figure-1", f"{PAPER}, Figure 1: gain by ε, one-time mechanisms, incomes", ONE_TIME, bars, one=True),
    _target("ibu-figure-2", f"{PAPER}, Figure 2: gain by ε₁, memoized mechanisms, incomes", CHAINS, bars, one=True),
    _target("ibu-figure-3", f"{PAPER}, Figure 3: gain by ε, n and k, one-time mechanisms", ONE_TIME, sweeps),
    _target("ibu-figure-4", f"{PAPER}, Figure 4: gain by ε₁, n and k, memoized mechanisms", CHAINS, sweeps),
)
