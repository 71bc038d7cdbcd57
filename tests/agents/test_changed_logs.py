"""Tests `Counting` with logs that expire, get shorter, or belong to a recreated topic."""

import numpy as np
import pytest

from ldpstream.agents import Record
from ldpstream.agents.fold import not_after
from ldpstream.engines import Checkpoint
from ldpstream.engines.checkpoint import MAX_MS, Missing, first_open_step
from ldpstream.engines.count_store import StoreDamaged
from tests.faults.memory_store import MemoryCountStore
from tests.faults.stepped import LOGS, SURVEY, SteppedAgent, SteppedTopic

from .samples import make_log, sound


async def test_a_hole_at_the_end_of_the_log_has_no_end_before_the_next_record() -> None:
    log, store = SteppedTopic(), MemoryCountStore(SURVEY)
    log.records[0], log.markers[0] = LOGS[0][:30], 10
    agent = SteppedAgent(store, log)
    await agent.finish()
    assert store.heads()[0].missing == Missing(LOGS[0][29].appended_ms, MAX_MS, 40)


def remade(first_step: int, length: int, seed: int) -> dict[int, list[Record]]:
    """Makes the logs of a recreated topic, with `length` records from `first_step` on."""
    rng = np.random.default_rng(seed)
    logs = {p: make_log(SURVEY, rng, length, steps=3) for p in LOGS}
    moved = first_step * SURVEY.step_ms
    return {
        p: [
            record._replace(
                appended_ms=record.appended_ms + moved, value=sound(SURVEY, rng, SURVEY.step_at(record.appended_ms + moved), 0)
            )
            for record in log
        ]
        for p, log in logs.items()
    }


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("stored", [True, False])
async def test_vanished_partitions_lose_their_open_counts(known: bool, stored: bool) -> None:
    """If a recreated topic has fewer partitions, some old partitions have no owner.

    If `stored` is false, counts are stored only for the vanished partition.
    """
    log, store = SteppedTopic(log_id="old"), MemoryCountStore(SURVEY)
    agent = SteppedAgent(store, log)
    await agent.step()
    for partition in LOGS if stored else [1]:
        await agent.read(partition, 15)
    await agent.step()
    old = store.snapshot()[1]
    new = remade(first_step=4, length=5, seed=1)
    log.log_id, log.records, log.begins = "new", {0: new[0]}, {0: 0}
    if known:
        agent.counting.assign([0])
    else:
        agent = SteppedAgent(store, log)
        agent.counting.assign([0])
    for _ in range(4):
        await agent.step()
        await agent.read(0)
    found = store.snapshot()
    assert found[0].position == (5, "new")
    assert found[1].position == (0, "new")
    assert found[1].panes == {k: table for k, table in old.panes.items() if k.step < first_open_step(SURVEY, old.newest_ms)}
    assert found[1].panes != old.panes
    assert found[1].missing == Missing(old.newest_ms, not_after(new[0][0].appended_ms), 0)
    assert await agent.counting.healthy()


async def test_a_vanished_partition_with_a_damaged_checkpoint_is_closed_once_it_is_mended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, store = SteppedTopic(log_id="old"), MemoryCountStore(SURVEY)
    agent, load, damaged = SteppedAgent(store, log), store.load, True

    def loaded(partition: int) -> Checkpoint | None:
        if damaged and partition == 1:
            raise StoreDamaged("damaged")
        return load(partition)

    await agent.step()
    await agent.read(1, 15)
    await agent.step()
    monkeypatch.setattr(store, "load", loaded)
    log.log_id, log.records, log.begins = "new", {0: remade(first_step=4, length=5, seed=1)[0]}, {0: 0}
    agent = SteppedAgent(store, log)
    agent.counting.assign([0])
    for _ in range(3):
        await agent.step()
        await agent.read(0)
    assert store.snapshot()[1].log_id == "old"
    damaged = False
    await agent.step()
    assert store.snapshot()[1].position == (0, "new")
