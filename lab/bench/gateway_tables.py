from collections.abc import Sequence

import numpy as np
from rich.table import Table

from lab.bench.gateway import GatewayBench, Served
from lab.bench.one_machine import OneMachine
from ldpstream.output.terminal import NONE, table

DEVICES = 1e9  # each sends one report an hour


def requests_table(title: str, served: Sequence[Served]) -> Table:
    shown = table(title, "server", "CPU µs\na request", "a report", "cores\nfor 10⁹/h", "reports/s", "p50\nms", "p99\nms")
    for row in served:
        ours = row.server.startswith(("gateway", "serve"))
        cores = f"{DEVICES / 3600 * row.cpu_us / 1e6 / row.reports:.1f}" if ours else NONE
        per_report = f"{row.cpu_us / row.reports:.1f}" if ours else NONE
        rate = f"{row.requests * row.reports / row.seconds:,.0f}"
        shown.add_row(row.server, f"{row.cpu_us:.1f}", per_report, cores, rate, f"{row.p50_ms:.0f}", f"{row.p99_ms:.0f}")
    return shown


def gateway_notes(result: GatewayBench) -> list[str]:
    return [f"Not installed: {', '.join(result.missing)}."] if result.missing else []


def machine_notes(result: OneMachine) -> list[str]:
    p50, p99 = np.percentile(result.closes_s, [50, 99])
    return [
        f"serve: {result.idle_mib:.0f} MiB idle, {result.peak_mib:.0f} MiB at most after {result.reports:,} reports; "
        f"{result.bytes_per_report:.0f} bytes on disk for a report.",
        f"After a kill: ready after {result.ready_s:.1f} s, all acknowledged reports counted after {result.counted_s:.1f} s.",
        f"From a step's close to its histograms: p50 {p50:.2f} s, p99 {p99:.2f} s, {len(result.closes_s)} steps.",
    ]
