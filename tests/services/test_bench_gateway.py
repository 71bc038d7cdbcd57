"""`python -m lab.bench gateway` with a real Kafka and Redis, at tiny sizes: the gateway, the overload, and the clean-up."""

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lab.bench import gateway, one_machine
from lab.bench.gateway import BATCH, QUICK, GatewayBench, Overload, Served, bench
from lab.bench.gateway_tables import gateway_notes, gateway_table, machine_notes
from lab.bench.service_site import BenchError
from ldpstream.runtime.settings import Settings

from .test_bench_service import held


def test_the_gateway_is_measured_and_the_log_has_what_it_acknowledged(
    kafka: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other servers are replaced by a program that is not installed."""
    monkeypatch.setenv("LDPSTREAM_KAFKA", kafka)
    monkeypatch.setenv("LDPSTREAM_REDIS", redis_url)
    monkeypatch.setattr(gateway, "_others", lambda: {"another server": ["no-such-program"]})
    result = bench(Settings(), QUICK)
    assert held(kafka) == (set(), set())
    servers = [("gateway", 1), ("gateway, batches", BATCH), ("gateway, relay", 1)]
    assert [(row.server, row.reports) for row in result.served] == servers
    assert all(row.requests > 0 and row.p50_ms <= row.p99_ms for row in result.served)
    assert all(row.cpu_s > 0 for row in result.served[:2])  # requests through a relay are few
    assert result.overload is not None
    assert 0 < result.overload.statuses[202] <= result.overload.records
    assert result.missing == ["another server"]


def test_serve_is_measured_beside_the_gateway(kafka: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LDPSTREAM_KAFKA", kafka)
    monkeypatch.setenv("LDPSTREAM_REDIS", redis_url)
    result = one_machine.bench(Settings(), QUICK, one_machine.QUICK)
    assert held(kafka) == (set(), set())
    servers = ["gateway, Kafka", "gateway, Kafka, batches", "serve", "serve, batches"]
    assert [(row.server, row.reports) for row in result.served] == list(zip(servers, (1, BATCH) * 2, strict=True))
    assert result.reports >= result.served[2].requests + BATCH * result.served[3].requests > 0
    assert result.peak_mib >= result.idle_mib > 0
    assert result.counted_s >= result.ready_s > 0
    assert len(result.closes_s) == one_machine.QUICK.steps
    assert min(result.closes_s) > 0
    for text in (f"{result.reports:,} reports", "p99"):
        assert any(text in note for note in machine_notes(result))


def test_an_acknowledged_report_that_is_not_in_the_log_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: the benchmark must notice a loss."""
    monkeypatch.setattr(gateway, "load", lambda *_: {"seconds": 1.0, "statuses": {"202": 5, "503": 1}, "closed": 0})
    records = iter([10, 14])
    monkeypatch.setattr(gateway, "_records", lambda _: next(records))
    site: Any = None  # the replaced functions do not use it
    with pytest.raises(BenchError, match="5 reports acknowledged, 4 in the log"):
        gateway._overload(site, 1, QUICK, Path())


def test_the_table_states_time_and_cores() -> None:
    rows = [Served("gateway", 1000, 1, 2.0, 0.05, 1.0, 2.0), Served("nginx", 1000, 1, 2.0, 0.01, 1.0, 2.0)]
    result = GatewayBench(rows, Overload(20, 1.0, {202: 5, 503: 1}, 5), ["granian"])
    console = Console(width=200)
    with console.capture() as captured:
        console.print(gateway_table(result), *gateway_notes(result))
    shown = captured.get()
    for text in ("50.0", "13.9", "10.0", "Not installed: granian.", "5 × 202, 1 × 503; 5 records in the log."):
        assert text in shown
