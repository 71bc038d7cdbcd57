"""Terminal tables and the verdict of the audit."""

import math
import re

from rich.table import Table

from lab.audit.audit import Audited, Report, T
from lab.audit.finding import Finding, Loss
from ldpstream.output.terminal import NONE, table


def audit_tables(result: Report) -> list[Table]:
    paths = list(dict.fromkeys(f.path for row in result.rows for f in row.findings))
    bounds = [f"≥ {path}" for path in paths]
    losses = table(f"Loss of one report and of the memo, in nats, k = {result.k}", "mechanism", "ε₁", *bounds, "ε∞", *bounds)
    over_time = table(f"Loss of {T} reports of an unchanged value, in nats", "mechanism", "ε_t", *bounds)
    for row in result.rows:
        losses.add_row(_short(row.mechanism), *_bounds(row, paths, "eps_1"), *_bounds(row, paths, "eps_inf"))
        if row.memoized:  # the losses of one-time mechanisms add up
            over_time.add_row(_short(row.mechanism), *_bounds(row, paths, "eps_t"))
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
    failed = sum(not f.kept for f in result.findings)
    caught = sum(control.caught for control in result.controls)
    sizes = {f.path: f.n for row in result.rows for f in row.findings}
    reports = ", ".join(f"{n:,} {path}" for path, n in sizes.items())
    return (
        f"{failed} of {result.n_bounds} bounds are above their claim. If every claim holds, this number is 0 with probability"
        f" {result.joint_confidence:g}. {caught} of {len(result.controls)} broken mechanisms caught."
        f" Reports of each value: {reports}; spaced devices of each sequence: {result.spaced[0].n:,}. Seed {result.seed};"
        " devices use the operating system's randomness."
    )


def _loss(x: float) -> str:
    return f"{x:.3f}"


def _bounds(row: Audited, paths: list[str], loss: Loss) -> list[str]:
    """The claimed loss, and the bound of each path."""
    found = [f for f in row.findings if f.loss == loss]
    return [_loss(found[0].claimed), *map(_bound, found)] if found else [NONE] * (1 + len(paths))


def _bound(finding: Finding) -> str:
    bound = f"{math.floor(1000 * finding.bound) / 1000:.3f}"
    return bound if finding.kept else f"[bold red]{bound}[/]"


def _short(signature: str) -> str:
    return re.sub(r"k=\d+, |, exact", "", signature)
