"""The stores, and a Redis server, for the tests of the count stores."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from ldpstream.engines import CountStore
from ldpstream.engines.folder.data_folder import DataFolder
from ldpstream.engines.folder.folder_store import FolderCountStore
from ldpstream.engines.kafka.redis_connection import connect
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey
from tests.agents.samples import make_survey
from tests.faults.memory_store import MemoryCountStore
from tests.services.rig import RedisNode, missing

MakeStore = Callable[[Survey], CountStore]


@pytest.fixture(scope="session")
def redis_node() -> Iterator[RedisNode]:
    """Yields a Redis for this session that stores nothing on disk."""
    if reason := missing(kafka=False):
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    with RedisNode(append_fsync=None) as node:
        yield node


@pytest.fixture(params=["memory", "folder", "redis"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    if request.param == "memory":
        yield MemoryCountStore
        return
    if request.param == "folder":
        with closing(DataFolder(tmp_path / "data")) as folder:
            yield partial(FolderCountStore, folder)
        return
    node: RedisNode = request.getfixturevalue("redis_node")
    with connect(Settings(redis=node.url)) as client:
        yield lambda survey: RedisCountStore(survey, client)
        client.flushall()


@pytest.fixture
def store(make_store: MakeStore) -> CountStore:
    return make_store(make_survey("contract", cohorts=3))
