"""Figures 2 to 14 of the free-will privacy paper: distances from the truth by number of people, and the text's claims.

Source: ElSalamouny and Palamidessi, "Reconstruction of the distribution of sensitive data under free-will privacy".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lab.panels import Curve, Panel
from lab.papers.free_will_mixes import COUNTED, GIBU, MAXIMUM
from lab.papers.free_will_runs import Runs, gather, jobs
from lab.papers.free_will_tables import TABLES
from lab.papers.reproduction import Job, Outcome, Plan, Row, Target

INV_R = ("[INV]_R projection", "[INV]_R normalization")
INV_M = ("[INV]_M projection", "[INV]_M normalization")
RAP_R = ("[RAP]_R projection", "[RAP]_R normalization")
RAP_M = ("[RAP]_M projection", "[RAP]_M normalization")
IBU_R, IBU_M = ("[IBU]_R",), ("[IBU]_M",)
LINES = {"line": "linear", "grid": "planar"}
UNITS = {"line": "cells", "grid": "km"}
SIZES_NOTE = (
    "The paper's text does not state the numbers of people and of repetitions, nor when GIBU stops. We run up to 100 000"
    " people and 10 repetitions (5 on the grid). We stop GIBU when the log-likelihood grows by less than 1e-9 nats a report."
    " A distance compares an estimate with the true distribution, which generates the values. `best` is the distance for the"
    " maximum-likelihood estimate, which uses the same reports and the same likelihood as GIBU. Some claims say that one method"
    " beats another. We test such a claim with several numbers of people. Its value is the share of these tests in which the"
    " first method has the smaller mean distance."
)
GRID_NOTE = (
    "Gowalla's check-ins are not available, so the planar population is generated, on the paper's grid of 24 × 16 cells of 0.5"
    " km. The ε of the planar mechanisms in Tables 6 and 7 are per kilometre, so a mechanism that counts in cells gets half of"
    " each ε. Only these halves give the expected distances of 0.5, 1, …, 5 km from which Table 6 comes."
)
BITS_NOTE = (
    "GIBU and the maximum use whole reports, as in the paper. A service keeps only counts of bits; the last curve is the"
    " maximum of the likelihood of these counts."
)
SHOKRI_NOTE = (
    "The paper uses the same loss ℓ for the user's quality and for the adversary's error. The optimum is then known in advance:"
    " the smaller of Q and the error of the best blind guess. Very many channels attain this optimum, and the results depend on"
    " the channel that a solver returns. The figure therefore cannot be reproduced exactly. On the line the bound Q = 28 has no"
    " effect, since a blind guess errs by 25."
)
SHOKRI_GRID_NOTE = (
    "On the paper's 384 cells the programme has 147 000 unknowns and 57 million coefficients; we use 12 × 8 cells of 1 km."
    " The third picture shows how much depends on the optimum: it uses another optimum of the same programme, the mechanism"
    " that reports the truth or else the middle."
)


@dataclass(frozen=True, slots=True)
class Figure:
    number: int
    shows: str
    mixes: tuple[str, ...]
    methods: tuple[str, ...]
    claims: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()  # mixtures that the paper does not have


def _plan(figure: Figure, plan: Plan) -> Sequence[Job]:
    return jobs(plan, figure.mixes + figure.extra)


def _finish(figure: Figure, plan: Plan, results: Sequence[Any]) -> Outcome:
    runs = gather(plan, figure.mixes + figure.extra, results)
    rows = [row for mix in figure.mixes for row in _rows(figure, mix, runs[mix], plan.best)]
    panels = [_panel(figure, mix, found, plan.best) for mix, found in runs.items()]
    grid = any(mix.endswith("grid") for mix in figure.mixes)
    return Outcome(rows, panels, (SIZES_NOTE, *((GRID_NOTE,) if grid else ()), *figure.notes))


def _rows(figure: Figure, mix: str, runs: Runs, best: bool) -> list[Row]:
    where, note = title(mix), "population generated" if mix.endswith("grid") else ""
    maximum = float(runs.mean(MAXIMUM)[-1])
    rows = [
        Row(
            label=f"{where}: {method}, n = {runs.people[-1]:,}, {UNITS.get(mix.rpartition('-')[2], 'cells')}",
            ours=float(runs.mean(method)[-1]),
            best=maximum if best else None,
            note=note,
        )
        for method in (*figure.methods, GIBU)
        if runs.exists(method)
    ]
    for better, worse in (*((GIBU, method) for method in figure.methods), *figure.claims):
        if runs.exists(worse) and runs.exists(better):
            share, spread = runs.wins(better, worse)
            label = f"{where}: {better} beats {worse}"
            rows.append(Row(label=label, published=1.0, ours=share, spread=spread, lower_is_better=False, note=note))
    return rows


def _panel(figure: Figure, mix: str, runs: Runs, best: bool) -> Panel:
    ours = (MAXIMUM, *((COUNTED,) if COUNTED in runs.distances else ())) if best else ()
    curves = [
        Curve(method, runs.people, runs.mean(method).tolist(), runs.sd(method).tolist())
        for method in (*figure.methods, GIBU, *ours)
        if runs.exists(method)
    ]
    unit = UNITS.get(mix.rpartition("-")[2], "cells")
    return Panel(title(mix), "people", f"earth mover's distance, {unit}", curves, log_x=True, log_y=True)


def title(mix: str) -> str:
    if mix == "shokri-centre":
        return "linear, truth or middle"
    kind = mix.rpartition("-")[2]
    return LINES.get(kind, f"{kind} privacy")


GRRS, GEOMETRIC, MIXED, SHOKRI = ((f"{kind}-line", f"{kind}-grid") for kind in ("grr", "geometric", "mixed", "shokri"))
RAPPOR = ("rappor-high", "rappor-low")
FIGURES = (
    Figure(2, "[RAP]_R and GIBU with 10 RAPPOR mechanisms", RAPPOR, RAP_R, notes=(BITS_NOTE,)),
    Figure(3, "[INV]_R, [IBU]_R and GIBU with 10 k-RR mechanisms", GRRS[:1], INV_R + IBU_R),
    Figure(4, "[INV]_R, [IBU]_R and GIBU with 5 geometric and 5 k-RR mechanisms", MIXED[:1], INV_R + IBU_R),
    Figure(5, "[INV]_R, [IBU]_R and GIBU with 10 geometric mechanisms", GEOMETRIC[:1], INV_R + IBU_R),
    Figure(6, "[IBU]_R and GIBU with 10 of Shokri's mechanisms", SHOKRI[:1], IBU_R, notes=(SHOKRI_NOTE,)),
    Figure(7, "[INV]_M and GIBU with 10 k-RR mechanisms", GRRS, INV_M, claims=(INV_M,)),
    Figure(8, "[INV]_M and GIBU with 10 geometric mechanisms", GEOMETRIC, INV_M),
    Figure(9, "[INV]_M and GIBU with 5 geometric and 5 k-RR mechanisms", MIXED, INV_M),
    Figure(10, "[IBU]_M and GIBU with 10 k-RR mechanisms", GRRS, IBU_M, claims=((INV_M[0], *IBU_M),)),
    Figure(11, "[IBU]_M and GIBU with 10 geometric mechanisms", GEOMETRIC, IBU_M),
    Figure(12, "[IBU]_M and GIBU with 5 geometric and 5 k-RR mechanisms", MIXED, IBU_M),
    Figure(
        13,
        "[IBU]_M and GIBU with 10 of Shokri's mechanisms",
        SHOKRI,
        IBU_M,
        notes=(SHOKRI_NOTE, SHOKRI_GRID_NOTE),
        extra=("shokri-centre",),
    ),
    Figure(14, "[RAP]_M and GIBU with 10 RAPPOR mechanisms", RAPPOR, RAP_M, notes=(BITS_NOTE,)),
)
TARGETS: tuple[Target, ...] = (
    *TABLES,
    *(
        Target(
            f"free-will-figure-{figure.number}",
            f"{figure.shows} (ElSalamouny and Palamidessi 2022, Figure {figure.number})",
            partial(_plan, figure),
            partial(_finish, figure),
        )
        for figure in FIGURES
    ),
)
