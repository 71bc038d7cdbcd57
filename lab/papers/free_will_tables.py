"""Tables 1, 2, 5 and 6 of the free-will privacy paper: its verdicts about the methods, and the ε of its mechanisms.

A verdict depends on a method's distance from the truth divided by GIBU's: excellent up to 1.25, good up to 2, else bad.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from scipy.optimize import brentq

from lab.papers.free_will_mixes import (
    CELL_KM,
    GEOMETRIC_GRID_KM,
    GEOMETRIC_LINE,
    GIBU,
    GRID,
    GRR_GRID,
    GRR_LINE,
    LINE_K,
    line_distances,
)
from lab.papers.free_will_runs import Runs, gather, jobs
from lab.papers.location.geometric import PlanarGeometric, TruncatedGeometric
from lab.papers.reproduction import Job, Outcome, Plan, Row, Target
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.families.grr import GRR

GRADES = ("none", "bad", "good", "excellent")  # 0 to 3
EXCELLENT, GOOD = 1.25, 2.0
PAPER = "ElSalamouny and Palamidessi 2022"

# ---- Tables 1 and 2

# mixture, method, the published verdict, the figure
Verdict = tuple[str, str, str, int]
TABLE_1: tuple[Verdict, ...] = (
    ("grr-line", "[INV]_R", "bad", 3),
    ("grr-line", "[IBU]_R", "bad", 3),
    ("grr-line", "[INV]_M", "excellent", 7),
    ("grr-grid", "[INV]_M", "excellent", 7),
    ("grr-line", "[IBU]_M", "good", 10),
    ("grr-grid", "[IBU]_M", "good", 10),
    ("geometric-line", "[INV]_R", "bad", 5),
    ("geometric-line", "[IBU]_R", "bad", 5),
    ("geometric-line", "[INV]_M", "bad", 8),
    ("geometric-grid", "[INV]_M", "bad", 8),
    ("geometric-line", "[IBU]_M", "bad", 11),
    ("geometric-grid", "[IBU]_M", "bad", 11),
    ("mixed-line", "[INV]_R", "bad", 4),
    ("mixed-line", "[IBU]_R", "bad", 4),
    ("mixed-line", "[INV]_M", "bad", 9),
    ("mixed-grid", "[INV]_M", "bad", 9),
    ("mixed-line", "[IBU]_M", "bad", 12),
    ("mixed-grid", "[IBU]_M", "bad", 12),
    ("shokri-line", "[INV]_R", "none", 6),
    ("shokri-line", "[IBU]_R", "bad", 6),
    ("shokri-line", "[INV]_M", "none", 13),
    ("shokri-grid", "[INV]_M", "none", 13),
    ("shokri-line", "[IBU]_M", "bad", 13),
    ("shokri-grid", "[IBU]_M", "bad", 13),
)
TABLE_2: tuple[Verdict, ...] = (
    ("rappor-high", "[RAP]_R", "bad", 2),
    ("rappor-high", "[RAP]_M", "excellent", 14),
    ("rappor-low", "[RAP]_R", "bad", 2),
    ("rappor-low", "[RAP]_M", "good", 14),
)
SCALE_NOTE = (
    "A verdict is a number: 3 excellent, 2 good, 1 bad, 0 not applicable. A verdict depends on the method's distance divided by"
    f" GIBU's, as the geometric mean over all sizes: at most {EXCELLENT} is excellent, at most {GOOD:g} good. The paper gives"
    " no such scale; the reference is the paper's column GIBU, which is always excellent. Two methods turn an inversion"
    " into a distribution. The verdict on the inversion uses the better result."
)
GROWS_NOTE = (
    "A method's distance relative to GIBU's depends on the number of people, which the paper's text does not give. With"
    " geometric mechanisms, the relative distance grows steadily with this number. The planar population is generated; on this"
    " population [IBU]_M is nearer to GIBU than published."
)
SHOKRI_NOTE = (
    "Verdicts on Shokri's mechanisms are for the optimum that our solver returns; on the plane they are for 12 × 8 cells. See"
    " Figure 13."
)
LOW_PRIVACY_NOTE = (
    "With low privacy [RAP]_M's distance is two to three times GIBU's, at every number of people. The paper's verdict is"
    " `good`; on our scale the verdict is bad."
)


def _mixes(verdicts: Sequence[Verdict]) -> list[str]:
    return list(dict.fromkeys(mix for mix, *_ in verdicts))


def _plan_verdicts(verdicts: Sequence[Verdict], plan: Plan) -> Sequence[Job]:
    return jobs(plan, _mixes(verdicts))


def _finish_verdicts(verdicts: Sequence[Verdict], notes: Sequence[str], plan: Plan, results: Sequence[Any]) -> Outcome:
    runs = gather(plan, _mixes(verdicts), results)
    return Outcome([_verdict(runs[published[0]], published) for published in verdicts], notes=(SCALE_NOTE, *notes))


def _verdict(runs: Runs, verdict: Verdict) -> Row:
    mix, method, published, figure = verdict
    ratios = [runs.ratio(name, GIBU) for name in runs.distances if name.startswith(method) and runs.exists(name)]
    label, asked = f"{mix.replace('-', ', ')}: {method} (Figure {figure})", float(GRADES.index(published))
    if not ratios:
        return Row(label=label, ours=0.0, published=asked, note="channels are singular", lower_is_better=False)
    log_ratio, error = min(ratios)
    ours = grade(math.exp(log_ratio))
    moved = max(abs(grade(math.exp(log_ratio + shift * error)) - ours) for shift in (-3, 3))
    note = f"{math.exp(log_ratio):.3g} times GIBU's" + (", population generated" if mix.endswith("grid") else "")
    return Row(label=label, ours=float(ours), published=asked, spread=moved / 3, note=note, lower_is_better=False)


def grade(ratio: float) -> int:
    return 3 if ratio <= EXCELLENT else 2 if ratio <= GOOD else 1


# ---- Tables 5 and 6

LINE_LOSS = (1.0, 4.0, 7.0, 10.0, 13.0, 16.0, 19.0, 22.0, 25.0, 28.0)
GRID_LOSS_KM = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0)
EPSILON_NOTE = (
    "A label gives the mean distance between a uniform value and its report at this ε. The paper does not explain its choice of"
    " ε. Table 7 has some of these ε. On the line, the bounds Q of Table 8 are these distances, with 24.5 in place of 25."
)
PER_KM_NOTE = "On the grid the ε are per kilometre; a mechanism that counts cells of 0.5 km gets half of each ε."


def epsilon(kind: str, loss: float) -> float:
    """The ε for which the expected distance of a uniform value from its report is `loss`, in cells or kilometres (grid)."""
    channel, distance, low, high = KINDS[kind]
    apart = distance()
    return float(brentq(lambda eps: (channel(eps) * apart).sum() / len(apart) - loss, low, high, xtol=1e-7))


def grid_distances() -> FloatArray:
    return CELL_KM * PlanarGeometric(GRID, 1.0).distances()


KINDS: dict[str, tuple[Callable[[float], FloatArray], Callable[[], FloatArray], float, float]] = {
    "grr-line": (lambda eps: GRR(LINE_K, eps).channel(), partial(line_distances, LINE_K), 0.5, 12.0),
    "grr-grid": (lambda eps: GRR(GRID[0] * GRID[1], eps).channel(), grid_distances, 0.5, 12.0),
    "geometric-line": (lambda eps: TruncatedGeometric(LINE_K, eps).channel(), partial(line_distances, LINE_K), 0.005, 3.0),
    "geometric-grid": (lambda eps: PlanarGeometric(GRID, CELL_KM * eps).channel(), grid_distances, 0.1, 6.0),
}


def _plan_epsilons(kind: str, _: Plan) -> Sequence[Job]:
    losses = {"line": LINE_LOSS, "grid": GRID_LOSS_KM}
    return [Job(epsilon, {"kind": f"{kind}-{where}", "loss": loss}) for where in losses for loss in losses[where]]


def _finish_epsilons(line: Sequence[float], grid: Sequence[float], digit: float, _: Plan, results: Sequence[Any]) -> Outcome:
    labels = [f"linear, {loss:g} cells" for loss in LINE_LOSS] + [f"planar, {loss:g} km" for loss in GRID_LOSS_KM]
    published = [*line[::-1], *grid[::-1]]
    rows = [
        Row(label=label, ours=ours, published=printed, digit=digit, note=_last_digit(ours - printed, digit))
        for label, printed, ours in zip(labels, published, results, strict=True)
    ]
    notes = (EPSILON_NOTE, PER_KM_NOTE) if digit < 1e-3 else (EPSILON_NOTE,)
    return Outcome(rows, notes=notes)


def _last_digit(difference: float, digit: float) -> str:
    return "a unit of the last digit, as if rounded up" if digit < abs(difference) <= 2 * digit else ""


TABLES: tuple[Target, ...] = (
    Target(
        "free-will-table-1",
        f"Performances of the methods ({PAPER}, Table 1)",
        partial(_plan_verdicts, TABLE_1),
        partial(_finish_verdicts, TABLE_1, (GROWS_NOTE, SHOKRI_NOTE)),
    ),
    Target(
        "free-will-table-2",
        f"Methods with RAPPOR mechanisms ({PAPER}, Table 2)",
        partial(_plan_verdicts, TABLE_2),
        partial(_finish_verdicts, TABLE_2, (LOW_PRIVACY_NOTE,)),
    ),
    Target(
        "free-will-table-5",
        f"ε of the k-RR mechanisms ({PAPER}, Table 5)",
        partial(_plan_epsilons, "grr"),
        partial(_finish_epsilons, GRR_LINE, GRR_GRID, 0.005),
    ),
    Target(
        "free-will-table-6",
        f"ε of the geometric mechanisms ({PAPER}, Table 6)",
        partial(_plan_epsilons, "geometric"),
        partial(_finish_epsilons, GEOMETRIC_LINE, GEOMETRIC_GRID_KM, 0.0005),
    ),
)
