"""The benchmark of many surveys: the costs that it reads from `/proc`."""

import os
import socket
import sys
from contextlib import closing

import pytest

from lab.bench.process_costs import ProcessCosts
from ldpstream.runtime.settings import Settings


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
