"""Terminal table and notes of the gateway's benchmark."""

from rich.table import Table

from lab.bench.gateway import GatewayBench
from ldpstream.terminal import NONE, table

DEVICES = 1e9  # each sends one report an hour


def gateway_table(result: GatewayBench) -> Table:
    """Table of the servers: processor time in µs, cores for a billion devices that report every hour, waiting times in ms."""
    shown = table("Requests to the gateway, and to servers that do nothing with them", "server", "CPU µs/request",
                  "µs/report", "cores for 10⁹/h", "p50 ms", "p99 ms")  # fmt: skip
    for row in result.served:
        ours = row.server.startswith("gateway")
        cores = f"{DEVICES / 3600 * row.cpu_us / 1e6 / row.reports:.1f}" if ours else NONE
        per_report = f"{row.cpu_us / row.reports:.1f}" if ours else NONE
        shown.add_row(row.server, f"{row.cpu_us:.1f}", per_report, cores, f"{row.p50_ms:.0f}", f"{row.p99_ms:.0f}")
    return shown


def gateway_notes(result: GatewayBench) -> list[str]:
    """Sentences on the results that the table does not show."""
    notes = [f"Not installed: {', '.join(result.missing)}."] if result.missing else []
    if (over := result.overload) is not None:
        answers = ", ".join(f"{count:,} × {status}" for status, count in sorted(over.statuses.items()))
        notes.append(
            f"{over.connections} connections for {over.seconds:.0f} s: {answers}; {over.records:,} records in the log."
        )
    return notes
