"""Fixtures for the tests that need a real Kafka or Redis.

Each process of `pytest -n` starts one Kafka and one Redis, each when a test first needs the service. If a service cannot be
started, the test is skipped with the reason. If `CI` is set, the test fails instead.
"""

import contextlib
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from kafka import KafkaAdminClient

from deploy.local.kafka_jars import JarsError
from ldpstream.surveys import load_survey
from tests.conftest import give_up
from tests.kernels import DEMO, compile_estimates

from .agent_site import MakeSite, Site, new_site
from .rig import KafkaNode, RedisNode, Services, missing

MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def own_kafka() -> Iterator[KafkaNode]:
    """The Kafka that this session started. After a test that disturbs the broker, `kafka_node` restores it."""
    if reason := missing(redis=False):
        give_up(reason)
    try:
        node = KafkaNode()
    except JarsError as err:
        give_up(str(err))
    with node:
        yield node


@pytest.fixture(scope="session")
def kafka(own_kafka: KafkaNode) -> str:
    """The `host:port` of the Kafka that this session started."""
    return own_kafka.bootstrap


@pytest.fixture
def kafka_node(own_kafka: KafkaNode) -> Iterator[KafkaNode]:
    """The session's Kafka, for a test that stops, kills or pauses the broker. Resumes or restarts the broker afterwards."""
    yield own_kafka
    if own_kafka.running:
        own_kafka.resume()
    else:
        own_kafka.start()


@pytest.fixture(scope="session")
def kernels() -> None:
    """The estimator's kernels, compiled before a test starts an estimator: in a new working copy this takes half a minute."""
    compile_estimates(load_survey(DEMO))


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test or run uses. The topic does not exist yet."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:80]
    return f"{name}-{secrets.token_hex(6)}"


@pytest.fixture
def make_topic(topic: str, kafka: str) -> MakeTopic:
    """Creates this test's topic and returns its name: `make_topic(partitions=4, **{"retention.ms": "1000"})`.

    By default the broker sets the time stamps (LogAppendTime), as in every topic of reports.
    """

    def make(partitions: int = 1, **configs: str) -> str:
        wanted = {"message.timestamp.type": "LogAppendTime"} | configs
        spec = {topic: {"num_partitions": partitions, "replication_factor": 1, "configs": wanted}}
        with KafkaAdminClient(bootstrap_servers=kafka) as admin:
            admin.create_topics(spec, wait_for_metadata=True)
        return topic

    return make


@pytest.fixture(scope="session")
def own_redis() -> Iterator[RedisNode]:
    """The Redis that this session started. The fixtures `redis_url` and `redis_node` delete the data in this Redis."""
    if reason := missing(kafka=False):
        give_up(reason)
    with RedisNode() as node:
        yield node


@pytest.fixture
def redis_url(own_redis: RedisNode) -> Iterator[str]:
    """The URL of the Redis that this session started; its database is empty."""
    with redis.Redis.from_url(own_redis.url) as client:
        client.flushdb()
        yield own_redis.url
        client.flushdb()


@pytest.fixture
def redis_node(own_redis: RedisNode) -> Iterator[RedisNode]:
    """The session's Redis, for a test that stops, kills or pauses it. The fixture restores and empties Redis."""
    yield own_redis
    if own_redis.running:
        own_redis.resume()
    else:
        own_redis.start()
    with redis.Redis.from_url(own_redis.url) as client:
        client.flushall()


@pytest.fixture
def services(kernels: None, kafka: str, redis_url: str, tmp_path: Path) -> Iterator[Services]:
    made = Services(kafka, redis_url, tmp_path)
    yield made
    made.stop()


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[MakeSite]:
    """Creates sites (see `new_site`) and kills their agents at the end."""
    sites: list[Site] = []

    def make(kafka: str, url: str, step_seconds: int = 2) -> Site:
        sites.append(new_site(tmp_path, kafka, url, step_seconds))
        return sites[-1]

    yield make
    for site in sites:
        for worker in site.workers:
            with contextlib.suppress(ProcessLookupError):
                worker.kill()
