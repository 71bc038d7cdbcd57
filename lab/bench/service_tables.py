from statistics import median

from rich.table import Table

from lab.bench.mechanisms_tables import rate
from lab.bench.service_results import BARE_TARGET, CLOSE_TARGET_S, STOCK_TARGET, Counted, Run, ServiceBench
from ldpstream.output.terminal import NONE, table

PHASES = ("fetch", "decode", "tabulate", "fold", "commit", "loop", "rest")


def service_tables(result: ServiceBench) -> list[Table]:
    counted = table("Counting an existing log, per second, median over runs; CPU in µs a record; peak MiB", "log", "who",
                    "records", "MB", "reports", "CPU", "MiB", texts=2)  # fmt: skip
    for row in result.counted:
        counted.add_row(row.kind, "bare consumer", *_rates(row, row.bare))
        counted.add_row(f"of {row.record_bytes:.0f} B", "agent", *_rates(row, row.agent))
        cpu = f"{row.cpu_ratio:.2f}" if row.cpu_ratio else NONE
        ratio = f"{row.ratio:.2f}" if row.ratio >= BARE_TARGET else f"[bold red]{row.ratio:.2f}[/]"
        counted.add_row("", f"ratio, wanted {BARE_TARGET}", ratio, NONE, NONE, cpu, NONE)
    phases = table("An agent's processor time by phase, µs a record; fetch is the client library, with parsing", "log",
                   *PHASES, "sum")  # fmt: skip
    for spent in result.phases:
        seconds = [spent.cpu_s_per_million[phase] for phase in PHASES]
        phases.add_row(spent.kind, *(f"{s:.2f}" for s in seconds), f"{sum(seconds):.2f}")
    growth = table("Agents that are ready before the log fills, one report a record", "agents", "partitions", "records/s",
                   "× the first", "filled in s")  # fmt: skip
    for grown in result.growth:
        beside = grown.per_s / result.growth[0].per_s
        growth.add_row(str(grown.workers), str(grown.partitions), rate(grown.per_s), f"{beside:.2f}", f"{grown.fill_s:.1f}")
    produced = table("Produced: acknowledged by Kafka, per second", "how", "records", "reports", "÷ prepared batches")
    for made in result.produced:
        records = rate(made.records / made.seconds) if made.records else NONE
        produced.add_row(made.how, records, rate(made.reports / made.seconds), f"{made.ratio:.2f}")
    return [counted, phases, growth, produced]


def service_notes(result: ServiceBench) -> list[str]:
    notes = [
        f"Counting “{spent.kind}”: {spent.commits} commits of a partition, p50 {spent.commit_p50_ms:.1f} ms, "
        f"p99 {spent.commit_p99_ms:.1f} ms."
        for spent in result.phases
    ]
    if (stock := result.stock) is not None:
        notes.append(
            f"A stock Faust agent with one HINCRBY a report: {rate(stock.reports_per_s)} reports/s, one a record; our agent "
            f"reaches {stock.ratio:.0f} × that, {_against(stock.ratio, STOCK_TARGET)}."
        )
    if (closed := result.closed) is not None:
        own_s = closed.p99_s - closed.margin_s
        notes.append(
            f"From a step's close to the histograms of {closed.attributes} attributes of k = {closed.k}, {closed.steps} steps "
            f"of {closed.reports_per_step:,} reports: p50 {closed.p50_s:.2f} s, p99 {closed.p99_s:.2f} s. "
            f"The margin for brokers' clocks is {closed.margin_s:g} s of this time; without it p99 {own_s:.2f} s, target "
            f"{CLOSE_TARGET_S:g} s {'met' if own_s <= CLOSE_TARGET_S else 'missed'}."
        )
    if (recovery := result.recovery) is not None:
        notes.append(
            f"SIGKILL with {recovery.left_records:,} records to count: the next agent reads after {recovery.reading_s:.1f} s, "
            f"commits after {recovery.first_commit_s:.1f} s, has counted all after {recovery.all_counted_s:.1f} s."
        )
    if (kept := result.remembered) is not None:
        notes.append(
            f"{kept.keys:,} report keys of one partition: {kept.agent_bytes:g} bytes a key in the agent (at most "
            f"{kept.peak_bytes:g}), {kept.redis_bytes:g} in Redis. Commits of 16,384 new keys: "
            f"{kept.commits}, p50 {kept.commit_p50_ms:.1f} ms, p99 {kept.commit_p99_ms:.1f} ms. "
            f"A new owner has read all keys after {kept.load_s:.2f} s, counts after {kept.ready_s:.2f} s (both from its start)."
        )
    notes.append(
        f"{result.cores} cores for broker, Redis, agents and producers, so more agents than free cores gain nothing. "
        "After every run the count tables were exactly what was sent: nothing lost, nothing counted twice."
    )
    return notes


def _rates(row: Counted, runs: list[Run]) -> list[str]:
    per_s = median(run.per_s for run in runs)
    cpu = [1e6 * run.cpu_s / run.records for run in runs if run.cpu_s is not None]
    peak = [run.peak_mib for run in runs if run.peak_mib is not None]
    return [
        rate(per_s), f"{per_s * row.record_bytes / 1e6:.0f}", rate(per_s * row.reports_per_record),
        f"{median(cpu):.3g}" if cpu else NONE, f"{max(peak):.0f}" if peak else NONE,
    ]  # fmt: skip


def _against(ratio: float, target: float) -> str:
    return f"target {target:g} {'met' if ratio >= target else 'missed'}"
