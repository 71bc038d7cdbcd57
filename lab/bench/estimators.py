"""Measures the processor times of our and of other libraries' estimators on one core."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import msgspec
import numpy as np
from rich.table import Table

from lab.drawn_tables import drawn_table
from lab.peers.environment import LIBRARIES, accuracy_of_peers, time_peers
from ldpstream.estimators import empirical_bayes, ibu, mle
from ldpstream.estimators.estimate import Estimate, Group
from ldpstream.estimators.filter.local_level import LocalLevel
from ldpstream.mechanisms import CountTable, Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.estimates.filtering import conclude_filtered
from ldpstream.surveys import parse_survey

SIZES = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
ATTRIBUTES = 20  # attributes of the filter's tasks
PEER_REPORTS = 2000


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    task: str
    value: float
    unit: str
    target: float | None
    note: str = ""


def shares(k: int) -> FloatArray:
    f = 1 / (1 + np.arange(k)) ** 1.1
    return np.asarray(f / f.sum())


def expected(m: Mechanism, n: int, seed: int = 1) -> CountTable:
    rng = np.random.default_rng(seed)
    chances = m.q + (m.p - m.q) * shares(m.k)
    if m.marks == 1:
        return m.table(n, rng.multinomial(n, chances / chances.sum()))
    return m.table(n, rng.binomial(n, chances))


def reported(m: Mechanism, n: int, seed: int = 1) -> CountTable:
    rng = np.random.default_rng(seed)
    return m.tabulate(m.simulate(rng.choice(m.k, n, p=shares(m.k)), rng))


def best_of(run: Callable[[], object], repeats: int) -> float:
    run()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def measure(quick: bool, peers: bool, seen: Callable[[str], None]) -> list[Timing]:
    k, large, huge = (100, 1000, 10_000) if quick else (1000, 100_000, 1_000_000)
    repeats, rows = (1 if quick else 5), []  # type: int, list[Timing]

    def add(task: str, run: Callable[[], Estimate | object], target: float | None, repeats: int = repeats) -> None:
        seen(task)
        found = run()
        note = ""
        if isinstance(found, Estimate):
            note = f"{found.iterations} iterations, at most {found.gap:.1e} nats"
        rows.append(Timing(task=task, value=best_of(run, repeats), unit="s", target=target, note=note))

    oue, grr = mechanism("OUE", k=k, eps=1.0), mechanism("GRR", k=huge, eps=1.0)
    table, wide = expected(oue, 100_000), expected(grr, 10_000_000)
    levels: list[Group] = [
        (m, expected(m, 20_000, i)) for i, m in enumerate(mechanism("OUE", k=k, eps=0.3 * e) for e in range(1, 11))
    ]
    add(f"IBU, OUE, k={k}: 10 000 iterations", lambda: ibu(oue, table, tol=0.0), 0.3)
    add(f"maximum likelihood, OUE, k={k}", lambda: mle(oue, table), 0.1)
    add(f"maximum likelihood, GRR, k={huge}", lambda: mle(grr, wide), 0.5)
    add(f"GIBU, 10 levels of OUE, k={k}: 10 000 iterations", lambda: ibu(levels, tol=0.0), 1.0)
    add(f"maximum likelihood, 10 levels of OUE, k={k}", lambda: mle(levels), 1.0)
    for name, own, target in (("OUE", oue, 0.02), ("GRR", mechanism("GRR", k=k, eps=1.0), 0.02)):
        counts = expected(own, 100_000)
        add(f"empirical Bayes with intervals, {name}, k={k}", partial(_with_intervals, empirical_bayes, own, counts), target)
    ordered = partial(empirical_bayes, ordered=True)
    add(f"the same for ordered values, OUE, k={k}", partial(_with_intervals, ordered, oue, table), None)
    for what, run in filter_steps(k).items():
        add(f"{what}, {ATTRIBUTES} attributes of OUE, k={k}: one step", run, 0.05)
    for size, decode, exact in ((k, 0.003, 0.5), (large, None, 30.0), (huge, 1.0, None)):
        olh = mechanism("OLH", k=size, eps=1.0)
        counts = reported(olh, 10_000 if quick else 1_000_000)
        add(f"decoding, OLH, k={size}", partial(olh.support, counts), decode)
        if exact is not None:
            task = f"exact maximum likelihood, OLH, k={size}"
            add(task, partial(mle, olh, counts, likelihood="exact"), exact, 1)
    for name, n, target in (("GRR", 10_000_000, 100.0), ("L-OLH", 10_000_000, 50.0), ("OUE", 200_000, 5.0)):
        rows.append(_tabulation(name, k, n // (100 if quick else 1), target, repeats, seen))
    for n in SIZES:
        same = expected(oue, n)
        add(f"maximum likelihood, OUE, k={k}, n={n:.0e}", partial(mle, oue, same), None)
    if peers:
        rng = np.random.default_rng(1)
        people = rng.multinomial(PEER_REPORTS, shares(k))
        counts = oue.support(drawn_table(oue, people, rng)).tolist()
        asked = {
            "k": k, "p": oue.p, "q": oue.q, "n": PEER_REPORTS, "people": [people.tolist()] * 2, "counts": [counts] * 2,
            "ordered": False, "ibu": 2, "fast": None,
        }  # fmt: skip
        for line in accuracy_of_peers([asked], seen):
            if "ibu_seconds" in line:
                task = f"multi-freq-ldpy 0.2.5: IBU, OUE, k={k}, 10 000 iterations"
                rows.append(Timing(task=task, value=line["ibu_seconds"], unit="s", target=None))
        rows += _counting_of_peers(k, seen)
    return rows


def _with_intervals(
    estimate: Callable[[Mechanism, CountTable], Estimate], m: Mechanism, table: CountTable
) -> tuple[FloatArray, FloatArray]:
    return estimate(m, table).interval()


def filter_steps(k: int) -> dict[str, Callable[[], object]]:
    asked = parse_survey({
        "name": "filter", "start": datetime(2026, 1, 5, tzinfo=UTC), "step_seconds": 3600, "window_steps": 25,
        "lateness_steps": 1, "collection": "spl",
        "attribute": [{
            "name": "zone", "size": k, "level": [{"name": "only", "mechanism": "OUE", "eps": 1.0, "every_steps": 25}],
        }],
    })  # fmt: skip
    (m,), rng = asked.mechanisms[0], np.random.default_rng(1)
    tables = [m.table(1000, rng.binomial(1000, m.q + (m.p - m.q) * shares(k))) for _ in range(3)]
    steps = [conclude(asked, 0, t, "step", [[table]], True) for t, table in enumerate(tables)]
    state = None
    for table, step in zip(tables[:2], steps, strict=False):
        _, state = conclude_filtered((m,), [table], [step], state)
    levels = [LocalLevel.from_bytes(state) for _ in range(ATTRIBUTES)] if state else []
    raw, fresh = rng.normal(shares(k), 0.05), np.full(k, 0.05**2)
    return {
        "filtered publication": lambda: [conclude_filtered((m,), tables[2:], steps[2:], state) for _ in range(ATTRIBUTES)],
        "filter alone": lambda: [level.step(raw, fresh) for level in levels],
    }


def _counting_of_peers(k: int, seen: Callable[[str], None]) -> list[Timing]:
    task = {
        "n": 100_000, "k": k, "eps": 1.0, "eps_inf": 2.0, "eps_1": 1.0, "seconds": 0.5, "repeats": 2,
        "mechanisms": ["GRR", "OUE", "OLH", "FLH", "L-OLH"],
    }  # fmt: skip
    rows = []
    for line in time_peers(task, seen):
        if line.get("what") == "tabulate":
            name = f"{line['library']} {LIBRARIES[line['library']]}: counting, {line['mechanism']}, k={k}"
            rows.append(Timing(task=name, value=line["per_s"] / 1e6, unit="M reports/s", target=None))
    return rows


def _tabulation(name: str, k: int, n: int, target: float, repeats: int, seen: Callable[[str], None]) -> Timing:
    seen(f"counting, {name}")
    m = mechanism(name, k=k, eps_inf=2.0, eps_1=1.0) if name.startswith("L-") else mechanism(name, k=k, eps=1.0)
    rng = np.random.default_rng(1)
    values = rng.integers(0, k, n)
    reports = m.simulate(values, rng)
    rate = n / best_of(lambda: m.tabulate(reports), repeats) / 1e6
    return Timing(task=f"counting, {name}, k={k}", value=rate, unit="M reports/s", target=target)


def timing_table(rows: list[Timing]) -> Table:
    shown = Table("task", "measured", "target", "met", "iterations, and distance to the maximum", title="Estimators, one core")
    for row in rows:
        rate = row.unit != "s"
        met = "" if row.target is None else "yes" if (row.value >= row.target if rate else row.value <= row.target) else "no"
        target = "" if row.target is None else f"{'≥' if rate else '≤'} {row.target:g}"
        shown.add_row(row.task, f"{row.value:.3g} {row.unit}", target, met, row.note)
    return shown
