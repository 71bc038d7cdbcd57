"""The benchmark of many surveys: the costs read from `/proc`, its sizes and its tables."""

import os
import socket
import sys
from contextlib import closing

import pytest
from rich.console import Console

from lab.bench.process_costs import ProcessCosts
from lab.bench.surveys_results import Role, Served, SurveysBench
from lab.bench.surveys_tables import surveys_notes, surveys_tables
from ldpstream.runtime.settings import Settings

AGENTS, ESTIMATORS = (Role(ProcessCosts(150.4, 3, redis), 0.012) for redis in (2, 6))
RESULT = SurveysBench(
    2,
    [
        Served(50, 1, 1000, 9.75, 5, (1.25, 3.75), AGENTS, ESTIMATORS),
        Served(5, 5, 1000, 9.75, 5, (1.25, 3.75), AGENTS, ESTIMATORS),
    ],
)


def shown(result: SurveysBench) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(*surveys_tables(result), *surveys_notes(result))
    return " ".join(captured.get().replace("│", " ").split())


def test_all_results_are_shown() -> None:
    text = shown(RESULT)
    for wanted in ("50 1 9.8 1.25 3.75", "5 5 9.8 1.25", "2 cores"):
        assert wanted in text, (wanted, text)
    agents, _, estimators = text.partition("Agents of all pairs")[2].partition("Estimators of all pairs")
    assert "50 1 150 3 2 0.01" in agents
    assert "5 5 150 3 6" in estimators


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_connections_are_counted_by_their_remote_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as kafka, socket.create_server(("127.0.0.1", 0)) as redis:
        ports = kafka.getsockname()[1], redis.getsockname()[1]
        settings = Settings.model_validate({"kafka": f"127.0.0.1:{ports[0]}", "redis": f"redis://127.0.0.1:{ports[1]}"})
        before = ProcessCosts.of([os.getpid()], settings)
        assert (before.kafka_connections, before.redis_connections) == (0, 0)
        assert before.resident_mib > 0
        clients = [socket.create_connection(("127.0.0.1", port)) for port in (ports[0], ports[0], ports[1])]
        with closing(clients[0]), closing(clients[1]), closing(clients[2]):
            now = ProcessCosts.of([os.getpid()], settings)
            twice = ProcessCosts.of([os.getpid(), os.getpid()], settings)
        assert (now.kafka_connections, now.redis_connections) == (2, 1)
        assert (twice.kafka_connections, twice.redis_connections) == (4, 2)
