"""Tests `Counting` with a log and a store that can fail in several ways."""

import asyncio

import numpy as np
import pytest
import structlog

from ldpstream.agents import Record, metrics, tally
from ldpstream.agents.counting import TELL_S
from ldpstream.agents.log import Unread
from ldpstream.engines import Checkpoint
from ldpstream.engines.count_store import StoreDamaged
from tests.faults.memory_store import MemoryCountStore
from tests.faults.stepped import (
    LOGS,
    SURVEY,
    SteppedAgent,
    SteppedTopic,
    direct,
    started,
)

from .samples import during, sound


async def test_everything_is_counted_once() -> None:
    store, log = MemoryCountStore(SURVEY), SteppedTopic()
    agent = SteppedAgent(store, log)
    assert agent.counting.unready is not None
    await agent.finish()
    assert agent.counting.unready is None
    assert store.snapshot() == direct(LOGS)
    assert log.group == store.positions()


async def test_a_damaged_checkpoint_stops_only_its_partition() -> None:
    class Damaged(MemoryCountStore):
        sound = False

        def load(self, partition: int) -> Checkpoint | None:
            if partition == 0 and not self.sound:
                raise StoreDamaged("partition 0 is damaged")
            return super().load(partition)

        def heads(self) -> dict[int, Checkpoint]:
            if not self.sound:
                raise StoreDamaged("partition 0 is damaged")
            return super().heads()

    store = Damaged(SURVEY)
    agent = SteppedAgent(store)
    assert await agent.step()
    assert await agent.read(1, 5)
    assert await agent.step()
    assert store.snapshot().keys() == {1}
    assert agent.counting.unready is not None
    store.sound = True
    await agent.finish()
    assert store.snapshot() == direct(LOGS)


async def test_chunks_flow_again_even_with_nothing_to_write() -> None:
    """The partition whose commit failed is revoked. No later commit could therefore detect that the store answers again."""
    agent, store = await started()
    await agent.read(0, 5)
    store.fails = True
    assert not await agent.step()
    agent.counting.assign([1])
    store.fails = False
    assert await agent.step()
    assert await agent.read(1)


async def test_each_record_of_an_unreadable_batch_is_counted_as_rejected() -> None:
    """Counting continues after the batch."""
    store, log = MemoryCountStore(SURVEY), SteppedTopic()
    agent = SteppedAgent(store, log)
    await agent.step()
    before, unreadable = log.read(0, 10), log.read(0, 15)
    assert before is not None
    assert unreadable is not None
    stand_in = Record(10, unreadable.records[-1].appended_ms, b"")
    await agent.counting.take(before)
    told = metrics.rejected.labels("undecodable")._value.get()
    await agent.counting.take(unreadable._replace(records=[stand_in], unread=Unread(15, "undecodable")))
    assert metrics.rejected.labels("undecodable")._value.get() == told + 15
    await agent.finish()
    readable = {0: LOGS[0][:10] + LOGS[0][25:], 1: LOGS[1]}
    expected = direct(readable)
    expected[0].rejected["undecodable"] = expected[0].rejected.get("undecodable", 0) + 15
    assert store.snapshot() == expected


async def test_rejections_are_logged_once_in_ten_seconds_and_without_content() -> None:
    """However many envelopes are rejected, and however small the batches are: the log must not be flooded."""
    log = SteppedTopic({0: [Record(i, 0, b"a value") for i in range(40)], 1: []})
    agent = SteppedAgent(MemoryCountStore(SURVEY), log)
    await agent.step()
    with structlog.testing.capture_logs() as lines:
        for refused in [None] * 6 + [Unread(5, "unreadable batch", "old")] * 2:
            chunk = log.read(0, 5)
            assert chunk is not None
            agent.now += TELL_S * (refused is not None) / 2
            await agent.counting.take(chunk._replace(records=chunk.records[:1] if refused else chunk.records, unread=refused))
    shown = [(line["reason"], line["why"], line["records"], line["offset"]) for line in lines]
    assert shown == [("undecodable", "", 5, 0), ("unreadable batch", "old", 5, 35)]
    assert "value" not in str(lines)


async def test_a_gap_at_the_end_of_the_log_is_skipped_later() -> None:
    """Without the skip, the checkpoint would never reach the log's end, and an estimator would wait for the checkpoint."""
    log = SteppedTopic(markers={0: 2})
    store = MemoryCountStore(SURVEY)
    agent = SteppedAgent(store, log)
    await agent.finish()
    assert store.positions() == {0: 42, 1: 40}
    assert await agent.counting.healthy()


async def test_closing_commits_the_remaining_changes() -> None:
    store = MemoryCountStore(SURVEY)
    agent = SteppedAgent(store)
    running = asyncio.create_task(agent.counting.run())
    await agent.until(lambda: agent.counting.unready is None)
    for partition in LOGS:
        await agent.read(partition)
    await agent.counting.close()
    await asyncio.wait_for(running, 1)
    assert store.snapshot() == direct(LOGS)


async def test_the_loop_commits_at_once_when_a_step_closes() -> None:
    store = MemoryCountStore(SURVEY)
    agent = SteppedAgent(store, commit_interval_s=3600.0)
    running = asyncio.create_task(agent.counting.run())
    await agent.until(lambda: agent.counting.unready is None)
    steps = [SURVEY.step_at(record.appended_ms) for record in LOGS[0]]
    later = next(i for i, step in enumerate(steps) if step > steps[0])
    assert later > 1
    await agent.read(0, 1)  # the first record of a partition closes all steps before it
    await agent.until(lambda: store.positions().get(0) == 1)
    await agent.read(0, later - 1)
    await asyncio.sleep(0.05)
    assert store.positions()[0] == 1  # no step has closed
    await agent.read(0, 1)
    await agent.until(lambda: store.positions().get(0) == later + 1)
    await agent.counting.close()
    await asyncio.wait_for(running, 1)


async def test_chunks_wait_while_the_store_refuses_writes() -> None:
    """The store answers reads while it refuses writes, so a successful read does not prove that writes succeed."""
    agent, store = await started()
    await agent.read(0, 5)
    store.refuses = True
    for _ in range(5):
        assert not await agent.step()
        assert agent.counting.unready is not None
        assert not await agent.read(0, 5)
        agent.now += 100
        assert await agent.counting.healthy()
    store.refuses = False
    assert await agent.step()
    await agent.step()
    assert agent.counting.unready is None
    await agent.finish()
    assert store.snapshot() == direct(LOGS)


async def test_a_long_log_is_written_in_bounded_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a long log is counted again, many steps are open.

    Unwritten counts exceed the limit by at most one step's tables.
    """
    rng, steps = np.random.default_rng(5), 40
    record = [Record(i, during(SURVEY, i // 3), sound(SURVEY, rng, i // 3, i % 3)) for i in range(3 * steps)]
    a_step = sum(table.counts.nbytes for table in tally(SURVEY, record[:3]).counts.values())
    monkeypatch.setattr("ldpstream.agents.counting.MAX_UNWRITTEN_BYTES", 4 * a_step)
    store = MemoryCountStore(SURVEY)
    agent = SteppedAgent(store, SteppedTopic(records={0: record, 1: []}))
    await agent.step()
    chunk, largest, write = agent.log.read(0, 1000), 0, store.commit
    assert chunk is not None
    assert len(chunk.records) == 3 * steps

    def weigh(partition: int, expected: tuple[int, str] | None, change: Checkpoint) -> bool:
        nonlocal largest
        largest = max(largest, sum(table.counts.nbytes for table in change.panes.values()))
        return write(partition, expected, change)

    monkeypatch.setattr(store, "commit", weigh)
    running = asyncio.create_task(agent.counting.run())
    await asyncio.wait_for(agent.counting.take(chunk), 5)
    await agent.counting.close()
    await running
    assert store.snapshot()[0].panes == tally(SURVEY, record).counts
    assert 4 * a_step < largest <= 5 * a_step
