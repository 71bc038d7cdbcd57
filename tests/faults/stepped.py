"""An agent that a test drives step by step, for faults in a fixed order. The agent has a log, a store and a `Counting`.

For random faults, the modules `agent` and `world` run the same `Counting` with its own loops.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ldpstream.agents import Record, tally
from ldpstream.agents.counting import Counting
from ldpstream.agents.log import Chunk, Found
from ldpstream.engines import Checkpoint, StoreUnavailable
from ldpstream.runtime.errors import LogUnavailable
from ldpstream.surveys import REASONS
from tests.agents.samples import make_log, make_survey

from .memory_store import MemoryCountStore

SURVEY = make_survey()
LOGS = {p: make_log(SURVEY, np.random.default_rng(100 + p), length=40, steps=6) for p in range(2)}


@dataclass
class SteppedTopic:
    """A log of two partitions with one reader. As with Faust, a chunk that is read but not delivered is lost."""

    records: dict[int, list[Record]] = field(default_factory=lambda: {p: list(log) for p, log in LOGS.items()})
    begins: dict[int, int] = field(default_factory=lambda: dict.fromkeys(LOGS, 0))
    group: dict[int, int] = field(default_factory=dict)
    # for each partition: the number of offsets without a record at the log's end
    markers: dict[int, int] = field(default_factory=dict)
    log_id: str = ""
    fails: bool = False
    reason: str = ""  # reason why the log's reader is shut out of the group
    gone: bool = True  # True: requests that fail, fail for every client
    # for each partition: the number of the seek, the position, the number of chunks read
    placements: dict[int, list[int]] = field(default_factory=dict)
    number: int = 0

    async def described(self) -> tuple[str, Collection[int]]:
        self.check(consumer=False)
        return self.log_id, set(self.records)

    def shut_out(self) -> str:
        return self.reason

    async def bounds(self, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        self.check()
        return {partition: (self.begins[partition], self.end(partition)) for partition in partitions}

    async def later(self, times_ms: Mapping[int, int]) -> dict[int, Found | None]:
        self.check(consumer=False)
        return {
            p: next((Found(r.offset, r.appended_ms) for r in self.records[p] if r.appended_ms >= time_ms), None)
            for p, time_ms in times_ms.items()
        }

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

    def check(self, consumer: bool = True) -> None:
        if self.fails and (consumer or self.gone):
            raise LogUnavailable("gone")

    def end(self, partition: int) -> int:
        last = self.records[partition][-1].offset + 1 if self.records[partition] else self.begins[partition]
        return last + self.markers.get(partition, 0)

    def read(self, partition: int, length: int) -> Chunk | None:
        """Returns the next chunk, of at most `length` records.

        Returns None before the first seek, and if no records are left.
        """
        if partition not in self.placements:
            return None
        number, position, chunks = self.placements[partition]
        found = [record for record in self.records[partition] if record.offset >= position][:length]
        if not found:
            self.placements[partition] = [number, self.end(partition), chunks]
            return None
        self.placements[partition] = [number, found[-1].offset + 1, chunks + 1]
        return Chunk(partition, number, chunks, found)


class FaultyStore(MemoryCountStore):
    """A store that can be unreachable, refuse writes or lose its answers."""

    fails = False
    refuses = False  # refuses writes, like a Redis with a full disk or full memory
    loses_answers = False

    def load(self, partition: int) -> Checkpoint | None:
        self.check()
        return super().load(partition)

    def positions(self) -> dict[int, int]:
        self.check()
        return super().positions()

    def commit(self, partition: int, expected: tuple[int, str] | None, change: Checkpoint) -> bool:
        self.check_writes()
        written = super().commit(partition, expected, change)
        if self.loses_answers:
            raise StoreUnavailable("timed out")
        return written

    def check_writes(self) -> None:
        self.check()
        if self.refuses:
            raise StoreUnavailable("OOM command not allowed when used memory > 'maxmemory'")

    def check(self) -> None:
        if self.fails:
            raise StoreUnavailable("gone")


class SteppedAgent:
    """A `Counting` with its own reader of the log; tests drive it step by step."""

    def __init__(self, store: MemoryCountStore, log: SteppedTopic | None = None, commit_interval_s: float = 0.01) -> None:
        self.now = 0.0
        self.log = log or SteppedTopic()
        self.counting = Counting(SURVEY, store, self.log, commit_interval_s, clock=lambda: self.now)
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
            return False  # `Counting` accepts no chunks: this chunk is lost, as in a rebalance
        return True

    async def until(self, reached: Callable[[], bool]) -> None:
        """Lets the agent's own loop run until `reached` returns true."""
        for _ in range(1000):
            if reached():
                return
            await asyncio.sleep(0.005)
        raise AssertionError("not reached")

    async def finish(self) -> None:
        """Runs steps, reads and stall checks until all records are counted."""
        for _ in range(20):
            await self.step()
            for partition in LOGS:
                while await self.read(partition, 7):
                    pass
            self.now += 11
            await self.counting.healthy()


async def started() -> tuple[SteppedAgent, FaultyStore]:
    """Returns an agent that is ready to count, and its empty store."""
    store = FaultyStore(SURVEY)
    agent = SteppedAgent(store)
    await agent.step()
    return agent, store


def direct(records: dict[int, list[Record]]) -> dict[int, Checkpoint]:
    """Counts the records without an agent."""
    whole = {}
    for partition, log in records.items():
        added = tally(SURVEY, log)
        reasons = [reason for _, reason in added.rejected]
        totals = {reason: reasons.count(reason) for reason in REASONS if reason in reasons}
        newest = max((record.appended_ms for record in log), default=0)
        whole[partition] = Checkpoint(log[-1].offset + 1, newest, added.counts, totals)
    return whole
