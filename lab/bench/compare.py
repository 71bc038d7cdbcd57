"""Shows what a change costs: the least processor time of a few tasks, divided by that of a fixed NumPy task.

python -m lab.bench.compare [--save]
"""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from rich.table import Table

from lab.bench.estimators import expected, filter_steps, reported, shares
from ldpstream.estimators import empirical_bayes, ibu, mle
from ldpstream.mechanisms import LONGITUDINAL, Mechanism, mechanism
from ldpstream.output.terminal import console, table
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.surveys import parse_survey

BASELINE = Path(__file__).with_name("baseline.json")
K, LARGE_K, REPORTS = 1000, 100_000, 100_000
TURNS = 9
SLOWER = 1.25  # a larger ratio is marked; on a busy machine, a figure of one version may differ as much
Tasks = dict[str, Callable[[], object]]


def unit() -> None:
    x = np.random.default_rng(1).random(2**17)
    np.sort(x)
    np.exp(x).sum()


def tasks() -> Tasks:
    oue, olh = mechanism("OUE", k=K, eps=1.0), mechanism("OLH", k=K, eps=1.0)
    counts, hashed = expected(oue, 100_000), reported(olh, 10_000)
    many = mechanism("OLH", k=LARGE_K, eps=1.0)
    hashed_many = reported(many, 1_000_000)
    found: Tasks = {f"{what}, 20 attributes": run for what, run in filter_steps(K).items()}
    found |= {
        "step and window of two attributes": _spans(),
        "empirical Bayes, OUE": lambda: empirical_bayes(oue, counts).interval(),
        "empirical Bayes, ordered, OUE": lambda: empirical_bayes(oue, counts, ordered=True).interval(),
        "10 000 iterations of IBU, OUE": lambda: ibu(oue, counts, tol=0.0),
        "exact maximum likelihood, OLH": lambda: mle(olh, hashed),
        f"exact maximum likelihood, OLH, k={LARGE_K:,}": lambda: mle(many, hashed_many),
        "loss of 1001 reports, L-OSUE": _loss,
    }
    for name in ("GRR", "OUE", "SS", "L-OSUE", "L-OLH"):
        m = mechanism(name, k=K, eps_inf=2.0, eps_1=1.0) if name in LONGITUDINAL else mechanism(name, k=K, eps=1.0)
        rng = np.random.default_rng(1)
        values = rng.choice(K, REPORTS, p=shares(K))
        found[f"{REPORTS:,} reports, {name}"] = partial(_simulate, m, values)
        found[f"{REPORTS:,} counted, {name}"] = partial(m.tabulate, m.simulate(values, rng))
    return found


def _spans() -> Callable[[], object]:
    level = {"name": "all", "eps_inf": 4.0, "eps_1": 2.0}
    survey = parse_survey({
        "name": "compare", "start": datetime(2026, 1, 5, tzinfo=UTC), "step_seconds": 3600, "window_steps": 3,
        "lateness_steps": 0, "collection": "spl",
        "attribute": [{"name": name, "size": K, "level": [level | {"mechanism": name}]} for name in ("L-OSUE", "L-OLH")],
    })  # fmt: skip
    panes = [[[reported(m, 1000, step)] for step in range(3)] for (m,) in survey.mechanisms]

    def run() -> None:
        for attribute, of_steps in enumerate(panes):
            conclude(survey, attribute, 2, "step", of_steps[2:], True, of_steps[1])
            conclude(survey, attribute, 2, "window", of_steps, True)

    return run


def _loss() -> None:
    mechanism("L-OSUE", k=K, eps_inf=2.0, eps_1=1.0).eps_sequence(1001)


def _simulate(m: Mechanism, values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    m.simulate(values, np.random.default_rng(2))


def measure(asked: Tasks, turns: int = TURNS) -> dict[str, float]:
    figures = {}
    for name, run in asked.items():
        run()
        times = np.array([(_cpu_s(run), _cpu_s(unit)) for _ in range(turns)])
        figures[name] = float(np.divide(*times.min(axis=0)))
    return figures


def _cpu_s(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def comparison(now: dict[str, float], before: dict[str, float]) -> Table:
    shown = table(f"Processor time, k = {K}, in units of a fixed NumPy task", "task", "before", "now", "ratio")
    for name, figure in now.items():
        ratio = figure / before[name] if name in before else None
        said = "new" if ratio is None else f"[bold red]{ratio:.2f}[/]" if ratio > SLOWER else f"{ratio:.2f}"
        shown.add_row(name, f"{before[name]:.3g}" if name in before else "", f"{figure:.3g}", said)
    return shown


def main(arguments: list[str]) -> None:
    if arguments not in ([], ["--save"]):
        sys.exit("usage: python -m lab.bench.compare [--save]")
    now = measure(tasks())
    console.print(comparison(now, msgspec.json.decode(BASELINE.read_bytes(), type=dict[str, float])))
    if arguments:
        rounded = {name: float(f"{figure:.3g}") for name, figure in now.items()}
        BASELINE.write_bytes(msgspec.json.format(msgspec.json.encode(rounded)) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:])
