"""Tests `Counting` with logs that expire, get shorter, or belong to a recreated topic."""

import numpy as np
import pytest

from ldpstream.agents import Record, metrics, tally
from ldpstream.agents.fold import not_after
from ldpstream.engines import Checkpoint
from ldpstream.engines.checkpoint import MAX_MS, STORED_KEY_BYTES, Missing, first_open_step
from ldpstream.engines.count_store import StoreDamaged
from ldpstream.surveys.report_key import REPORT_KEY_BYTES
from tests.faults.memory_store import MemoryCountStore
from tests.faults.stepped import LOGS, SURVEY, SteppedAgent, SteppedTopic

from .samples import during, make_log, sound


async def test_a_lost_store_with_an_expired_log_notes_the_gap() -> None:
    """The agent knows only that no missing record was appended after the first remaining record."""
    log, store = SteppedTopic(), MemoryCountStore(SURVEY)
    log.records[0], log.begins[0] = LOGS[0][25:], 25
    await SteppedAgent(store, log).finish()
    gap = Missing(0, not_after(LOGS[0][25].appended_ms), 25)
    assert {p: head.missing for p, head in store.heads().items()} == {0: gap, 1: None}
    again = SteppedAgent(store, log)  # the range of missing records stays the same
    log.records[0] = [*LOGS[0][25:], LOGS[0][-1]._replace(offset=40)]
    await again.finish()
    assert store.heads()[0].missing == Missing(0, not_after(LOGS[0][25].appended_ms), 25)


async def test_an_empty_expired_log_moves_the_checkpoint() -> None:
    """Otherwise an estimator would wait for records that no longer exist."""
    log = SteppedTopic()
    log.records[0], log.begins[0] = [], 40
    store = MemoryCountStore(SURVEY)
    store.commit(0, None, Checkpoint(10))
    await SteppedAgent(store, log).step()
    assert store.positions() == {0: 40}


async def test_counting_continues_at_the_end_of_a_shortened_log() -> None:
    log = SteppedTopic()
    store = MemoryCountStore(SURVEY)
    store.commit(0, None, Checkpoint(50, LOGS[0][-1].appended_ms))
    await SteppedAgent(store, log).step()
    assert store.positions()[0] == 40
    log.records[0] = [*LOGS[0], LOGS[0][-1]._replace(offset=40)]
    await SteppedAgent(store, log).finish()
    assert store.positions()[0] == 41


async def test_a_log_that_lost_nothing_lacks_nothing() -> None:
    """The control: a new record is no loss, even if the broker's clock has stepped back."""
    log, store = SteppedTopic(), MemoryCountStore(SURVEY)
    agent = SteppedAgent(store, log)
    await agent.finish()
    log.records[0] = [*LOGS[0], LOGS[0][-1]._replace(offset=40, appended_ms=LOGS[0][-1].appended_ms - 400)]
    await agent.finish()
    await SteppedAgent(store, log).finish()
    assert {p: head.missing for p, head in store.heads().items()} == {0: None, 1: None}


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


@pytest.mark.parametrize("length", [0, 5, 15, 30, 60])
@pytest.mark.parametrize("seen", ["at once", "by its next agent", "after some of it was read"])
async def test_a_recreated_topic_is_counted_from_its_beginning(length: int, seen: str) -> None:
    """The new log may end below, at or above the old offset.

    Closed steps keep their counts; open steps count only the new log.
    """
    log, store = SteppedTopic(log_id="old"), MemoryCountStore(SURVEY)
    agent = SteppedAgent(store, log)
    await agent.step()
    for partition in LOGS:
        await agent.read(partition, 15)
    await agent.step()
    before = store.snapshot()
    assert {p: head.position for p, head in before.items()} == {0: (15, "old"), 1: (15, "old")}
    await agent.read(0, 5)  # these records are not yet written when the topic is deleted
    new = remade(first_step=4, length=length, seed=length)
    log.log_id, log.records = "new", new
    if seen == "by its next agent":
        agent = SteppedAgent(store, log)
    if seen == "after some of it was read":
        await agent.read(0, 7)
    await agent.finish()
    for partition, old in before.items():
        closed = {key: table for key, table in old.panes.items() if key.step < first_open_step(SURVEY, old.newest_ms)}
        found = store.snapshot()[partition]
        assert found.panes == closed | tally(SURVEY, new[partition]).counts
        assert closed
        assert found.position == (length, "new")
        until = not_after(new[partition][0].appended_ms) if length else MAX_MS
        assert found.missing == Missing(old.newest_ms, until, 0)
    assert await agent.counting.healthy()


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


async def test_counts_of_a_deleted_topic_never_replace_new_ones() -> None:
    """One agent was suspended while the topic was recreated.

    The agent's old offset equals the offset reached in the new log.
    """
    log, store = SteppedTopic(log_id="old"), MemoryCountStore(SURVEY)
    sleeper = SteppedAgent(store, log)
    await sleeper.step()
    await sleeper.read(0, 10)
    await sleeper.step()
    await sleeper.read(0, 10)
    new = SteppedTopic(log_id="new", records=remade(4, 20, 1))
    await SteppedAgent(store, new).finish()
    before = store.snapshot()[0]
    assert before.position == (20, "new")
    await sleeper.step()  # the suspended agent's broker does not know the new topic yet
    sleeper.log.log_id, sleeper.log.records = "new", new.records
    await sleeper.finish()
    assert store.snapshot()[0].panes == before.panes
    assert store.snapshot()[0].position == before.position


async def test_a_recreated_topic_counts_the_keys_of_the_old_one_again() -> None:
    """Devices send their envelopes of open steps again, with the same report keys. Each key counts once in the new log."""
    rng, key = np.random.default_rng(9), [bytes([i]) * REPORT_KEY_BYTES for i in range(6)]
    sent = [Record(i, during(SURVEY, 4), sound(SURVEY, rng, 4, i % 3), key[i]) for i in range(6)]
    twice = [record._replace(offset=i) for i, record in enumerate([*sent, *sent])]
    log, store = SteppedTopic(log_id="old", records={0: twice, 1: []}), MemoryCountStore(SURVEY)
    agent, before = SteppedAgent(store, log), metrics.duplicates._value.get()
    await agent.finish()
    assert metrics.duplicates._value.get() == before + 6
    assert store.snapshot()[0].panes == tally(SURVEY, sent).counts
    log.log_id, log.records = "new", {0: twice[:9], 1: []}
    await agent.finish()
    assert store.snapshot()[0].panes == tally(SURVEY, sent).counts
    loaded = store.load(0)
    assert loaded is not None
    assert (loaded.position, loaded.n_keys, len(loaded.keys[4])) == ((9, "new"), {4: 6}, 6 * STORED_KEY_BYTES)
    assert metrics.duplicates._value.get() == before + 9
