"""Two estimators of one survey on a real Redis: one works, the other is on standby and takes over."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from ldpstream.engines.checkpoint import Checkpoint
from ldpstream.engines.kafka import redis_results as module
from ldpstream.engines.kafka.redis_results import RedisResults
from ldpstream.publishing.results import KeptResults
from ldpstream.surveys import load_survey
from tests.faults.memory_store import MemoryCountStore
from tests.services.rig import PATIENCE_S, RedisNode, missing

from .schedule_rig import MARGIN_MS, Schedule, ScheduleLog, Told, pane

SURVEY = load_survey(Path(__file__).parents[2] / "surveys" / "samples" / "demo.toml")
STEPS = 6


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    if reason := missing(kafka=False):
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    with RedisNode(append_fsync=None) as node, redis.Redis.from_url(node.url) as made:
        yield made


@pytest.fixture
def store() -> MemoryCountStore:
    made = MemoryCountStore(SURVEY)
    panes = {key: table for s in range(STEPS) for key, table in pane(s, s + 1).items()}
    made.commit(0, None, Checkpoint(STEPS, SURVEY.opens_ms(STEPS), panes))
    return made


def schedule(store: MemoryCountStore, client: redis.Redis, told: Told) -> tuple[Schedule, KeptResults]:
    results = KeptResults(SURVEY, RedisResults(SURVEY, client))
    log = ScheduleLog([SURVEY.opens_ms(s) for s in range(STEPS)])
    return Schedule(SURVEY, store, log, results, [told]), results


def now_ms(step: int) -> int:
    return SURVEY.closes_ms(step) + MARGIN_MS


def test_the_second_works_only_after_the_first_has_stopped(
    store: MemoryCountStore, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    tolds = [Told(), Told()]
    (one, results), (two, others) = (schedule(store, client, told) for told in tolds)
    assert one.run(now_ms(0))
    assert two.run(now_ms(1)) == []
    monkeypatch.setattr(module, "LEASE_MS", 200)
    assert one.run(now_ms(1))  # the last renewal before the first estimator dies
    assert tolds[1].publications == []
    deadline = time.monotonic() + PATIENCE_S
    while not two.run(now_ms(2)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    monkeypatch.setattr(module, "LEASE_MS", 60_000)
    assert others.lead()
    assert one.run(now_ms(3)) == []
    results.store.resign()  # no effect, because this estimator does not have the lease
    assert not results.lead()
    others.store.resign()
    assert results.lead()


@pytest.mark.parametrize(
    "written",
    [
        b'{"incomplete": [], "format": 2, "next_step": 3, "first_step": 0}',
        b'{"first_step":0,"format":2,"next_step":3,"new":[7]}',
    ],
)
def test_progress_of_another_version_is_continued(store: MemoryCountStore, client: redis.Redis, written: bytes) -> None:
    """The JSON has another order or spaces, lacks empty fields, or has a field that this version does not know."""
    told = Told()
    estimator, results = schedule(store, client, told)
    client.set(results.store.progress_name, written)
    made = estimator.run(now_ms(4))
    assert {p.step for p in made} == {3, 4}
    progress = results.progress()
    assert progress is not None
    assert progress.next_step == 5
    assert not results.save([], progress.__class__(first_step=0, next_step=3), progress)  # stale progress is still refused
