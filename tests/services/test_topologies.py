"""On a Redis Cluster or behind Sentinels, the count store behaves as in memory, also during slot moves and failovers."""

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from redis.crc import key_slot

from ldpstream.engines import Checkpoint, CountStore, PaneKey, StoreUnavailable
from ldpstream.engines.checkpoint import STORED_KEY_BYTES
from ldpstream.engines.count_store import StoreRefused
from ldpstream.engines.kafka.redis_connection import connect
from ldpstream.engines.kafka.redis_results import RedisResults
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.estimators.filter.local_level import LocalLevel
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.progress import Progress
from ldpstream.publishing.results import KeptResults
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import load_survey
from tests.agents.samples import during, make_survey
from tests.conftest import give_up
from tests.faults.memory_store import MemoryCountStore

from .agent_site import MakeSite
from .certificates import Authority
from .rig import PATIENCE_S, free_ports, missing, wait_until
from .rig_secure import SecureRedisNode
from .rig_topologies import RedisClusterNodes, WatchedRedis
from .secure_site import DEMO, REDIS_RULES, check_agent, check_estimator, exercise_agent, exercise_estimator

SURVEY = make_survey("topologies")
PARTITIONS = 9


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisClusterNodes]:
    """A Cluster of three masters."""
    if reason := missing(kafka=False):
        give_up(reason)
    with RedisClusterNodes() as nodes:
        yield nodes


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


# ---- Cluster


def test_a_cluster_behaves_like_memory_while_slots_move(cluster: RedisClusterNodes) -> None:
    rng = np.random.default_rng(20261121)
    with closing(RedisCountStore(SURVEY, Settings(redis=cluster.url))) as store:
        stores: list[CountStore] = [MemoryCountStore(SURVEY), store]
        operate(stores, rng, 60)
        keys = [store._key(partition) for partition in range(PARTITIONS)]
        owners = {key: cluster.owner(key_slot(key.encode())) for key in keys}
        assert len(set(owners.values())) > 1  # with one owner the test would prove nothing
        for key in (*keys[:3], store._partitions_key):
            slot = key_slot(key.encode())
            others = [node for node in cluster.nodes if node is not cluster.owner(slot)]
            cluster.move(slot, others[int(rng.integers(2))])
            operate(stores, rng, 5)
        with closing(RedisCountStore(SURVEY, Settings(redis=cluster.url))) as another:
            assert_equal([stores[0], another])


def test_a_cluster_stores_results(cluster: RedisClusterNodes) -> None:
    with closing(connect(Settings(redis=cluster.url))) as client:
        results = KeptResults(SURVEY, RedisResults(SURVEY, client))
        empty = [[m.empty_table() for m in SURVEY.mechanisms[0]]]
        publication, progress = conclude(SURVEY, 0, 0, "step", empty, True), Progress(first_step=0, next_step=1)
        assert results.progress() is None
        states = {"a": LocalLevel(2).to_bytes(), "größe": LocalLevel(3).to_bytes()}
        assert results.filters() == {}
        assert results.save([publication], None, progress, states)
        assert not results.save([], None, progress, {"a": b"refused"})
        assert results.progress() == progress
        assert results.history() == [publication]
        assert results.filters() == states
        assert results.save([], progress, Progress(first_step=0, next_step=2))
        assert results.filters() == states


def test_the_store_recovers_after_a_cluster_node_was_down(cluster: RedisClusterNodes) -> None:
    rng = np.random.default_rng(3)
    survey = Settings(redis=cluster.url)
    with closing(RedisCountStore(make_survey("away"), survey, timeout_s=10)) as store:
        stores: list[CountStore] = [MemoryCountStore(store.survey), store]
        operate(stores, rng, 20)
        node = cluster.owner(key_slot(store._key(0).encode()))
        node.kill()
        try:
            for _ in range(3):
                began = time.monotonic()
                with pytest.raises(StoreUnavailable, match=r"^Redis at cluster [^\n]*$"):
                    store.load(0)
                assert time.monotonic() - began < PATIENCE_S
        finally:
            node.start()
        retried(store.snapshot)
        operate(stores, rng, 20)


def test_an_unreachable_cluster_raises_a_one_line_error() -> None:
    ports = free_ports(2)
    url = f"redis+cluster://me:s3cr3t@127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}"
    with (
        closing(RedisCountStore(SURVEY, Settings(redis=url))) as store,
        pytest.raises(StoreUnavailable, match=r"^Redis at cluster 127[^\n]*Connection refused[^\n]*$") as caught,
    ):
        store.positions()
    assert "s3cr3t" not in str(caught.value)


def test_a_cluster_with_tls_and_users_needs_two_more_rights(tmp_path: Path) -> None:
    if reason := missing(kafka=False):
        give_up(reason)
    survey, authority = load_survey(DEMO), Authority(tmp_path)
    more = ("+cluster|slots", "+command")
    rules = {role: rule.replace("NAME", survey.name) for role, rule in REDIS_RULES.items()}
    users = {role: ("secret", " ".join([*more, rule])) for role, rule in rules.items()}
    users |= {f"no-{i}": ("secret", f"{more[1 - i]} {rules['agent']}") for i in range(2)}
    with RedisClusterNodes(make=functools.partial(SecureRedisNode, authority, users)) as nodes:

        def who(name: str) -> Settings:
            return Settings(redis=nodes.url, redis_user=name, redis_password="secret", redis_ca_file=authority.file)

        check_agent(survey, who("agent"))
        exercise_agent(survey, who("agent"))
        check_estimator(survey, who("estimator"))
        exercise_estimator(survey, who("estimator"))
        for i in range(2):
            with pytest.raises(StoreRefused):
                check_agent(survey, who(f"no-{i}"))
        with pytest.raises(StoreRefused, match="invalid username-password pair"):
            check_agent(survey, who("nobody"))


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
        operate(stores, rng, 10)
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
        for password, said in (("sesame", None), ("s3cr3t", "invalid username-password"), (None, "requires a password")):
            settings = Settings(redis=watched.url, redis_sentinel_password=password)
            with closing(RedisCountStore(SURVEY, settings)) as store:
                if said is None:
                    store.check_counting()
                    continue
                with pytest.raises(StoreRefused, match=said) as caught:
                    store.check_counting()
                assert "s3cr3t" not in str(caught.value)
        unknown = Settings(redis=watched.url.replace("/counts", "/other"), redis_sentinel_password="sesame")
        with (
            closing(RedisCountStore(SURVEY, unknown)) as store,
            pytest.raises(StoreUnavailable, match="no Sentinel that answers knows a master other"),
        ):
            store.check_counting()


# ---- agents


@pytest.mark.parametrize("topology", ["cluster", "sentinel"])
def test_an_agent_counts_exactly_on_each_topology(
    topology: str, kafka: str, cluster: RedisClusterNodes, watched: WatchedRedis, make_site: MakeSite
) -> None:
    site, rng = make_site(kafka, cluster.url if topology == "cluster" else watched.url), np.random.default_rng(7)
    with site.producer() as producer:
        site.send(producer, rng, 200)
        worker = site.start()
        site.until(lambda: site.counted() == site.n_sent)
        if topology == "sentinel":
            watched.await_replica()
            watched.fail_over()
        site.send(producer, rng, 200)
    site.until(lambda: retried(site.counted) == site.n_sent)
    site.check()
    worker.stop()
