"""Measures how many reports one core perturbs and counts in a second of processor time, beside other libraries."""

import resource
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lab.peers.environment import PeersError, time_peers
from lab.processes import process_pool
from ldpstream.mechanisms import LONGITUDINAL, NAMES, ONE_TIME, Longitudinal, OneTime
from ldpstream.mechanisms.families.grr import GRR

EPS, EPS_INF, EPS_1 = 1.0, 2.0, 1.0
SEED = 20260101
REPEATS = 5
PEER_SECONDS = 1.0
PEER_REPEATS = 3
FAST = "pure-ldp FLH"  # pure-ldp's fast local hashing, which we compare with OLH
STREAM_BLOCK = 2**20
STREAM_LIMIT_MIB = 1024
WARM_UP = 1000
TARGETS = {"GRR": 20e6, "L-GRR": 20e6, "L-OLH": 15e6, "OUE": 5e6, "L-OSUE": 3e6, "SS": 3e6}


@dataclass(frozen=True, slots=True)
class Measured:
    per_s: float
    n: int


@dataclass(slots=True)
class Speed:
    """One mechanism's rates, per second.

    Attributes:
        memo: rate of first rounds; None for a one-time mechanism.
        report: rate of reports, drawn from memos if the mechanism is longitudinal.
        fresh: rate of reports drawn from values, in both rounds if the mechanism is longitudinal.
        tabulate: rate of counted reports.
        peak_mib: peak memory of one call to `report`, in MiB, including the result.
        peers: rates of other libraries, by name and step.
        peer_bytes: peak memory of other libraries, in bytes for each report.
    """

    mechanism: str
    memo: float | None
    report: float
    fresh: float
    tabulate: float
    peak_mib: float
    target: float | None
    peers: dict[str, dict[str, Measured]] = field(default_factory=dict)
    peer_bytes: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stream:
    n: int
    per_s: float
    peak_mib: float


@dataclass(frozen=True, slots=True)
class Bench:
    n: int
    k: int
    speeds: list[Speed]
    stream: Stream
    peers_missing: list[str]


def best_rate(run: Callable[[], object], n: int, repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return n / best


def peak_mib(run: Callable[[], object]) -> float:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        run()
        return (tracemalloc.get_traced_memory()[1] - before) / 2**20
    finally:
        tracemalloc.stop()


def measured_mechanism(name: str, k: int) -> OneTime | Longitudinal:
    return ONE_TIME[name](k=k, eps=EPS) if name in ONE_TIME else LONGITUDINAL[name](k=k, eps_inf=EPS_INF, eps_1=EPS_1)


def speed(name: str, n: int, k: int) -> Speed:
    m, rng = measured_mechanism(name, k), np.random.default_rng(SEED)
    values = rng.integers(0, k, n)
    m.tabulate(m.simulate(values[:WARM_UP], rng))
    memo, kept = None, values
    if isinstance(m, Longitudinal):
        memo, kept = best_rate(lambda: m.memoize(values, rng), n, REPEATS), m.memoize(values, rng)
    report = best_rate(lambda: m.report(kept, rng), n, REPEATS)
    peak = peak_mib(lambda: m.report(kept, rng))
    reports = m.report(kept, rng)
    tabulate = best_rate(lambda: m.tabulate(reports), n, REPEATS)
    fresh = report if memo is None else 1 / (1 / memo + 1 / report)
    return Speed(name, memo, report, fresh, tabulate, peak, TARGETS.get(name))


def stream_grr(n: int, k: int) -> Stream:
    m, rng = GRR(k, EPS), np.random.default_rng(SEED)
    table = m.empty_table()
    start = time.process_time()
    for begin in range(0, n, STREAM_BLOCK):
        values = rng.integers(0, k, min(STREAM_BLOCK, n - begin))
        table = table + m.tabulate(m.report(values, rng))
    seconds = time.process_time() - start
    assert table.n == n
    return Stream(n, n / seconds, _peak_rss_mib())


def _peak_rss_mib() -> float:
    status = Path("/proc/self/status")
    if status.exists():  # Linux's ru_maxrss starts from the parent process's peak
        return int(next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:")).split()[1]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS counts in bytes


def bench(n: int, k: int, peers: bool, progress: Callable[[str], None] = lambda _: None) -> Bench:
    speeds = []
    for name in NAMES:
        progress(name)
        speeds.append(speed(name, n, k))
    progress(f"{100 * n:,} GRR reports as a stream")
    with process_pool(1) as child:  # a new process, without an earlier memory peak
        stream = child.submit(stream_grr, 100 * n, k).result()
    return Bench(n, k, speeds, stream, _add_peers(speeds, n, k, progress) if peers else ["not requested"])


def _add_peers(speeds: list[Speed], n: int, k: int, progress: Callable[[str], None]) -> list[str]:
    task = {
        "n": n, "k": k, "eps": EPS, "eps_inf": EPS_INF, "eps_1": EPS_1, "seconds": PEER_SECONDS, "repeats": PEER_REPEATS,
    }  # fmt: skip
    by_name = {s.mechanism: s for s in speeds}
    missing = []
    try:
        for line in time_peers(task, progress):
            library, name = line["library"], line["mechanism"]
            if name == "FLH":
                library, name = FAST, "OLH"
            if "error" in line:
                missing.append(f"{library} {name}: {line['error']}")
            elif line["what"] == "memory":
                by_name[name].peer_bytes[library] = line["bytes"]
            else:
                by_name[name].peers.setdefault(library, {})[line["what"]] = Measured(line["per_s"], line["n"])
    except PeersError as error:
        missing.append(str(error))
    return missing
