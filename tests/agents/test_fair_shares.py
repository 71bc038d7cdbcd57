"""Fair shares of the surveys: which partitions a read takes chunks from, and how the surveys' chunks are counted in turn."""

import asyncio
from typing import Any

import pytest
from aiokafka.structs import TopicPartition

from ldpstream.agents.consumer import chunks
from ldpstream.agents.consumer.chunks import ChunkConsumer, ChunkThread, _Placement
from ldpstream.agents.dispatcher import Dispatcher
from ldpstream.agents.log import Chunk
from ldpstream.surveys import Survey

from .samples import make_survey

TOPICS = [f"ldpstream.{name}.reports" for name in "abcdefghijklmnopqrst"]


def at(topic: int, partition: int = 0) -> TopicPartition:
    return TopicPartition(TOPICS[topic], partition)


def reader(*partitions: TopicPartition) -> Any:
    """Makes a thread whose partitions all have records."""
    thread: Any = ChunkThread.__new__(ChunkThread)
    consumer = ChunkConsumer.__new__(ChunkConsumer)
    consumer.placements = {where: _Placement(number) for number, where in enumerate(partitions)}
    thread.consumer = consumer
    return thread


def turn(thread: Any) -> list[TopicPartition]:
    """The partitions of the next read. The read takes one chunk of each."""
    placements = thread.consumer.placements
    taken: list[TopicPartition] = thread._turn(set(placements), list(placements))
    for where in taken:
        placements[where].chunks += 1
    return taken


def finish(thread: Any, where: TopicPartition, placement: int) -> None:
    sequence = thread.consumer.placements[where].done
    thread.consumer.done(where.topic, Chunk(where.partition, placement, sequence, []))


def test_a_survey_whose_chunks_wait_is_not_read_beyond_its_share() -> None:
    flood = [at(0, partition) for partition in range(4)]
    thread = reader(*flood, at(1))
    for _ in range(100):
        taken = turn(thread)
        if at(1) in taken:
            finish(thread, at(1), 4)
    waiting = {where: p.chunks - p.done for where, p in thread.consumer.placements.items()}
    assert sum(waiting[where] for where in flood) == chunks.SURVEY_CHUNKS
    assert thread.consumer.placements[at(1)].chunks == 100


def test_partitions_take_turns() -> None:
    thread = reader(*(at(topic) for topic in range(20)))
    reads = []
    for _ in range(10):
        reads.append(turn(thread))
        for where in reads[-1]:
            finish(thread, where, thread.consumer.placements[where].number)
    assert {len(read) for read in reads} == {chunks.TURN_PARTITIONS}
    shares = [sum(read.count(at(topic)) for read in reads) for topic in range(20)]
    assert set(shares) == {4}


def test_a_chunk_of_a_former_placement_is_not_done_in_the_present_one() -> None:
    thread = reader(at(0))
    turn(thread)
    finish(thread, at(0), placement=7)
    assert thread.consumer.placements[at(0)].done == 0
    finish(thread, at(0), placement=0)
    assert thread.consumer.placements[at(0)].done == 1


class FakeCounting:
    """A counting that notes its chunks, and waits while it is blocked."""

    def __init__(self, name: str, order: list[str]) -> None:
        self.name, self.order, self.open = name, order, asyncio.Event()
        self.open.set()
        self.well, self.unready, self.store_refusal = True, None, None
        self.hangs = False

    def assign(self, partitions: set[int]) -> None:
        self.assigned = partitions

    async def take(self, chunk: Chunk) -> None:
        await self.open.wait()
        if chunk.sequence == 99:
            raise RuntimeError("poison")
        self.order.append(self.name)

    async def revoke(self, partitions: set[int]) -> None:
        await self.open.wait()
        self.assigned -= partitions

    async def healthy(self) -> bool:
        if self.hangs:
            await asyncio.Event().wait()
        return self.well

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        self.order.append(f"{self.name} closed")


class Rig:
    def __init__(self) -> None:
        self.order, self.failures = list[str](), list[str]()
        self.fakes: dict[str, FakeCounting] = {}
        self.surveys = {name: make_survey(name) for name in "ab"}
        self.dispatcher = Dispatcher(self._make, lambda *_: None, self._failed)
        assigned = [TopicPartition(survey.reports_topic, p) for survey in self.surveys.values() for p in (0, 1)]
        for survey in self.surveys.values():
            self.dispatcher.add(survey, assigned)

    def _make(self, survey: Survey) -> Any:
        return self.fakes.setdefault(survey.name, FakeCounting(survey.name, self.order))

    async def _failed(self, survey: Survey, error: Exception) -> None:
        self.failures.append(f"{survey.name}: {error}")
        await self.dispatcher.remove(survey)

    def take(self, name: str, sequence: int = 0) -> None:
        self.dispatcher.take(self.surveys[name].reports_topic, Chunk(0, 1, sequence, []))


async def settle() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


async def test_surveys_are_counted_in_turn() -> None:
    rig = Rig()
    for name in "aaaaabbb":
        rig.take(name)
    await settle()
    assert "".join(rig.order[:6]) == "ababab"
    assert sorted(rig.order) == sorted("aaaaabbb")


async def test_a_survey_that_cannot_go_on_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ldpstream.agents.dispatcher.CLOSE_S", 0.01)
    rig = Rig()
    rig.fakes["a"].open.clear()
    rig.take("a")
    for _ in range(20):
        rig.take("b")
    await settle()
    assert rig.order == ["b"] * 20
    await rig.dispatcher.revoke([TopicPartition(survey.reports_topic, 0) for survey in rig.surveys.values()])
    assert rig.fakes["b"].assigned == {1}


async def test_an_error_of_one_survey_ends_only_this_survey() -> None:
    rig = Rig()
    rig.take("a", sequence=99)
    rig.take("b")
    await settle()
    assert rig.failures == ["a: poison"]
    assert rig.dispatcher.topics == {rig.surveys["b"].reports_topic}
    rig.take("a")
    rig.take("b")
    await settle()
    assert sorted(rig.order) == ["a closed", "b", "b"]
    rig.dispatcher.add(rig.surveys["a"], [])
    assert rig.dispatcher.n_partitions == 2


async def alive_after(rig: Rig, sick: str, moving: str = "", hangs: bool = False) -> bool:
    """True if the process counts as alive.

    Args:
        rig: the surveys.
        sick: names of the stalled surveys.
        moving: names of the surveys that have just got a chunk.
        hangs: True if no health check ends.
    """
    alive = list[None]()
    for name in moving:
        rig.take(name)
    for name in sick:
        rig.fakes[name].well = False
    for fake in rig.fakes.values() if hangs else ():
        fake.hangs = True
    watching = asyncio.create_task(rig.dispatcher.watch(lambda: alive.append(None)))
    await settle()
    before = len(alive)
    await settle()
    watching.cancel()
    return len(alive) > before


@pytest.mark.parametrize(
    ("sick", "moving", "hangs", "alive"),
    [
        ("", "", False, True),
        ("a", "b", False, True),
        ("a", "", False, False),  # no chunk of b arrived, so nothing shows that the consumer works
        ("a", "a", False, False),
        ("ab", "ab", False, False),
        ("", "ab", True, False),
    ],
)
async def test_the_process_is_alive_unless_a_restart_is_the_remedy(
    sick: str, moving: str, hangs: bool, alive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ldpstream.agents.dispatcher.HEALTH_S", 0.0)
    assert await alive_after(Rig(), sick, moving, hangs) == alive
