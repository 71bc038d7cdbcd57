"""`python -m lab.bench gateway` with a real Kafka and Redis, at tiny sizes: the gateway, and the clean-up."""

import pytest
from rich.console import Console

from lab.bench import gateway, one_machine
from lab.bench.gateway import BATCH, QUICK, GatewayBench, Served, bench
from lab.bench.gateway_tables import gateway_notes, machine_notes, requests_table
from ldpstream.runtime.settings import Settings

from .test_bench_service import held


def test_the_gateway_is_measured(kafka: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other servers are replaced by a program that is not installed."""
    monkeypatch.setenv("LDPSTREAM_KAFKA", kafka)
    monkeypatch.setenv("LDPSTREAM_REDIS", redis_url)
    monkeypatch.setattr(gateway, "_others", lambda: {"another server": ["no-such-program"]})
    result = bench(Settings(), QUICK)
    assert held(kafka) == (set(), set())
    servers = [("gateway", 1), ("gateway without its direct path", 1), ("gateway, batches", BATCH)]
    assert [(row.server, row.reports) for row in result.served] == servers
    assert all(row.requests > 0 and row.p50_ms <= row.p99_ms for row in result.served)
    assert all(row.cpu_s > 0 for row in result.served)
    assert result.missing == ["another server"]


def test_serve_is_measured() -> None:
    result = one_machine.bench(QUICK, one_machine.QUICK)
    servers = ["serve", "serve, batches"]
    assert [(row.server, row.reports) for row in result.served] == list(zip(servers, (1, BATCH), strict=True))
    assert result.reports >= result.served[0].requests + BATCH * result.served[1].requests > 0
    assert result.peak_mib >= result.idle_mib > 0
    assert result.counted_s >= result.ready_s > 0
    assert len(result.closes_s) == one_machine.QUICK.steps
    assert min(result.closes_s) > 0
    for text in (f"{result.reports:,} reports", "p99"):
        assert any(text in note for note in machine_notes(result))


def test_the_table_states_time_and_cores() -> None:
    rows = [Served("gateway", 1000, 1, 2.0, 0.05, 1.0, 2.0), Served("nginx", 1000, 1, 2.0, 0.01, 1.0, 2.0)]
    result = GatewayBench(rows, ["granian"])
    console = Console(width=200)
    with console.capture() as captured:
        console.print(requests_table("Requests", result.served), *gateway_notes(result))
    shown = captured.get()
    for text in ("50.0", "13.9", "10.0", "Not installed: granian."):
        assert text in shown
