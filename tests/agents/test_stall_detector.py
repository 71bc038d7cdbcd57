"""Tests that the stall detector reports each kind of stall, and does not report waiting as a stall."""

import pytest

from tests.faults.memory_store import MemoryCountStore
from tests.faults.stepped import SURVEY, FaultyStore, SteppedAgent, started


async def test_a_stalled_partition_gets_a_seek_then_is_unhealthy() -> None:
    agent, _ = await started()
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
    store = FaultyStore(SURVEY)
    agent = SteppedAgent(store)
    await agent.finish() if cause == "idle" else await agent.step()
    store.fails, agent.log.fails = cause == "store", cause == "broker"
    await agent.read(0, 3)
    await agent.step()
    for _ in range(20):
        agent.now += 11
        assert await agent.counting.healthy()


async def test_a_hanging_consumer_is_a_stall_if_the_broker_answers() -> None:
    """The consumer's requests fail as if the broker were unreachable. Only a second client shows the difference."""
    agent, _ = await started()
    await agent.read(0, 3)
    agent.log.fails, agent.log.gone = True, False
    answers = []
    for _ in range(8):
        agent.now += 11
        answers.append(await agent.counting.healthy())
    assert answers[:4] == [True] * 4
    assert answers[-2:] == [False] * 2


async def test_a_hanging_consumer_without_partitions_is_a_stall() -> None:
    agent = SteppedAgent(MemoryCountStore(SURVEY))
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
    """In the first minute the consumer is not stalled, because it may rejoin."""
    agent = SteppedAgent(MemoryCountStore(SURVEY))
    await agent.finish()
    agent.counting.assign(partitions)
    await agent.step()
    for refused, gone, expected in [(True, True, True), (False, False, True), (True, False, False), (False, False, True)]:
        agent.log.reason, agent.log.gone = "no right" if refused else "", gone
        agent.log.fails = refused and gone
        answers = []
        for _ in range(80):
            agent.now += 1
            answers.append(await agent.counting.healthy())
        assert answers[:45] == [True] * 45
        assert answers[-1] is expected
