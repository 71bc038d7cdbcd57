"""The contract of a count store, tested with every implementation."""

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import redis

from ldpstream.agents import tally
from ldpstream.engines import Checkpoint, CountStore, PaneKey, StoreUnavailable
from ldpstream.engines.checkpoint import Missing
from ldpstream.engines.count_store import StoreRefused
from ldpstream.engines.kafka.redis_connection import connect
from ldpstream.engines.kafka.redis_results import RedisResults
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.publishing.results import KeptResults
from ldpstream.runtime.settings import Settings
from tests.agents.samples import during, make_log, make_survey
from tests.services.rig import RedisNode

from .conftest import MakeStore

SURVEY = make_survey("contract", cohorts=3)
LOG = make_log(SURVEY, np.random.default_rng(3), length=40, steps=6, share_spoilt=0.0)  # a seed with reports of steps 0 to 6
COUNTED = tally(SURVEY, LOG).counts


def checkpoint(next_offset: int, step: int = 5, *keys: PaneKey) -> Checkpoint:
    """Makes a checkpoint with the tables of the named panes (by default, of all panes). The checkpoint's newest record is in
    `step`."""
    panes = {key: table for key, table in COUNTED.items() if not keys or key in keys}
    return Checkpoint(next_offset, during(SURVEY, step), panes, {"undecodable": next_offset})


def test_an_empty_store_returns_nothing(store: CountStore) -> None:
    assert store.load(0) is None
    assert store.positions() == {}
    assert store.snapshot() == {}
    assert store.tables(range(100)) == {}
    assert store.tables(range(5, 5)) == {}
    assert store.rejected() == {}
    store.prune(100, {0: checkpoint(1)})
    assert not store.commit(0, (5, ""), checkpoint(10))
    assert store.snapshot() == {}


def test_a_written_checkpoint_is_read_back_whole(store: CountStore) -> None:
    written = replace(checkpoint(40), log_id="one", missing=Missing(3, 2**41, 7))
    assert store.commit(3, None, written)
    assert store.snapshot() == {3: written}
    assert store.heads() == {3: replace(written, panes={})}
    assert store.positions() == {3: 40}
    assert store.rejected() == {"undecodable": 40}


def test_load_leaves_out_panes_of_closed_steps(store: CountStore) -> None:
    written = replace(checkpoint(40, step=4), log_id="one", missing=Missing(3, 2**41, 7))
    store.commit(0, None, written)
    loaded = store.load(0)
    assert loaded is not None
    assert {key.step for key in loaded.panes} == {3, 4, 5, 6}  # step 3 closes one step after its end
    assert loaded.panes == {key: table for key, table in COUNTED.items() if key.step >= 3}
    assert replace(loaded, panes={}) == replace(written, panes={})


def test_the_first_open_step_may_lie_before_the_survey(store: CountStore) -> None:
    early = {key: table for key, table in COUNTED.items() if key.step == 0}
    written = Checkpoint(4, during(SURVEY, 0), early, {"undecodable": 4})
    store.commit(0, None, written)
    assert store.load(0) == written
    assert store.tables(range(-3, 2)) == early
    before_the_start = replace(written, newest_ms=SURVEY.start_ms - 60_000, next_offset=5)
    store.commit(0, (4, ""), before_the_start)
    assert store.load(0) == before_the_start


def test_a_write_replaces_only_the_panes_it_names(store: CountStore) -> None:
    keys = list(COUNTED)
    store.commit(0, None, checkpoint(10))
    doubled = COUNTED[keys[0]] + COUNTED[keys[0]]
    assert store.commit(0, (10, ""), Checkpoint(20, during(SURVEY, 5), {keys[0]: doubled}, {}))
    assert store.snapshot()[0].panes == COUNTED | {keys[0]: doubled}
    assert store.rejected() == {}


@pytest.mark.parametrize("expected", [None, (0, ""), (9, ""), (11, ""), (30, ""), (10, "other")])
def test_a_write_from_another_position_is_refused(store: CountStore, expected: tuple[int, str] | None) -> None:
    store.commit(0, None, checkpoint(10, 5, *list(COUNTED)[:1]))
    before = store.snapshot()
    assert not store.commit(0, expected, checkpoint(20))
    assert store.snapshot() == before


def test_writes_are_idempotent(store: CountStore) -> None:
    """After a lost answer the writer cannot tell whether the change is stored, and retries."""
    store.commit(0, None, checkpoint(10))
    assert store.commit(0, (10, ""), checkpoint(20))
    before = store.snapshot()
    assert store.commit(0, (10, ""), checkpoint(20))
    assert store.commit(0, None, checkpoint(20))
    assert store.snapshot() == before


def test_a_change_with_other_missing_records_is_refused(store: CountStore) -> None:
    """A fast agent has counted some records. A slow agent found the same records expired. The store must refuse the slow
    agent's change."""
    store.commit(0, None, checkpoint(10))
    assert store.commit(0, (10, ""), checkpoint(20))
    before = store.snapshot()
    assert not store.commit(0, (10, ""), replace(checkpoint(20), missing=Missing(1, 2, 20)))
    assert store.snapshot() == before
    assert store.commit(0, (20, ""), replace(checkpoint(30), missing=Missing(1, 2, 30)))
    assert store.commit(0, (20, ""), replace(checkpoint(30), missing=Missing(1, 2, 30)))


def test_an_offset_of_another_log_is_refused(store: CountStore) -> None:
    """The store refuses even an equal offset of another log. Otherwise the store could mistake the new change for the stored
    change."""
    store.commit(0, None, replace(checkpoint(10), log_id="one"))
    before = store.snapshot()
    for offset in (10, 20):
        for expected in (None, (10, ""), (10, "two"), (9, "one")):
            assert not store.commit(0, expected, replace(checkpoint(offset), log_id="two"))
    assert store.snapshot() == before


def test_another_log_begins_with_the_closed_steps(store: CountStore) -> None:
    store.commit(0, None, replace(checkpoint(10), log_id="one"))
    open_ = {key: replace(table, n=0) for key, table in COUNTED.items() if key.step >= 4}
    change = Checkpoint(10, during(SURVEY, 5), open_, {}, "two", Missing(1, 2, 10))
    for _ in range(2):  # a writer retries if the answer is lost
        assert store.commit(0, (10, "one"), change)
    assert store.snapshot() == {0: replace(change, panes={key: table for key, table in COUNTED.items() if key.step < 4})}
    assert not store.commit(0, (10, "one"), replace(checkpoint(20), log_id="one"))
    assert store.commit(0, (10, "two"), replace(checkpoint(20), log_id="two"))


def test_tables_are_summed_over_partitions(store: CountStore) -> None:
    for partition in range(3):
        store.commit(partition, None, checkpoint(10 + partition))
    found = store.tables(range(1, 4))
    assert found == {key: table + table + table for key, table in COUNTED.items() if 1 <= key.step < 4}
    assert store.rejected() == {"undecodable": 33}
    assert store.positions() == {0: 10, 1: 11, 2: 12}


def test_prune_removes_only_old_steps(store: CountStore) -> None:
    for partition in range(2):
        store.commit(partition, None, checkpoint(10))
    store.prune(4, store.heads())
    assert {key.step for key in store.tables(range(100))} == {4, 5, 6}
    kept = {key: table for key, table in COUNTED.items() if key.step >= 4}
    pruned = replace(checkpoint(10), panes=kept, pruned_below=4)
    assert store.snapshot()[1] == pruned
    assert store.commit(0, (10, ""), replace(checkpoint(20), panes={}))
    assert store.snapshot()[0] == replace(pruned, next_offset=20, rejected={"undecodable": 20})
    store.prune(3, store.heads())
    assert store.snapshot()[1] == pruned  # the panes that were removed stay removed


@pytest.mark.parametrize(
    ("seen", "pruned"),
    [
        (checkpoint(10), False),  # another writer: an agent loaded the partition again, perhaps after a loss
        (replace(checkpoint(10), writer="a"), True),
        (replace(checkpoint(9), writer="a"), True),  # the stored checkpoint includes more records than `seen`
        (replace(checkpoint(11), writer="a"), False),  # the store was restored from an older copy
        (replace(checkpoint(10), writer="a", log_id="other"), False),
    ],
)
def test_prune_keeps_tables_that_were_counted_again(store: CountStore, seen: Checkpoint, pruned: bool) -> None:
    store.commit(0, None, replace(checkpoint(10), writer="a"))
    store.prune(4, {0: seen, 1: seen})
    assert store.snapshot()[0].pruned_below == (4 if pruned else 0)
    assert (min(key.step for key in store.tables(range(100))) == 4) is pruned
    assert set(store.positions()) == {0}


def test_the_same_offset_of_another_writer_is_refused(store: CountStore) -> None:
    """If the store accepted the offset, an estimator could mistake recounted tables for the lost tables that it has read."""
    store.commit(0, None, replace(checkpoint(10), writer="a"))
    assert store.commit(0, None, replace(checkpoint(10), writer="a"))
    assert not store.commit(0, None, replace(checkpoint(10), writer="b"))
    assert store.heads()[0].writer == "a"
    assert not store.commit(0, (10, ""), replace(checkpoint(20), writer="b", base_writer="b"))
    assert store.commit(0, (10, ""), replace(checkpoint(20), writer="b", base_writer="a"))
    assert store.heads()[0].writer == "b"


def test_one_of_many_writers_wins(make_store: MakeStore) -> None:
    store, won = make_store(SURVEY), []
    barrier = threading.Barrier(8)

    def write(offset: int) -> None:
        barrier.wait()
        if store.commit(0, None, checkpoint(offset)):
            won.append(offset)

    threads = [threading.Thread(target=write, args=(offset,)) for offset in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [store.positions()[0]] == won


# ---- Redis only


@pytest.mark.parametrize("call", [
    lambda store: store.load(0),
    lambda store: store.commit(0, None, checkpoint(1)),
    lambda store: store.positions(),
    lambda store: store.tables(range(3)),
    lambda store: store.rejected(),
    lambda store: store.snapshot(),
    lambda store: store.prune(1, {0: checkpoint(1)}),
])  # fmt: skip
def test_an_unreachable_redis_is_one_error_without_password(call: Callable[[CountStore], object]) -> None:
    store = RedisCountStore(SURVEY, connect(Settings(redis="redis://someone:s3cr3t@127.0.0.1:1/0"), timeout_s=0.5))
    with pytest.raises(StoreUnavailable, match=r"Redis at 127\.0\.0\.1:1") as caught:
        call(store)
    assert "s3cr3t" not in str(caught.value) + repr(store)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_redis_that_hangs_or_forgets_is_used_again_later(redis_node: RedisNode) -> None:
    store = RedisCountStore(SURVEY, connect(Settings(redis=redis_node.url), timeout_s=3))
    assert store.commit(0, None, checkpoint(10))
    redis_node.pause()
    try:
        with pytest.raises(StoreUnavailable):
            store.commit(0, (10, ""), checkpoint(20))
    finally:
        redis_node.resume()
    with redis.Redis.from_url(redis_node.url) as client:
        assert store.commit(0, (store.positions()[0], ""), checkpoint(30))
        assert store.snapshot()[0] == checkpoint(30)
        client.script_flush()  # Redis forgets the scripts, as after a restart
        assert store.commit(0, (30, ""), checkpoint(40))
        client.delete(store._partitions_key)
        store.load(0)
        assert store.positions() == {0: 40}
        client.flushall()


REFUSALS = {
    "OOM": ("maxmemory", "1b", "0"),
    "READONLY": ("replicaof", "127.0.0.1 1", "no one"),
    "NOREPLICAS": ("min-replicas-to-write", "1", "0"),
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_a_redis_that_refuses_writes_is_noticed_without_reports(redis_node: RedisNode, reason: str) -> None:
    """Agents and estimators then wait, and both say Redis's reason."""
    name, on, off = REFUSALS[reason]
    with connect(Settings(redis=redis_node.url)) as client:
        store, results = RedisCountStore(SURVEY, client), KeptResults(SURVEY, RedisResults(SURVEY, client))
        store.check_writes()

        def turn(value: str) -> None:
            client.execute_command(name, *value.split()) if name == "replicaof" else client.config_set(name, value)

        assert results.lead()
        turn(on)
        try:
            words = {"OOM": "maxmemory", "READONLY": "read only replica", "NOREPLICAS": "[Nn]ot enough good replicas"}[reason]
            for write in (store.check_writes, results.lead):
                with pytest.raises(StoreUnavailable, match=words) as raised:
                    write()
                assert not isinstance(raised.value, StoreRefused)
        finally:
            turn(off)
        store.check_writes()
        client.flushall()


def test_a_password_repeated_by_redis_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise redis.ResponseError("unknown command s3cr3t\nand more")

    store = RedisCountStore(SURVEY, connect(Settings(redis="redis://someone:s3cr3t@127.0.0.1:1/0")))
    monkeypatch.setattr(redis.Redis, "execute_command", fail)
    with pytest.raises(StoreUnavailable, match=r"unknown command \*\*\*$"):
        store.load(0)
