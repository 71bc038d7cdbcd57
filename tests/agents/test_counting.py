"""Tests `Counting` with a log and a store that fail in every way."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents import Record, metrics, tally
from agents.counting import Counting
from agents.log import Chunk, DeadLetter, LogUnavailable, Refusal
from stores import Checkpoint, MemoryCountStore, StoreUnavailable
from stores.checkpoint import Missing, first_open_step
from surveys import REASONS

from .samples import during, make_log, make_survey, sound

SURVEY = make_survey()
NOW_MS = SURVEY.opens_ms(50)
LOGS = {p: make_log(SURVEY, np.random.default_rng(100 + p), length=40, steps=6) for p in range(2)}


@dataclass
class FakeLog:
    """A log of two partitions with one reader. As with Faust, a chunk that is read but not delivered is lost."""

    records: dict[int, list[Record]] = field(default_factory=lambda: {p: list(log) for p, log in LOGS.items()})
    begins: dict[int, int] = field(default_factory=lambda: dict.fromkeys(LOGS, 0))
    group: dict[int, int] = field(default_factory=dict)
    letters: list[DeadLetter] = field(default_factory=list)
    markers: dict[int, int] = field(default_factory=dict)  # offsets without a record at the log's end
    log_id: str = ""
    fails: bool = False
    reason: str = ""  # why its reader is shut out of the group
    gone: bool = True  # unreachable for every client whenever it fails
    placements: dict[int, list[int]] = field(default_factory=dict)  # number, position, chunks read
    number: int = 0

    async def identity(self) -> str:
        self.check()
        return self.log_id

    async def partitions(self) -> set[int]:
        self.check()
        return set(self.records)

    async def ask_second_client(self, partitions: Sequence[int]) -> None:
        if self.gone:
            raise LogUnavailable("gone")

    def shut_out(self) -> str:
        return self.reason

    async def bounds(self, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        self.check()
        return {partition: (self.begins[partition], self.end(partition)) for partition in partitions}

    async def place(self, partition: int, offset: int) -> int:
        self.check()
        self.number += 1
        self.placements[partition] = [self.number, offset, 0]
        return self.number

    async def position_if_nothing_read(self, partition: int) -> int | None:
        self.check()
        _, position, chunks = self.placements[partition]
        return position if chunks == 0 else None

    async def commit_group(self, offsets: dict[int, int]) -> None:
        self.check()
        self.group.update(offsets)

    async def send_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        self.check()
        self.letters += letters

    def check(self) -> None:
        if self.fails:
            raise LogUnavailable("gone")

    def end(self, partition: int) -> int:
        last = self.records[partition][-1].offset + 1 if self.records[partition] else self.begins[partition]
        return last + self.markers.get(partition, 0)

    def read(self, partition: int, length: int) -> Chunk | None:
        """Returns the next chunk, of at most `length` records; None without a placement or records."""
        if partition not in self.placements:
            return None
        number, position, chunks = self.placements[partition]
        found = [record for record in self.records[partition] if record.offset >= position][:length]
        if not found:
            self.placements[partition] = [number, self.end(partition), chunks]
            return None
        self.placements[partition] = [number, found[-1].offset + 1, chunks + 1]
        return Chunk(partition, number, chunks, found)


class FakeStore(MemoryCountStore):
    """A store that can be unreachable, refuse writes or lose its answers."""

    fails = False
    refuses = False  # refuses writes, as with a full disk or full memory
    loses_answers = False

    def load(self, partition: int) -> Checkpoint | None:
        self.check()
        return super().load(partition)

    def positions(self) -> dict[int, int]:
        self.check()
        return super().positions()

    def commit(self, partition: int, expected: tuple[int, str] | None, change: Checkpoint) -> bool:
        self.check()
        if self.refuses:
            raise StoreUnavailable("OOM command not allowed when used memory > 'maxmemory'")
        written = super().commit(partition, expected, change)
        if self.loses_answers:
            raise StoreUnavailable("timed out")
        return written

    def check(self) -> None:
        if self.fails:
            raise StoreUnavailable("gone")


class Agent:
    """A `Counting` with its own reader of the log; tests drive it step by step."""

    def __init__(self, store: MemoryCountStore, log: FakeLog | None = None) -> None:
        self.now = 0.0
        self.log = log or FakeLog()
        self.counting = Counting(SURVEY, store, self.log, 0.01, clock=lambda: self.now, now_ms=lambda: NOW_MS)
        self.counting.assign(LOGS)

    async def step(self) -> bool:
        try:
            await self.counting.step()
        except (StoreUnavailable, LogUnavailable):
            return False
        return True

    async def read(self, partition: int, length: int = 1000) -> bool:
        chunk = self.log.read(partition, length)
        if chunk is None:
            return False
        try:
            await asyncio.wait_for(self.counting.take(chunk), 0.01)
        except TimeoutError:
            return False  # `Counting` takes no chunks; this one is lost, as in a rebalance
        return True

    async def until(self, reached: Callable[[], bool]) -> None:
        """Lets the agent's own loop run until `reached` returns true."""
        for _ in range(1000):
            if reached():
                return
            await asyncio.sleep(0.005)
        raise AssertionError("not within 5 s")

    async def finish(self) -> None:
        """Runs steps, reads and stall checks until everything is counted."""
        for _ in range(20):
            await self.step()
            for partition in LOGS:
                while await self.read(partition, 7):
                    pass
            self.now += 11
            await self.counting.healthy()


def direct(records: dict[int, list[Record]]) -> dict[int, Checkpoint]:
    whole = {}
    for partition, log in records.items():
        added = tally(SURVEY, log)
        reasons = [reason for _, reason in added.rejected]
        totals = {reason: reasons.count(reason) for reason in REASONS if reason in reasons}
        newest = max((record.appended_ms for record in log), default=0)
        whole[partition] = Checkpoint(log[-1].offset + 1, newest, added.counts, totals)
    return whole


def without_gaps(store: MemoryCountStore) -> dict[int, Checkpoint]:
    return {p: replace(checkpoint, missing=None) for p, checkpoint in store.snapshot().items()}


def letters_of(records: dict[int, list[Record]]) -> set[tuple[int, int, str]]:
    return {(p, offset, reason) for p, log in records.items() for offset, reason in tally(SURVEY, log).rejected}


async def test_everything_is_counted_once() -> None:
    store, log = MemoryCountStore(SURVEY), FakeLog()
    agent = Agent(store, log)
    assert not agent.counting.ready
    await agent.finish()
    assert agent.counting.ready
    assert store.snapshot() == direct(LOGS)
    assert log.group == store.positions()
    assert {(x.partition, x.record.offset, x.reason) for x in log.letters} == letters_of(LOGS)
    assert len(log.letters) == len(letters_of(LOGS))
    assert all(x.record == LOGS[x.partition][x.record.offset] for x in log.letters)


OPERATIONS = st.tuples(
    st.sampled_from(
        ["read", "read", "step", "step", "drop", "stale", "crash", "revoke", "void", "store", "answers", "log", "wipe"]
    ),
    st.integers(0, 1),  # agent
    st.integers(0, 1),  # partition
    st.integers(1, 15),  # records
)


@given(st.lists(OPERATIONS, max_size=60))
@settings(max_examples=150)
def test_every_record_counts_once_under_random_faults(operations: list[tuple[str, int, int, int]]) -> None:
    """Two agents both believe they own everything, and suffer random faults."""

    async def run() -> None:
        store = FakeStore(SURVEY)
        agents = [Agent(store), Agent(store)]
        held: dict[int, Chunk | None] = {}
        for name, who, partition, length in operations:
            agent = agents[who]
            match name:
                case "read":
                    await agent.read(partition, length)
                case "step":
                    await agent.step()
                case "drop":  # read and not delivered; "stale" may deliver it later, perhaps after another placement
                    held[who] = agent.log.read(partition, length)
                case "stale":
                    if (chunk := held.pop(who, None)) is not None and not store.fails and agent.counting.ready:
                        await asyncio.wait_for(agent.counting.take(chunk), 1)
                case "crash":
                    agents[who] = Agent(store)
                case "revoke":
                    await agent.counting.revoke([partition])
                    agent.counting.assign(LOGS)
                case "void":
                    agent.counting.assign(LOGS)
                case "store":
                    store.fails = not store.fails
                case "answers":
                    store.loses_answers = not store.loses_answers
                case "log":
                    agent.log.fails = not agent.log.fails
                case "wipe":
                    store._checkpoints.clear()
        store.fails = store.loses_answers = False
        last = Agent(store)
        await last.finish()
        assert store.snapshot() == direct(LOGS)
        assert {(x.partition, x.record.offset, x.reason) for x in last.log.letters} <= letters_of(LOGS)

    asyncio.run(run())


async def test_a_dropped_chunk_is_read_again() -> None:
    store = MemoryCountStore(SURVEY)
    agent = Agent(store)
    await agent.step()
    await agent.read(0, 5)
    agent.log.read(0, 5)  # lost before delivery
    await agent.read(0, 5)
    assert not agent.counting.ready
    held = agent.log.read(0, 5)
    assert held is not None
    await agent.step()
    await agent.counting.take(held)  # read before the new placement, so its offsets reveal no gap
    assert agent.counting.ready
    await agent.finish()
    assert store.snapshot() == direct(LOGS)


async def test_a_dropped_first_chunk_is_not_a_gap_of_the_log() -> None:
    store = MemoryCountStore(SURVEY)
    agent = Agent(store)
    await agent.step()
    agent.log.read(0, 5)  # the first after the placement, lost before delivery
    await agent.read(0, 5)
    await agent.finish()
    assert store.snapshot() == direct(LOGS)


async def test_a_rebalance_during_placement_voids_the_placement() -> None:
    store = MemoryCountStore(SURVEY)
    agent = Agent(store)
    place = agent.log.place

    async def place_and_assign(partition: int, offset: int) -> int:
        number = await place(partition, offset)
        agent.log.placements.clear()
        agent.counting.assign(LOGS)
        agent.log.place = place  # type: ignore[method-assign]
        return number

    agent.log.place = place_and_assign  # type: ignore[method-assign]
    await agent.step()
    assert not agent.counting.ready
    await agent.finish()
    assert store.snapshot() == direct(LOGS)


async def test_chunks_wait_for_the_store_and_none_is_lost() -> None:
    store = FakeStore(SURVEY)
    agent = Agent(store)
    await agent.step()
    await agent.read(0, 5)
    store.fails = True
    assert not await agent.step()
    assert not agent.counting.ready
    chunk = agent.log.read(0, 5)
    assert chunk is not None
    waiting = asyncio.create_task(agent.counting.take(chunk))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    store.fails = False
    assert await agent.step()
    await waiting
    await agent.finish()
    assert store.snapshot() == direct(LOGS)


async def test_chunks_flow_again_even_with_nothing_to_write() -> None:
    """The partition whose commit failed is revoked, so no commit would notice that the store answers again."""
    store = FakeStore(SURVEY)
    agent = Agent(store)
    await agent.step()
    await agent.read(0, 5)
    store.fails = True
    assert not await agent.step()
    agent.counting.assign([1])
    store.fails = False
    assert await agent.step()
    assert await agent.read(1)


async def test_a_stale_owner_is_refused_and_reloads() -> None:
    store = MemoryCountStore(SURVEY)
    one, other = Agent(store), Agent(store)
    for agent in (one, other):
        await agent.step()
        await agent.read(0, 10 if agent is one else 20)
    await other.step()
    await one.step()  # refused
    assert store.positions()[0] == 20
    await one.finish()
    assert store.snapshot() == direct(LOGS)


async def test_letters_are_sent_before_their_commit() -> None:
    store = MemoryCountStore(SURVEY)
    agent = Agent(store)
    await agent.step()
    await agent.read(0)
    agent.log.fails = True
    assert not await agent.step()
    assert store.positions() == {}
    agent.log.fails = False
    await agent.finish()
    assert {(x.partition, x.record.offset, x.reason) for x in agent.log.letters} == letters_of(LOGS)
    assert store.snapshot() == direct(LOGS)


async def test_letters_go_in_batches_and_none_is_sent_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.counting.LETTERS_AT_ONCE", 1)
    store = MemoryCountStore(SURVEY)
    agent = Agent(store)
    await agent.step()
    await agent.read(1, 20)
    send, calls = agent.log.send_dead_letters, 0

    async def send_and_read_on(letters: Sequence[DeadLetter]) -> None:
        nonlocal calls
        calls += 1
        assert len(letters) == 1
        if calls == 2:
            raise LogUnavailable("gone")
        await send(letters)
        await agent.read(1, 3)  # more letters come during the sending

    agent.log.send_dead_letters = send_and_read_on  # type: ignore[method-assign]
    assert not await agent.step()
    assert store.positions() == {}
    await agent.finish()
    sent = [(x.partition, x.record.offset, x.reason) for x in agent.log.letters]
    assert calls > 2
    assert len(sent) == len(set(sent))
    assert set(sent) == letters_of(LOGS)
    assert store.snapshot() == direct(LOGS)


async def test_many_unsent_letters_stop_the_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.back_pressure.MAX_LETTER_BYTES", 10)
    store = MemoryCountStore(SURVEY)
    agent = Agent(store)
    await agent.step()
    await agent.read(0, 30)
    assert not await agent.read(0, 5)
    await agent.step()
    await agent.finish()
    assert store.snapshot() == direct(LOGS)


async def test_an_unreadable_batch_is_one_letter_and_many_rejections() -> None:
    """Counting continues behind it as if each of its records had been refused."""
    store, log = MemoryCountStore(SURVEY), FakeLog()
    agent = Agent(store, log)
    await agent.step()
    before, unreadable = log.read(0, 10), log.read(0, 15)
    assert before is not None
    assert unreadable is not None
    stand_in = Record(10, unreadable.records[-1].appended_ms, b"the batch")
    await agent.counting.take(before)
    told = metrics.rejected.labels("undecodable")._value.get()
    await agent.counting.take(unreadable._replace(records=[stand_in], refusal=Refusal(15, "undecodable")))
    assert metrics.rejected.labels("undecodable")._value.get() == told + 15
    await agent.finish()
    readable = {0: LOGS[0][:10] + LOGS[0][25:], 1: LOGS[1]}
    expected = direct(readable)
    expected[0].rejected["undecodable"] = expected[0].rejected.get("undecodable", 0) + 15
    assert store.snapshot() == expected
    assert [letter for letter in log.letters if letter.records != 1] == [DeadLetter(0, stand_in, "undecodable", 15)]


async def test_expired_records_are_skipped_and_noted() -> None:
    log = FakeLog()
    log.records[0], log.begins[0] = LOGS[0][25:], 25
    store = MemoryCountStore(SURVEY)
    store.commit(0, None, Checkpoint(10))
    await Agent(store, log).finish()
    gap = Missing(0, LOGS[0][25].appended_ms + 1, 25)
    assert store.heads()[0].missing == gap
    assert without_gaps(store) == direct({0: LOGS[0][25:], 1: LOGS[1]})


async def test_a_lost_store_with_an_expired_log_notes_the_gap() -> None:
    """Nothing is known of the earlier records, except that none was appended after the first remaining record."""
    log, store = FakeLog(), MemoryCountStore(SURVEY)
    log.records[0], log.begins[0] = LOGS[0][25:], 25
    await Agent(store, log).finish()
    assert {p: head.missing for p, head in store.heads().items()} == {0: Missing(0, LOGS[0][25].appended_ms + 1, 25), 1: None}
    again = Agent(store, log)  # the note stays
    log.records[0] = [*LOGS[0][25:], LOGS[0][-1]._replace(offset=40)]
    await again.finish()
    assert store.heads()[0].missing == Missing(0, LOGS[0][25].appended_ms + 1, 25)


async def test_without_records_the_missing_ones_end_now() -> None:
    log, store = FakeLog(), MemoryCountStore(SURVEY)
    log.records[0], log.begins[0] = [], 40
    await Agent(store, log).finish()
    assert store.heads()[0].missing == Missing(0, NOW_MS, 40)
    log.records[0] = [LOGS[0][-1]._replace(offset=40)]
    await Agent(store, log).finish()
    assert store.heads()[0].missing == Missing(0, LOGS[0][-1].appended_ms + 1, 40)


async def test_an_empty_expired_log_moves_the_checkpoint() -> None:
    """Otherwise an estimator would wait for records that no longer exist."""
    log = FakeLog()
    log.records[0], log.begins[0] = [], 40
    store = MemoryCountStore(SURVEY)
    store.commit(0, None, Checkpoint(10))
    await Agent(store, log).step()
    assert store.positions() == {0: 40}


async def test_counting_continues_at_the_end_of_a_shortened_log() -> None:
    log = FakeLog()
    store = MemoryCountStore(SURVEY)
    store.commit(0, None, Checkpoint(50))
    await Agent(store, log).step()
    assert store.positions()[0] == 40
    log.records[0] = [*LOGS[0], LOGS[0][-1]._replace(offset=40)]
    await Agent(store, log).finish()
    assert store.positions()[0] == 41


async def test_transaction_markers_are_not_missing_offsets() -> None:
    """The position passes them at once, and the alert on lost records does not fire."""
    log, store = FakeLog(), MemoryCountStore(SURVEY)
    log.records[0] = LOGS[0][:10] + [record._replace(offset=record.offset + 1) for record in LOGS[0][10:]]
    agent = Agent(store, log)
    await agent.step()
    missing, gaps = metrics.missing_offsets._value.get(), metrics.gaps._value.get()
    number = log.placements[0][0]

    def markers(offset: int, sequence: int) -> Chunk:
        return Chunk(0, number, sequence, [Record(offset, NOW_MS, b"")], markers=1)

    for chunk in (
        Chunk(0, number, 0, log.records[0][:10]), markers(10, 1), Chunk(0, number, 2, log.records[0][10:]), markers(41, 3),
    ):  # fmt: skip
        await agent.counting.take(chunk)
    assert await agent.step()
    assert store.snapshot()[0] == replace(direct(log.records)[0], next_offset=42)
    assert (metrics.missing_offsets._value.get(), metrics.gaps._value.get()) == (missing, gaps)


async def test_a_marker_at_the_placed_offset_is_skipped() -> None:
    log, store = FakeLog(), MemoryCountStore(SURVEY)
    log.records[0] = [record._replace(offset=record.offset + 1) for record in LOGS[0]]
    agent = Agent(store, log)
    await agent.step()
    missing, number = metrics.missing_offsets._value.get(), log.placements[0][0]
    await agent.counting.take(Chunk(0, number, 0, [Record(0, NOW_MS, b"")], markers=1))
    await agent.counting.take(Chunk(0, number, 1, log.records[0]))
    assert await agent.step()
    assert (store.positions()[0], metrics.missing_offsets._value.get()) == (41, missing)


async def test_a_gap_that_the_broker_confirms_is_skipped() -> None:
    """Compacted topics have such gaps."""
    log = FakeLog()
    log.records[0] = LOGS[0][:10] + LOGS[0][11:]
    store = MemoryCountStore(SURVEY)
    await Agent(store, log).finish()
    assert store.snapshot() == direct(log.records)


async def test_a_gap_at_the_end_of_the_log_is_skipped_later() -> None:
    """Otherwise the checkpoint would never reach the end, and an estimator would wait for it."""
    log = FakeLog(markers={0: 2})
    store = MemoryCountStore(SURVEY)
    agent = Agent(store, log)
    await agent.finish()
    assert store.positions() == {0: 42, 1: 40}
    assert await agent.counting.healthy()


async def test_a_revoked_partition_is_committed_and_forgotten() -> None:
    store = MemoryCountStore(SURVEY)
    agent = Agent(store)
    await agent.step()
    await agent.read(0, 10)
    late = agent.log.read(0, 10)
    await agent.counting.revoke([0])
    assert store.positions() == {0: 10}
    assert agent.log.group == {0: 10}
    assert late is not None
    await agent.counting.take(late)
    await agent.step()
    assert store.positions() == {0: 10}


async def test_closing_commits_the_remaining_changes() -> None:
    store = MemoryCountStore(SURVEY)
    agent = Agent(store)
    running = asyncio.create_task(agent.counting.run())
    await agent.until(lambda: agent.counting.ready)
    for partition in LOGS:
        await agent.read(partition)
    await agent.counting.close()
    await asyncio.wait_for(running, 1)
    assert store.snapshot() == direct(LOGS)


async def test_the_loop_commits_and_survives_failures() -> None:
    store = FakeStore(SURVEY)
    agent = Agent(store)
    store.fails = True
    running = asyncio.create_task(agent.counting.run())
    await asyncio.sleep(0.05)
    store.fails = False
    agent.counting.displace([])  # wakes it
    await agent.until(lambda: agent.counting.ready)
    for partition in LOGS:
        await agent.read(partition)
    await agent.until(lambda: store.positions() == {0: 40, 1: 40})
    await agent.counting.close()
    await asyncio.wait_for(running, 1)


async def test_a_stalled_partition_is_placed_again_then_given_up() -> None:
    agent = Agent(MemoryCountStore(SURVEY))
    await agent.step()
    before = dict(agent.log.placements)
    agent.now += 11
    assert await agent.counting.healthy()
    await agent.step()
    assert agent.log.placements[0][0] > before[0][0]
    for _ in range(5):
        agent.now += 11
        well = await agent.counting.healthy()
        await agent.step()
    assert not well


@pytest.mark.parametrize("cause", ["idle", "store", "broker"])
async def test_waiting_is_not_a_stall(cause: str) -> None:
    store = FakeStore(SURVEY)
    agent = Agent(store)
    await agent.finish() if cause == "idle" else await agent.step()
    store.fails, agent.log.fails = cause == "store", cause == "broker"
    await agent.read(0, 3)
    await agent.step()
    for _ in range(20):
        agent.now += 11
        assert await agent.counting.healthy()


async def test_a_hanging_consumer_is_a_stall_if_the_broker_answers() -> None:
    """Its requests fail as if the broker were unreachable. Only a second client shows the difference."""
    agent = Agent(MemoryCountStore(SURVEY))
    await agent.step()
    await agent.read(0, 3)
    agent.log.fails, agent.log.gone = True, False
    answers = []
    for _ in range(8):
        agent.now += 11
        answers.append(await agent.counting.healthy())
    assert answers[:4] == [True] * 4
    assert answers[-2:] == [False] * 2


async def test_a_hanging_consumer_without_partitions_is_a_stall() -> None:
    agent = Agent(MemoryCountStore(SURVEY))
    agent.counting.assign([])
    for fails in (False, True):
        agent.log.fails, agent.log.gone = fails, False
        for _ in range(8):
            agent.now += 11
            well = await agent.counting.healthy()
        assert well is not fails
    agent.log.gone = True
    assert await agent.counting.healthy()


@pytest.mark.parametrize("partitions", [[], [0, 1]])
async def test_a_shut_out_consumer_is_a_stall_if_the_broker_answers(partitions: list[int]) -> None:
    """For the first minute it is not a stall: it may rejoin."""
    agent = Agent(MemoryCountStore(SURVEY))
    await agent.finish()
    agent.counting.assign(partitions)
    await agent.step()
    for refused, gone, expected in [(True, True, True), (False, False, True), (True, False, False), (False, False, True)]:
        agent.log.reason, agent.log.gone = "no right" if refused else "", gone
        answers = []
        for _ in range(80):
            agent.now += 1
            answers.append(await agent.counting.healthy())
        assert answers[:45] == [True] * 45
        assert answers[-1] is expected


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
    """Its end may lie below, at or above the old offset. Closed steps stay; open steps count only the new log."""
    log, store = FakeLog(log_id="old"), MemoryCountStore(SURVEY)
    agent = Agent(store, log)
    await agent.step()
    for partition in LOGS:
        await agent.read(partition, 15)
    await agent.step()
    before = store.snapshot()
    assert {p: head.position for p, head in before.items()} == {0: (15, "old"), 1: (15, "old")}
    await agent.read(0, 5)  # read but not yet written when the topic is deleted
    new = remade(first_step=4, length=length, seed=length)
    log.log_id, log.records = "new", new
    if seen == "by its next agent":
        agent = Agent(store, log)
    if seen == "after some of it was read":
        await agent.read(0, 7)
    await agent.finish()
    for partition, old in before.items():
        closed = {key: table for key, table in old.panes.items() if key.step < first_open_step(SURVEY, old.newest_ms)}
        found = store.snapshot()[partition]
        assert found.panes == closed | tally(SURVEY, new[partition]).counts
        assert closed
        assert found.position == (length, "new")
        until = new[partition][0].appended_ms + 1 if length else NOW_MS
        assert found.missing == Missing(old.newest_ms, until, 0)
    assert await agent.counting.healthy()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("stored", [True, False])
async def test_vanished_partitions_lose_their_open_counts(known: bool, stored: bool) -> None:
    """A recreated topic with fewer partitions leaves some without an owner; perhaps only these were ever counted."""
    log, store = FakeLog(log_id="old"), MemoryCountStore(SURVEY)
    agent = Agent(store, log)
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
        agent = Agent(store, log)
        agent.counting.assign([0])
    for _ in range(4):
        await agent.step()
        await agent.read(0)
    found = store.snapshot()
    assert found[0].position == (5, "new")
    assert found[1].position == (0, "new")
    assert found[1].panes == {k: table for k, table in old.panes.items() if k.step < first_open_step(SURVEY, old.newest_ms)}
    assert found[1].panes != old.panes
    assert found[1].missing == Missing(old.newest_ms, NOW_MS, 0)
    assert await agent.counting.healthy()


async def test_counts_of_a_deleted_topic_never_replace_new_ones() -> None:
    """An agent was suspended meanwhile and holds the same offset that the new log has reached."""
    log, store = FakeLog(log_id="old"), MemoryCountStore(SURVEY)
    sleeper = Agent(store, log)
    await sleeper.step()
    await sleeper.read(0, 10)
    await sleeper.step()
    await sleeper.read(0, 10)
    new = FakeLog(log_id="new", records=remade(4, 20, 1))
    await Agent(store, new).finish()
    before = store.snapshot()[0]
    assert before.position == (20, "new")
    await sleeper.step()  # its broker does not know the new topic yet
    sleeper.log.log_id, sleeper.log.records = "new", new.records
    await sleeper.finish()
    assert store.snapshot()[0].panes == before.panes
    assert store.snapshot()[0].position == before.position


async def test_group_offsets_of_others_are_not_committed() -> None:
    """One of them would make the broker's client refuse the whole commit."""
    store = MemoryCountStore(SURVEY)
    agent = Agent(store)
    await agent.step()
    await agent.read(0, 10)
    await agent.read(1, 10)
    send = agent.log.send_dead_letters

    async def send_and_lose(letters: Sequence[DeadLetter]) -> None:
        await send(letters)
        agent.counting.assign([1])

    agent.log.send_dead_letters = send_and_lose  # type: ignore[method-assign]
    await agent.step()
    await agent.step()
    assert store.positions() == {0: 10, 1: 10}
    assert agent.log.group == {1: 10}


async def test_chunks_wait_while_the_store_refuses_writes() -> None:
    """It answers reads meanwhile, so a successful read does not prove its health."""
    store = FakeStore(SURVEY)
    agent = Agent(store)
    await agent.step()
    await agent.read(0, 5)
    store.refuses = True
    for _ in range(5):
        assert not await agent.step()
        assert not agent.counting.ready
        assert not await agent.read(0, 5)
        agent.now += 100
        assert await agent.counting.healthy()
    store.refuses = False
    assert await agent.step()
    await agent.step()
    assert agent.counting.ready
    await agent.finish()
    assert store.snapshot() == direct(LOGS)


@pytest.mark.parametrize("lost", [1, 2])
async def test_commits_lost_in_a_failover_are_counted_again(lost: int) -> None:
    store = MemoryCountStore(SURVEY)
    agent = Agent(store)
    await agent.step()
    earlier = []
    for _ in range(3):
        for partition in LOGS:
            await agent.read(partition, 6)
        await agent.step()
        earlier.append(store.snapshot())
    store._checkpoints = earlier[-1 - lost]
    await agent.read(0, 3)
    await agent.finish()
    assert store.snapshot() == direct(LOGS)


async def test_a_long_log_is_written_in_bounded_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log counted again has many open steps. At most the limit and one more step wait for the store."""
    rng, steps = np.random.default_rng(5), 40
    record = [Record(i, during(SURVEY, i // 3), sound(SURVEY, rng, i // 3, i % 3)) for i in range(3 * steps)]
    a_step = sum(table.counts.nbytes for table in tally(SURVEY, record[:3]).counts.values())
    monkeypatch.setattr("agents.back_pressure.MAX_UNWRITTEN_BYTES", 4 * a_step)
    store = MemoryCountStore(SURVEY)
    agent = Agent(store, FakeLog(records={0: record, 1: []}))
    await agent.step()
    chunk, largest, write = agent.log.read(0, 1000), 0, store.commit
    assert chunk is not None
    assert len(chunk.records) == 3 * steps

    def weigh(partition: int, expected: tuple[int, str] | None, change: Checkpoint) -> bool:
        nonlocal largest
        largest = max(largest, sum(table.counts.nbytes for table in change.panes.values()))
        return write(partition, expected, change)

    store.commit = weigh  # type: ignore[method-assign]
    running = asyncio.create_task(agent.counting.run())
    await asyncio.wait_for(agent.counting.take(chunk), 5)
    await agent.counting.close()
    await running
    assert store.snapshot()[0].panes == tally(SURVEY, record).counts
    assert 4 * a_step < largest <= 5 * a_step
