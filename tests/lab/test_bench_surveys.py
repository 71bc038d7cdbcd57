"""The benchmark of many surveys: the costs read from `/proc`, its sizes and its tables."""

import os
import socket
import sys
from contextlib import closing

import pytest
from rich.console import Console

from lab.bench.process_costs import ProcessCosts
from lab.bench.surveys import FULL, QUICK
from lab.bench.surveys_results import Answer, Role, Served, SimulatedAgent, SimulatedEstimator, SurveysBench
from lab.bench.surveys_tables import surveys_notes, surveys_tables
from ldpstream.runtime.settings import Settings

AGENTS, ESTIMATORS = (Role(ProcessCosts(150.4, 120.2, 9, 3, redis), 0.012, 0.345) for redis in (2, 6))
ANSWER = Answer(1500, 12.4, 7.6)
RESULT = SurveysBench(
    2,
    [
        Served(
            50, 1, 1000, 4.25, 9.75, 123_456.0, 7.5, 5, (1.25, 2.5, 3.75), AGENTS, ESTIMATORS, ANSWER, ANSWER, ANSWER, ANSWER
        ),
        Served(5, 5, 1000, 4.25, 9.75, None, 7.5, 5, (1.25, 2.5, 3.75), AGENTS, ESTIMATORS, ANSWER, ANSWER, None, None),
    ],
    SimulatedAgent(500, 2000, 0.375, 0.5, 1_000_000, 2.75, 8.5, 6),
    SimulatedEstimator(500, 1.125, 0.875, 33.5, 55.5, 40.5, ANSWER, ANSWER, ANSWER),
)


def shown(result: SurveysBench) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(*surveys_tables(result), *surveys_notes(result))
    return " ".join(captured.get().replace("│", " ").split())


def test_all_results_are_shown() -> None:
    text = shown(RESULT)
    for wanted in (
        "50 1 4.2 9.8 7.5 123 k 1.25 2.50 3.75", "5 5 4.2 9.8 7.5 – 1.25", "estimator / 50 1 1.5 12 8",
        "estimator: /: kB 1.5", "second answer 12, 8",
        "500 surveys in one process", "connections to Redis 6", "survey's step 33.5", "a turn with a step 55.5", "2 cores",
    ):  # fmt: skip
        assert wanted in text, (wanted, text)
    agents, _, estimators = text.partition("Agents of all pairs")[2].partition("Estimators of all pairs")
    assert "50 1 150 120 9 3 2 0.01 0.34" in agents
    assert "5 5 150 120 9 3 6" in estimators
    assert "estimator / 5 5" not in text  # one survey has no start page
    assert "without Kafka" not in shown(SurveysBench(2, RESULT.served))


def test_the_sizes_are_those_asked_for() -> None:
    assert 50 in FULL.together
    assert {5, 10} <= set(FULL.apart)
    assert FULL.simulated == 500
    assert QUICK.together == (2,)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_connections_are_counted_by_their_remote_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as kafka, socket.create_server(("127.0.0.1", 0)) as redis:
        ports = kafka.getsockname()[1], redis.getsockname()[1]
        settings = Settings.model_validate({"kafka": f"127.0.0.1:{ports[0]}", "redis": f"redis://127.0.0.1:{ports[1]}"})
        before = ProcessCosts.of([os.getpid()], settings)
        assert (before.kafka_connections, before.redis_connections) == (0, 0)
        assert 0 < before.share_mib <= before.resident_mib
        assert before.threads >= 1
        clients = [socket.create_connection(("127.0.0.1", port)) for port in (ports[0], ports[0], ports[1])]
        with closing(clients[0]), closing(clients[1]), closing(clients[2]):
            now = ProcessCosts.of([os.getpid()], settings)
        assert (now.kafka_connections, now.redis_connections) == (2, 1)
        twice = ProcessCosts.of([os.getpid(), os.getpid()], settings)
        assert twice.threads == 2 * now.threads
