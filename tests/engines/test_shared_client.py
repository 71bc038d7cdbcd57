"""Number of connections to Redis: many count stores share a client, and so do all surveys of an agent."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis

from ldpstream.agents import counted_surveys
from ldpstream.agents.app import AgentApp
from ldpstream.engines.kafka.redis_connection import SharedClient
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.engines.kafka.topic_keeper import TopicKeeper
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey
from ldpstream.surveys.life import checks
from ldpstream.surveys.life.watch import SurveyWatch
from tests.agents.samples import make_survey
from tests.services.rig import RedisNode

SAMPLES = Path(__file__).parents[2] / "surveys" / "samples"
SURVEYS = [make_survey(f"shared-{i}") for i in range(8)]


class Connections:
    """Counts connections to Redis besides its own."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)
        self._client.ping()
        self._before = self._open()

    def _open(self) -> set[str]:
        listed: Any = self._client.client_list()
        return {client["id"] for client in listed}

    def new(self) -> int:
        return len(self._open() - self._before)


@pytest.fixture
def connections(redis_node: RedisNode) -> Iterator[Connections]:
    counter = Connections(redis_node.url)
    yield counter
    counter._client.close()


def test_stores_share_one_connection_for_each_command_at_the_same_time(redis_node: RedisNode, connections: Connections) -> None:
    settings = Settings(redis=redis_node.url)
    client = SharedClient(settings)
    stores = [RedisCountStore(survey, settings, client=client) for survey in SURVEYS]
    for store in stores:
        assert store.positions() == {}
    assert connections.new() == 1

    together = threading.Barrier(3)

    def ask(survey: Survey) -> None:
        together.wait(60)
        for _ in range(20):
            RedisCountStore(survey, settings, client=client).positions()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(ask, SURVEYS[:3]))
    assert connections.new() <= 3

    stores[0].close()
    assert stores[1].positions() == {}
    client.close()


def test_stores_with_clients_of_their_own_have_a_connection_each(redis_node: RedisNode, connections: Connections) -> None:
    """Control: the count of connections detects stores that do not share."""
    stores = [RedisCountStore(survey, Settings(redis=redis_node.url)) for survey in SURVEYS]
    for store in stores:
        assert store.positions() == {}
    assert connections.new() == len(SURVEYS)
    for store in stores:
        store.close()


def test_all_surveys_of_an_agent_share_one_client(
    redis_node: RedisNode, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted_surveys, "ensure_topics", lambda *_: None)
    monkeypatch.setattr(TopicKeeper, "check", lambda *_, **__: None)
    monkeypatch.setattr(checks, "AT_ONCE", 1)  # checks at the same time have a connection each
    watch = SurveyWatch([SAMPLES])
    app: Any = AgentApp(watch, Settings(redis=redis_node.url))
    assert len(app.surveys.check()) == len(watch.surveys) > 1
    for text in watch.surveys.values():
        assert app._new_counting(text.survey)._store._store.positions() == {}
    assert connections.new() == 1
    app.redis.close()
