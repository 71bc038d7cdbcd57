"""A checkpoint of another format, and fields that nobody can read: refused in one line, never skipped or overwritten."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import redis

from ldpstream.agents import PartitionFold, Record
from ldpstream.engines.count_store import StoreDamaged
from ldpstream.engines.formats import OtherFormat
from ldpstream.engines.kafka.redis_connection import connect
from ldpstream.engines.kafka.redis_store import FORMAT, RedisCountStore
from ldpstream.runtime.settings import Settings
from tests.agents.samples import during, make_survey, sound
from tests.services.rig import RedisNode

SURVEY = make_survey("formats")
Damage = Callable[[Any, str], None]


@pytest.fixture
def store(redis_node: RedisNode) -> Iterator[RedisCountStore]:
    """A store in which partition 0 has counted ten records of step 5."""
    store = RedisCountStore(SURVEY, connect(Settings(redis=redis_node.url)))
    assert store.commit(0, None, counted(10))
    yield store
    with redis.Redis.from_url(redis_node.url) as client:
        client.flushall()


def counted(n: int) -> Any:
    rng = np.random.default_rng(20_261_123)
    fold = PartitionFold(SURVEY, None, writer="one")
    fold.feed([Record(offset, during(SURVEY, 5), sound(SURVEY, rng, 5, offset % 3)) for offset in range(n)])
    return fold.changes()


def other(value: int | None) -> Damage:
    return lambda client, key: client.hdel(key, "format") if value is None else client.hset(key, "format", value)


OTHERS = {
    "an earlier format": (other(None), f"counts has format 1, this version needs format {FORMAT}; delete ldp.*count the log"),
    "a newer format": (other(FORMAT + 1), f"format {FORMAT + 1}, .*; a newer version wrote it; run that version"),
}
UNREADABLE: dict[str, tuple[Damage, str]] = {
    "a field without a cohort": (lambda client, key: client.hset(key, "pane:0:0:5", b"x"), "pane:0:0:5 is not a count table"),
    "an unknown attribute": (lambda client, key: client.hset(key, "pane:9:0:5:0", b"x"), "pane:9:0:5:0 is not a count table"),
    "a table of another length": (
        lambda client, key: client.hset(key, "pane:0:0:5:0", bytes(16)),
        "pane:0:0:5:0 is not a count",
    ),
}


@pytest.mark.parametrize(
    ("field", "value"),
    [("format", "x"), ("next_offset", "x"), ("newest_ms", ""), ("rejected", "{"), ("missing", "[1]"), ("keys", "7")],
)
def test_a_damaged_number_is_refused(redis_node: RedisNode, store: RedisCountStore, field: str, value: str) -> None:
    reads: list[Callable[[], Any]] = [lambda: store.load(0), store.heads, store.rejected, lambda: store.tables(range(4, 7))]
    with redis.Redis.from_url(redis_node.url) as client:
        client.hset(store._key(0), field, value)
        for read in reads:
            with pytest.raises(StoreDamaged, match=r"0}:counts has a damaged number; delete ldp\S*:counts, and"):
                read()


@pytest.mark.parametrize(("damage", "said"), (OTHERS | UNREADABLE).values(), ids=(OTHERS | UNREADABLE).keys())
def test_what_cannot_be_read_is_refused_and_kept(
    redis_node: RedisNode, store: RedisCountStore, damage: Damage, said: str
) -> None:
    reads: list[Callable[[], Any]] = [lambda: store.load(0), lambda: store.tables(range(4, 7)), store.snapshot]
    with redis.Redis.from_url(redis_node.url) as client:
        damage(client, store._key(0))
        kept = client.hgetall(store._key(0))
        for read in reads:
            with pytest.raises(StoreDamaged, match=said) as caught:
                read()
            assert "\n" not in str(caught.value)
        assert client.hgetall(store._key(0)) == kept


@pytest.mark.parametrize("damage", [damage for damage, _ in OTHERS.values()], ids=OTHERS.keys())
def test_another_format_is_never_overwritten(redis_node: RedisNode, store: RedisCountStore, damage: Damage) -> None:
    """An agent that counted before another version took the partition over must not write."""
    change = counted(20)
    with redis.Redis.from_url(redis_node.url) as client:
        damage(client, store._key(0))
        kept = client.hgetall(store._key(0))
        for read in (store.heads, store.positions):
            with pytest.raises(OtherFormat):
                read()
        again = replace(change, base_writer="one")
        assert not store.commit(0, (10, ""), again)
        assert not store.commit(0, None, counted(10))  # not even the change that is stored
        assert client.hgetall(store._key(0)) == kept
