"""Terminal tables and summaries of the audit and of the mechanisms' benchmark."""

import re

from rich.table import Table

from lab.bench.mechanisms import FAST, STREAM_LIMIT_MIB, Bench, Measured, Speed
from lab.peers.environment import LIBRARIES
from ldpstream.checks.audit.audit import HORIZONS, Audited, Report, T
from ldpstream.checks.audit.finding import Finding, Loss

NONE = "–"


def table(title: str, *columns: str, texts: int = 1) -> Table:
    """An empty table. The first `texts` columns hold texts, the other columns hold numbers."""
    empty = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        empty.add_column(column, justify="left" if i < texts else "right", no_wrap=i < texts)
    return empty


# ---- the audit


def audit_tables(result: Report) -> list[Table]:
    """Four tables: claimed, enumerated and audited losses; the loss of t reports; the spaced level; the controls."""
    paths = list(dict.fromkeys(f.path for row in result.rows for f in row.findings))
    bounds = [f"≥ {path}" for path in paths]
    losses = table(f"Loss of one report and of the memo, in nats, k = {result.k}", "mechanism", "ε₁", "enumerated", *bounds,
                   "ε∞", "enumerated", *bounds)  # fmt: skip
    horizons = (f"t={t}" for t in HORIZONS)
    over_time = table("Loss of t reports of an unchanged value, in nats", "mechanism", *horizons, "enumerated",
                      *(f"t={T} {bound}" for bound in bounds))  # fmt: skip
    for row in result.rows:
        losses.add_row(_short(row.mechanism), _loss(row.eps_1), _loss(row.enumerated_eps_1), *_bounds(row, paths, "eps_1"),
                       _loss(row.eps_inf), _loss(row.enumerated_eps_inf), *_bounds(row, paths, "eps_inf"))  # fmt: skip
        if row.eps_inf is not None:  # the losses of one-time mechanisms add up
            over_time.add_row(_short(row.mechanism), *map(_loss, row.eps_t), _agreement(row), *_bounds(row, paths, "eps_t"))
    spaced = table("Spaced level of real devices, GRR, k = 2, ε = 1: losses in nats", "loss", "reports", "claimed", "≥ audited")
    for finding in result.spaced:
        spaced.add_row(finding.loss, str(finding.t), _loss(finding.claimed), _bound(finding))
    columns = ("fault", "mechanism", "claimed", "≥ audited", "caught")
    broken = table("Broken on purpose: the bound must be above the claim", *columns, texts=2)
    for control in result.controls:
        caught = "yes" if control.caught else "[bold red]no[/]"
        broken.add_row(
            control.fault, _short(control.mechanism), _loss(control.finding.claimed), _loss(control.finding.bound), caught
        )
    return [losses, over_time, spaced, broken]


def audit_verdict(result: Report) -> str:
    """Summary of the run in a few sentences."""
    failed = sum(not f.kept for f in result.findings)
    caught = sum(control.caught for control in result.controls)
    sizes = {f.path: f.n for row in result.rows for f in row.findings}
    reports = ", ".join(f"{n:,} {path}" for path, n in sizes.items())
    return (
        f"{failed} of {result.n_bounds} bounds are above their claim. If every claim holds, this number is 0 with probability"
        f" {result.joint_confidence:g}. {caught} of {len(result.controls)} broken mechanisms caught."
        f" Reports of each value: {reports}{_devices(result)}. Seed {result.seed}; devices use the operating system's"
        " randomness."
    )


def _loss(x: float | None) -> str:
    return NONE if x is None else f"{x:.3f}"


def _bounds(row: Audited, paths: list[str], loss: Loss) -> list[str]:
    """The audited bounds of a loss; a bound above its claim is red."""
    found = [next((f for f in row.findings if (f.path, f.loss) == (path, loss)), None) for path in paths]
    return [NONE if f is None else _bound(f) for f in found]


def _bound(finding: Finding) -> str:
    """An audited bound; red if it is above its claim."""
    return _loss(finding.bound) if finding.kept else f"[bold red]{finding.bound:.3f}[/]"


def _devices(result: Report) -> str:
    return f"; spaced devices of each sequence: {result.spaced[0].n:,}" if result.spaced else ""


def _agreement(row: Audited) -> str:
    """Largest difference between enumeration and formula, over all t."""
    return f"±{max(abs(a - b) for a, b in zip(row.eps_t, row.enumerated_eps_t, strict=True)):.0e}"


def _short(signature: str) -> str:
    """A mechanism's signature without the parts that the table's title shows."""
    return re.sub(r"k=\d+, |, exact", "", signature)


# ---- the benchmark


def bench_tables(result: Bench) -> list[Table]:
    """Tables of our rates, and of our rates beside the other libraries' rates, with ratios."""
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
    """Sentences on the results that the tables do not show."""
    stream = result.stream
    kept = "below" if stream.peak_mib < STREAM_LIMIT_MIB else "ABOVE"
    return [
        f"{stream.n:,} GRR reports drawn, perturbed and counted in blocks: {rate(stream.per_s)}/s, peak memory of the process"
        f" {stream.peak_mib:.0f} MiB, {kept} {STREAM_LIMIT_MIB} MiB.",
        "Rates are per second of processor time, the best of several runs. × ours is our rate divided by the other library's"
        " rate in this run. The other libraries take one value at a time, so their rates are for the n shown.",
        *(f"Other libraries: {missing}" for missing in result.peers_missing),
    ]


def _add_beside(beside: Table, name: str, s: Speed, libraries: list[str], n: int) -> None:
    """Adds a mechanism's rows: our rates and memory beside those of two libraries, in the order of `LIBRARIES`."""
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
    """A rate per second to three digits."""
    if x is None:
        return NONE
    unit, name = next(((u, name) for u, name in ((1e6, " M"), (1e3, " k")) if x >= u), (1.0, ""))
    return f"{float(f'{x / unit:.3g}'):,g}{name}"
