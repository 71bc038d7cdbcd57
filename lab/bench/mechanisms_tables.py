from rich.table import Table

from lab.bench.mechanisms import FAST, STREAM_LIMIT_MIB, Bench, Measured, Speed
from lab.peers.environment import LIBRARIES
from ldpstream.output.terminal import NONE, table


def bench_tables(result: Bench) -> list[Table]:
    ours = table(f"One core, per second, n = {result.n:,}, k = {result.k:,}, ε = 1 (ε∞ = 2)", "mechanism", "memos",
                 "reports", "target", "counted", "peak MiB")  # fmt: skip
    for s in result.speeds:
        target = NONE if s.target is None else f"{rate(s.target)} {'met' if s.report >= s.target else '[bold red]missed[/]'}"
        ours.add_row(s.mechanism, rate(s.memo), rate(s.report), target, rate(s.tabulate), f"{s.peak_mib:.0f}")
    tables = [ours]
    if any(s.peers for s in result.speeds):
        titles = [title for name, version in LIBRARIES.items() for title in (f"{name} {version}", "× ours", "their n")]
        beside = table("Our rates and other libraries' rates: reports of values per second (both rounds), reports counted per"
                       " second, bytes allocated for each report", "mechanism",
                       "step", "ours", *titles, texts=2)  # fmt: skip
        for s in result.speeds:
            _add_beside(beside, s.mechanism, s, list(LIBRARIES), result.n)
            if FAST in s.peers:
                _add_beside(beside, f"{s.mechanism}, their FLH", s, ["", FAST], result.n)
        tables.append(beside)
    return tables


def bench_notes(result: Bench) -> list[str]:
    stream = result.stream
    kept = "below" if stream.peak_mib < STREAM_LIMIT_MIB else "ABOVE"
    return [
        f"{stream.n:,} GRR reports drawn, perturbed and counted in blocks: {rate(stream.per_s)}/s, peak memory of the process"
        f" {stream.peak_mib:.0f} MiB, {kept} {STREAM_LIMIT_MIB} MiB.",
        "Rates are per second of processor time, the best of several runs. × ours is our rate divided by the other library's"
        " rate in this run. The other libraries take one value at a time and are slow, so their rates are measured with fewer"
        ' values (the column "their n").',
        *(f"Other libraries: {missing}" for missing in result.peers_missing),
    ]


def _add_beside(beside: Table, name: str, s: Speed, libraries: list[str], n: int) -> None:
    beside.add_row(name, "report", rate(s.fresh), *_beside(s, s.fresh, "report", libraries))
    beside.add_row("", "count", rate(s.tabulate), *_beside(s, s.tabulate, "tabulate", libraries))
    own = s.peak_mib * 2**20 / n
    theirs = [cell for library in libraries for cell in _bytes(own, s.peer_bytes.get(library))]
    beside.add_row("", "bytes", f"{own:.0f}", *theirs)


def _beside(s: Speed, ours: float, step: str, libraries: list[str]) -> list[str]:
    cells = []
    for library in libraries:
        measured: Measured | None = s.peers.get(library, {}).get(step)
        cells += (
            [NONE] * 3
            if measured is None
            else [rate(measured.per_s), f"{float(f'{ours / measured.per_s:.3g}'):,g}", f"{measured.n:,}"]
        )
    return cells


def _bytes(own: float, theirs: float | None) -> list[str]:
    return [NONE] * 3 if theirs is None else [f"{theirs:.0f}", f"{float(f'{theirs / own:.3g}'):,g}", NONE]


def rate(x: float | None) -> str:
    if x is None:
        return NONE
    unit, name = next(((u, name) for u, name in ((1e6, " M"), (1e3, " k")) if x >= u), (1.0, ""))
    return f"{float(f'{x / unit:.3g}'):,g}{name}"
