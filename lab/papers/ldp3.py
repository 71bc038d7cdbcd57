"""Balioglu, Khodaie and Gursoy 2025, "LDP³: An Extensible and Multi-Threaded Toolkit": Tables I to III, Figures 3 to 5."""

import itertools
import platform
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lab.panels import Curve, Panel
from lab.papers.ldp3_runs import FILES, PROTOCOLS, errors, seconds
from lab.papers.reproduction import Job, Outcome, Plan, Row, Target
from lab.processes import cores

PAPER = "Balioglu, Khodaie and Gursoy 2025"
RUNS, QUICK_RUNS = 10, 4  # the paper also has 10 runs
QUICK = ("GRR", "OLH", "SS")
MOST_PROCESSES = 8
COLUMNS = ("w/o PP", "Avg. w/ PP", "Base-Pos", "Norm", "Norm-Cut", "Norm-Mul", "Norm-Sub", "Power", "PowerNS")
TITLES = {"kosarak": "Kosarak", "bms_pos": "BMS-POS", "porto": "Porto"}
# l1 distances, times 1000, in the columns above
TABLES = {
    "kosarak": {
        "GRR": (5.65, 3.83, 3.87, 5.65, 3.53, 3.98, 3.08, 3.66, 3.02),
        "OLH": (1.56, 1.44, 1.33, 1.56, 1.47, 1.39, 1.27, 1.59, 1.49),
        "BLH": (1.84, 1.65, 1.48, 1.83, 1.71, 1.58, 1.39, 1.84, 1.70),
        "OUE": (1.48, 1.35, 1.23, 1.47, 1.35, 1.27, 1.19, 1.50, 1.46),
        "RAPPOR": (1.66, 1.51, 1.37, 1.65, 1.52, 1.47, 1.30, 1.71, 1.61),
        "SS": (1.60, 1.39, 1.34, 1.60, 1.49, 1.43, 1.28, 1.32, 1.21),
    },
    "bms_pos": {
        "GRR": (10.79, 5.94, 6.74, 10.79, 5.15, 4.01, 4.32, 6.36, 4.20),
        "OLH": (2.14, 2.00, 1.76, 2.14, 1.98, 1.67, 1.66, 2.52, 2.26),
        "BLH": (2.45, 2.24, 1.95, 2.45, 2.19, 1.83, 1.84, 2.91, 2.53),
        "OUE": (2.17, 2.03, 1.78, 2.17, 1.98, 1.71, 1.71, 2.53, 2.30),
        "RAPPOR": (2.21, 2.02, 1.81, 2.21, 2.01, 1.73, 1.73, 2.44, 2.23),
        "SS": (2.08, 1.79, 1.70, 2.08, 1.92, 1.62, 1.61, 1.74, 1.57),
    },
    "porto": {
        "GRR": (5.66, 3.97, 3.84, 5.66, 3.45, 3.19, 3.03, 4.33, 4.33),
        "OLH": (1.17, 1.06, 0.93, 1.17, 0.93, 0.94, 0.87, 1.27, 1.27),
        "BLH": (1.34, 1.19, 1.05, 1.34, 1.04, 1.06, 0.97, 1.45, 1.45),
        "OUE": (1.21, 1.09, 0.96, 1.21, 0.97, 0.97, 0.90, 1.33, 1.33),
        "RAPPOR": (1.27, 1.14, 1.01, 1.27, 1.01, 1.01, 0.94, 1.39, 1.39),
        "SS": (1.18, 0.94, 0.94, 1.18, 0.94, 0.95, 0.88, 0.86, 0.86),
    },
}
SLIPS = {("bms_pos", "SS", "Avg. w/ PP"): "the paper's average includes w/o PP"}
NOTES = (
    "The paper defines the l1 distance as the sum of absolute errors (Eq. 22). The paper's numbers are this sum divided by k,"
    " and so are ours.",
    "Power and PowerNS are the toolkit's, with the toolkit's variance. This variance has the domain size in place of the number"
    " of people, so the assumed variance is k times too small (GRR: about k/e times). Estimates far below zero then get the"
    " prior's mean in place of nearly zero. SS gets GRR's formula, whose factor k nearly cancels this error. In the"
    " paper's Tables II and III, SS with PowerNS has the smallest error. The column best is PowerNS of the same protocol with"
    " the true variance.",
    "OLH and BLH use linear forms in place of random hash functions.",
)
PORTO_NOTE = (
    "Porto's trips are not available. Data with the same n and k and Zipf's distribution replace them. Only the columns that"
    " hardly depend on the distribution (w/o PP, Norm) must agree; others can agree by chance. The paper prints the same"
    " numbers for PowerNS as for Power."
)
TIMES_NOTE = (
    "Each curve is the time of 10 repetitions (1 in the quick plan) of reports, counting, estimation and PowerNS, in processes"
    " that have already started and loaded the data. Machine: {machine}. The paper prints no numbers. The paper's text claims"
    " that times fall from 1 to 8 threads, but less than linearly. It also claims that for many protocols, 4 or more threads"
    " halve the times or reduce them to a third."
)


def protocols(plan: Plan) -> list[str]:
    return [protocol for protocol in PROTOCOLS if not plan.quick or protocol in QUICK]


def folder(plan: Plan, name: str) -> str | None:
    return str(plan.data) if plan.data and FILES[name] and (plan.data / FILES[name]).exists() else None


def table_jobs(plan: Plan, name: str) -> list[Job]:
    runs = range(QUICK_RUNS if plan.quick else RUNS)
    common = {"folder": folder(plan, name), "best": plan.best, "seed": plan.seed}
    grid = itertools.product(protocols(plan), runs)
    return [Job(errors, {"name": name, "protocol": protocol, "run": run, **common}) for protocol, run in grid]


def table(plan: Plan, name: str, results: Sequence[Any]) -> Outcome:
    runs = QUICK_RUNS if plan.quick else RUNS
    source = "" if folder(plan, name) else f"{TITLES[name]} generated"
    found = {}
    for i, protocol in enumerate(protocols(plan)):
        some = results[i * runs : (i + 1) * runs]
        for method in some[0]:
            found[protocol, method] = 1000 * np.array([result[method] for result in some])
        found[protocol, COLUMNS[1]] = np.mean([found[protocol, column] for column in COLUMNS[2:]], axis=0)
    rows = []
    for protocol, (i, column) in itertools.product(protocols(plan), enumerate(COLUMNS)):
        ours = float(found[protocol, column].mean())
        # relative standard deviation of a run, pooled over all protocols, since each protocol has few runs
        runs_of = [found[other, column] for other in protocols(plan)]
        relative = np.sqrt(np.mean([(x.std(ddof=1) / x.mean()) ** 2 for x in runs_of]))
        rows.append(
            Row(
                label=f"{protocol} {column}",
                published=TABLES[name][protocol][i],
                ours=ours,
                spread=float(ours * relative * (1 / RUNS + 1 / runs) ** 0.5),
                digit=0.005,
                best=float(found[protocol, "best"].mean()) if plan.best else None,
                note=", ".join(filter(None, [SLIPS.get((name, protocol, column)), source])),
            )
        )
    return Outcome(rows, notes=[*NOTES, PORTO_NOTE] if name == "porto" else NOTES)


def process_counts() -> list[int]:
    most = min(cores(), MOST_PROCESSES)
    return [*(2**i for i in range(most.bit_length()) if 2**i < most), most]


def figure_jobs(plan: Plan, name: str) -> list[Job]:
    common = {"repetitions": 1 if plan.quick else RUNS, "folder": folder(plan, name), "seed": plan.seed}
    what = {"name": name, "protocols": protocols(plan)}
    return [Job(seconds, {**what, "processes": count, **common}, alone=True) for count in process_counts()]


def figure(plan: Plan, name: str, results: Sequence[Any]) -> Outcome:
    counts, shown = process_counts(), protocols(plan)
    note = "" if folder(plan, name) else f"{TITLES[name]} generated"
    rows = [
        Row(label=f"{protocol}, {count} process{'es' * (count > 1)}: seconds", ours=result[protocol], note=note)
        for protocol in shown
        for count, result in zip(counts, results, strict=True)
    ]
    totals = [sum(result[protocol] for protocol in shown) for result in results]
    if len(counts) > 1:
        falls = all(later < earlier for earlier, later in itertools.pairwise(totals))
        rows.append(Row(label="all protocols: time falls with every step (1: yes)", published=1, ours=float(falls), note=note))
        rows.append(Row(label=f"all protocols: speed-up by {counts[-1]} processes", ours=totals[0] / totals[-1], note=note))
    curves = [Curve(protocol, counts, [result[protocol] for result in results]) for protocol in shown]
    panel = Panel(TITLES[name], "processes", "seconds", curves)
    machine = f"{cores()} cores, {platform.system()} on {platform.machine()}, Python {platform.python_version()}"
    return Outcome(rows, [panel], [TIMES_NOTE.format(machine=machine)])


def _target(
    name: str,
    title: str,
    data: str,
    jobs: Callable[[Plan, str], list[Job]],
    finish: Callable[[Plan, str, Sequence[Any]], Outcome],
) -> Target:
    return Target(name, title, lambda plan: jobs(plan, data), lambda plan, results: finish(plan, data, results))


TARGETS: tuple[Target, ...] = (
    *(
        _target(
            f"ldp3-table-{i}", f"{PAPER}, Table {'I' * i}: l1 (times 1000) on {TITLES[data]}, ε = 1", data, table_jobs, table
        )
        for i, data in enumerate(TABLES, 1)
    ),
    *(
        _target(f"ldp3-figure-{i}", f"{PAPER}, Figure {i}: time against processes on {TITLES[data]}", data, figure_jobs, figure)
        for i, data in enumerate(TABLES, 3)
    ),
)
