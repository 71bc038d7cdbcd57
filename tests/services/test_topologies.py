"""Behind Sentinels, the count store behaves as in memory, also during failovers."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import numpy as np
import pytest

from ldpstream.engines import Checkpoint, CountStore, PaneKey, StoreUnavailable
from ldpstream.engines.checkpoint import STORED_KEY_BYTES
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.runtime.settings import Settings
from tests.agents.samples import during, make_survey
from tests.conftest import give_up
from tests.faults.memory_store import MemoryCountStore

from .agent_site import MakeSite
from .rig import PATIENCE_S, missing, wait_until
from .rig_topologies import WatchedRedis

SURVEY = make_survey("topologies")
PARTITIONS = 9


@pytest.fixture
def watched() -> Iterator[WatchedRedis]:
    """A master, a replica and a Sentinel."""
    if reason := missing(kafka=False):
        give_up(reason)
    with WatchedRedis() as nodes:
        yield nodes


def random_change(rng: np.random.Generator, offset: int, store: CountStore, partition: int = 0) -> Checkpoint:
    """Makes a change with some panes of steps 0 to 5 that starts from the report keys in `store`."""
    head = store.heads().get(partition)
    n_keys, keys, generation = dict(head.n_keys) if head else {}, dict[int, bytes](), int(rng.integers(3))
    if generation in n_keys and rng.random() < 0.3:
        keys[generation], _ = b"", n_keys.pop(generation)
    else:
        keys[generation] = rng.bytes(STORED_KEY_BYTES * int(rng.integers(1, 4)))
        n_keys[generation] = n_keys.get(generation, 0) + len(keys[generation]) // STORED_KEY_BYTES
    panes = {}
    for _ in range(rng.integers(0, 4)):
        attribute = int(rng.integers(len(SURVEY.mechanisms)))
        level = int(rng.integers(len(SURVEY.mechanisms[attribute])))
        mechanism = SURVEY.mechanisms[attribute][level]
        values = rng.integers(0, mechanism.k, 5)
        panes[PaneKey(attribute, level, int(rng.integers(6)))] = mechanism.tabulate(mechanism.simulate(values, rng))
    newest_ms = during(SURVEY, int(rng.integers(3, 6)))
    return Checkpoint(offset, newest_ms, panes, {"undecodable": offset}, n_keys=n_keys, keys=keys)


def operate(stores: list[CountStore], rng: np.random.Generator, operations: int) -> None:
    """Applies the same random commits (valid and invalid) and prunings to all stores, and compares every answer."""
    for _ in range(operations):
        partition, offsets = int(rng.integers(PARTITIONS)), stores[0].positions()
        now = offsets.get(partition)
        wanted = now if rng.random() < 0.8 else int(rng.integers(100))
        change = random_change(rng, (now or 0) + int(rng.integers(1, 9)), stores[0], partition)
        assert len({store.commit(partition, None if wanted is None else (wanted, ""), change) for store in stores}) == 1
        if rng.random() < 0.1:
            step = int(rng.integers(4))
            for store in stores:
                store.prune(step, store.heads())
    assert_equal(stores)


def assert_equal(stores: list[CountStore]) -> None:
    reference = stores[0]
    for store in stores[1:]:
        assert store.positions() == reference.positions()
        assert store.snapshot() == reference.snapshot()
        assert store.tables(range(1, 5)) == reference.tables(range(1, 5))
        assert store.rejected() == reference.rejected()
        for partition in range(PARTITIONS):
            assert store.load(partition) == reference.load(partition)


def retried(ask: Callable[[], object], timeout_s: float = PATIENCE_S) -> object:
    """Retries until the store answers. Each failed call must raise `StoreUnavailable` with a one-line message."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except StoreUnavailable as error:
            assert "\n" not in str(error)
            assert time.monotonic() < deadline, error
            time.sleep(0.05)


# ---- Sentinel


def test_a_commit_after_a_lost_commit_is_refused(watched: WatchedRedis) -> None:
    rng = np.random.default_rng(5)
    with closing(RedisCountStore(SURVEY, Settings(redis=watched.url), timeout_s=10)) as store:
        stores: list[CountStore] = [MemoryCountStore(SURVEY), store]
        operate(stores, rng, 30)
        watched.await_replica()
        before = store.positions()[0]
        watched.cut_replica_off()
        assert store.commit(0, (before, ""), random_change(rng, before + 5, store))
        watched.kill_master()
        watched.replica.resume()
        retried(store.positions)
        watched.await_promotion()
        assert not retried(lambda: store.commit(0, (before + 5, ""), random_change(rng, before + 9, stores[0])))
        assert_equal(stores)  # the store is as before the lost commit
        operate(stores, rng, 30)


def test_a_demoted_master_gets_no_commit(watched: WatchedRedis) -> None:
    rng = np.random.default_rng(9)
    with closing(RedisCountStore(SURVEY, Settings(redis=watched.url), timeout_s=10)) as store:
        stores: list[CountStore] = [MemoryCountStore(SURVEY), store]
        operate(stores, rng, 30)  # so partition 0 has a position
        watched.await_replica()
        with watched.sentinel.client() as client:
            wait_until(lambda: client.sentinel_failover(watched.service), lambda: "the Sentinel can start a failover")
        watched.await_promotion()
        # the Sentinel would demote the old master only after 8 s; until then, commits to the old master would be lost
        with watched.master.client() as client:
            client.replicaof(*watched.replica.address)
        change = random_change(rng, 1000, stores[0])
        assert retried(lambda: store.commit(0, (stores[0].positions()[0], ""), change))
        assert stores[0].commit(0, (stores[0].positions()[0], ""), change)
        operate(stores, rng, 10)
        with watched.replica.client() as promoted:
            assert promoted.hget(store._key(0), "next_offset") == str(store.positions()[0]).encode()


def test_a_sentinel_may_require_a_password() -> None:
    if reason := missing(kafka=False):
        give_up(reason)
    with WatchedRedis(sentinel_password="sesame") as watched:
        for password, said in (("sesame", None), ("s3cr3t", "No master found for"), (None, "No master found for")):
            settings = Settings(redis=watched.url, redis_sentinel_password=password)
            with closing(RedisCountStore(SURVEY, settings)) as store:
                if said is None:
                    store.heads()
                    continue
                with pytest.raises(StoreUnavailable, match=said) as caught:
                    store.heads()
                assert "s3cr3t" not in str(caught.value)
        unknown = Settings(redis=watched.url.replace("/counts", "/other"), redis_sentinel_password="sesame")
        with (
            closing(RedisCountStore(SURVEY, unknown)) as store,
            pytest.raises(StoreUnavailable, match="No master found for 'other'"),
        ):
            store.heads()


# ---- agents


def test_an_agent_counts_exactly_during_a_failover(kafka: str, watched: WatchedRedis, make_site: MakeSite) -> None:
    site, rng = make_site(kafka, watched.url), np.random.default_rng(7)
    with site.producer() as producer:
        site.send(producer, rng, 200)
        worker = site.start()
        site.until(lambda: site.counted() == site.n_sent)
        watched.await_replica()
        watched.fail_over()
        site.send(producer, rng, 200)
    site.until(lambda: retried(site.counted) == site.n_sent)
    site.check()
    worker.stop()
