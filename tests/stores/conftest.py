"""Redis server for the tests of the count stores."""

import os
from collections.abc import Iterator

import pytest

from tests.services.rig import RedisNode, missing


@pytest.fixture(scope="session")
def redis_node() -> Iterator[RedisNode]:
    """Yields a Redis for this session that stores nothing on disk."""
    if reason := missing(kafka=False):
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    with RedisNode(append_fsync=None) as node:
        yield node
