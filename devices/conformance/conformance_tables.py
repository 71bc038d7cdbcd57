"""Terminal tables of the conformance check."""

from collections.abc import Sequence

from rich.table import Table

from devices.conformance.conformance import Conformance
from ldpstream.mechanisms.wording import plural
from ldpstream.output.terminal import table


def conformance_tables(found: Conformance) -> list[Table]:
    tables = []
    for place in dict.fromkeys(one.place for one in found.tested):
        tests = table(f"Shares: {place}", "check", "reports", "expected", "observed", "detects ±")
        for one in (one for one in found.tested if one.place == place):
            observed = f"{one.observed:.5f}" if one.passed else f"[bold red]{one.observed:.5f}[/]"
            tests.add_row(one.check, f"{one.trials:,}", f"{one.expected:.5f}", observed, f"{one.detectable:.5f}")
        tables.append(tests)
    title = "Privacy loss of reports of an unchanged value, in nats"
    audited = table(title, "attribute, level", "reports", "claimed", "≥ audited", "devices")
    for bound in found.bounds:
        least = "too few devices" if bound.bound is None else f"{bound.bound:.3f}"
        shown = least if bound.kept else f"[bold red]{least}[/]"
        audited.add_row(bound.place, str(bound.t), f"{bound.claimed:.3f}", shown, f"{bound.n:,}")
    return [*tables, audited]


def conformance_verdict(found: Conformance) -> str:
    tests = sum(one.tests for one in found.tested)
    reports = f"{plural(found.reports, 'report')} of {plural(found.devices, 'device')}"
    size = f"{plural(found.calls, 'call')}, {reports}, {plural(tests, 'test')}"
    chance = f"a correct device fails with probability at most {found.false_alarm:g}"
    return f"{passed_or_failed(found.failures)} ({size}; {chance})"


def passed_or_failed(failures: Sequence[str]) -> str:
    return f"failed: {len(failures)} finding{'s' if len(failures) > 1 else ''}" if failures else "passed"
