"""The report keys in a count store, tested with every implementation."""

from dataclasses import replace
from typing import Any

import pytest
import redis

from ldpstream.engines import Checkpoint, CountStore, StoreUnavailable
from ldpstream.engines.count_store import StoreDamaged
from ldpstream.engines.kafka.redis_connection import connect
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.runtime.settings import Settings
from tests.agents.samples import during, make_survey
from tests.services.rig import RedisNode

SURVEY = make_survey("contract", cohorts=3)


def with_keys(next_offset: int, n_keys: dict[int, int], **keys: bytes) -> Checkpoint:
    """Makes a change whose `keys` are named "g<generation>", for example `g4`."""
    added = {int(name[1:]): value for name, value in keys.items()}
    return Checkpoint(next_offset, during(SURVEY, 5), n_keys=n_keys, keys=added)


def test_report_keys_are_appended_with_the_counts(store: CountStore) -> None:
    one, two, three = b"key one.", b"key two.", b"key 3..."
    assert store.commit(0, None, with_keys(10, {4: 2, -1: 1}, **{"g4": one + two, "g-1": three}))
    assert store.load(0) == with_keys(10, {4: 2, -1: 1}, **{"g4": one + two, "g-1": three})
    for _ in range(3):  # a writer retries if the answer is lost
        assert store.commit(0, (10, ""), with_keys(20, {4: 3, 5: 1}, **{"g4": three, "g5": one, "g-1": b""}))
    assert not store.commit(0, (10, ""), with_keys(30, {4: 3, 5: 2}, g5=two))
    assert not store.commit(0, (20, ""), replace(with_keys(30, {4: 3, 5: 2}, g5=two), base_writer="another"))
    assert store.load(0) == with_keys(20, {4: 3, 5: 1}, g4=one + two + three, g5=one)
    assert store.commit(0, (20, ""), with_keys(30, {4: 3, 5: 1}))
    assert store.load(0) == with_keys(30, {4: 3, 5: 1}, g4=one + two + three, g5=one)
    assert store.heads()[0] == store.snapshot()[0] == with_keys(30, {4: 3, 5: 1})
    store.prune(4, store.heads())
    assert store.load(0) == with_keys(30, {4: 3, 5: 1}, g4=one + two + three, g5=one)


# ---- Redis only


def test_report_keys_that_another_agent_changes_are_read_again(redis_node: RedisNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another agent may write between the two reads of a load. The result is one checkpoint, never a mixture of two."""
    store = RedisCountStore(SURVEY, connect(Settings(redis=redis_node.url)))
    store.commit(0, None, with_keys(10, {4: 1}, g4=b"key one."))
    read, changes = store._read, [(20, {4: 1, 5: 1}, {"g5": b"key two."}), (30, {5: 1}, {"g4": b""})]

    def read_late(*arguments: Any) -> Any:
        if changes:
            offset, n_keys, keys = changes.pop(0)
            assert store.commit(0, (offset - 10, ""), with_keys(offset, n_keys, **keys))
        return read(*arguments)

    monkeypatch.setattr(store, "_read", read_late)
    assert store.load(0) == with_keys(30, {5: 1}, g5=b"key two.")
    with redis.Redis.from_url(redis_node.url) as client:
        client.flushall()


@pytest.mark.parametrize("damage", [b"", b"key one.key", b"key one.key two."])
def test_incomplete_report_keys_are_refused(redis_node: RedisNode, damage: bytes) -> None:
    """The message says which key to delete. Then the agents count the log again."""
    store = RedisCountStore(SURVEY, connect(Settings(redis=redis_node.url)))
    store.commit(0, None, with_keys(10, {4: 1}, g4=b"key one."))
    with redis.Redis.from_url(redis_node.url) as client:
        client.set(store._keys_keys(0, [4])[0], damage)
        with pytest.raises(StoreDamaged, match=r"keys ldp\S*:0}:keys:4 are not the 1 .*delete (\S+)") as caught:
            store.load(0)
        client.delete(str(caught.value).split("delete ")[1].split(",")[0])
        assert store.load(0) is None
        assert store.commit(0, None, with_keys(10, {4: 1}, g4=b"key one."))
        assert store.load(0) == with_keys(10, {4: 1}, g4=b"key one.")
        client.flushall()


def test_a_commit_that_fails_half_way_keeps_the_offset(redis_node: RedisNode) -> None:
    """Somebody replaces the keys by a list: the script fails. The store must not take a repetition of the commit for the same
    change."""
    store = RedisCountStore(SURVEY, connect(Settings(redis=redis_node.url)))
    store.commit(0, None, with_keys(10, {4: 1}, g4=b"key one."))
    with redis.Redis.from_url(redis_node.url) as client:
        name = store._keys_keys(0, [4])[0]
        client.delete(name)
        client.rpush(name, "not a string")
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                store.commit(0, (10, ""), with_keys(20, {4: 2}, g4=b"key two."))
        assert store.positions() == {0: 10}
        client.flushall()
