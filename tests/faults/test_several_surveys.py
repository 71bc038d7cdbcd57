"""Random lists of faults on agents that count several surveys: every survey's counts must equal the tally of its own log.

The agents run the real `Dispatcher` and `Counting` on virtual time. `test_lists` runs more kinds of faults on one survey.
"""

import asyncio
import random
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import pytest
from aiokafka.structs import TopicPartition

from ldpstream.agents import tally
from ldpstream.agents.counting import Counting
from ldpstream.agents.dispatcher import Dispatcher
from ldpstream.agents.log import Chunk
from ldpstream.engines import PaneKey
from ldpstream.mechanisms import CountTable
from ldpstream.surveys import Survey
from tests.agents.samples import make_log, make_survey

from .stepped import FaultyStore, SteppedTopic
from .virtual import VirtualLoop

SURVEYS = [make_survey(name) for name in ("red", "green", "blue")]
TOPICS = [survey.reports_topic for survey in SURVEYS]
PARTITIONS = [TopicPartition(topic, number) for topic in TOPICS for number in range(2)]
RECORDS = {
    topic: {p: make_log(survey, np.random.default_rng(10 * i + p), length=60, steps=6) for p in range(2)}
    for i, (topic, survey) in enumerate(zip(TOPICS, SURVEYS, strict=True))
}
N_OPERATIONS, N_LISTS = 60, 12
SETTLED_S = 300.0


class Violation(AssertionError):
    """A survey's counts are not exact."""


class Agent:
    """A process that counts all surveys."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.logs = {topic: SteppedTopic(records=RECORDS[topic]) for topic in TOPICS}
        self.dispatcher = world.kind(self._make, lambda *_: None, self._failed)
        self.last: tuple[str, Chunk] | None = None
        self.assigned: list[TopicPartition] = []

    def _make(self, survey: Survey) -> Counting:
        loop, log = asyncio.get_running_loop(), self.logs[survey.reports_topic]
        return Counting(survey, self.world.stores[survey.reports_topic], log, 0.5, clock=loop.time)

    async def _failed(self, survey: Survey, error: Exception) -> None:
        self.world.errors.append(error)

    def follow(self, wanted: Iterable[Survey]) -> None:
        for survey in wanted:
            if survey.reports_topic not in self.dispatcher.topics:
                self.dispatcher.add(survey, self.assigned)

    def own(self, partitions: list[TopicPartition]) -> None:
        self.assigned = partitions
        for log in self.logs.values():
            log.placements.clear()
        self.dispatcher.assign(partitions)

    def read(self, where: TopicPartition, length: int, lose: bool = False) -> None:
        if where not in self.assigned:
            return
        chunk = self.logs[where.topic].read(where.partition, length)
        if chunk is not None and not lose:
            self.last = where.topic, chunk
            self.dispatcher.take(where.topic, chunk)

    def kill(self) -> None:
        for one in self.dispatcher._by_topic.values():
            one.end()


class World:
    """Runs a random list of operations on two agents.

    Args:
        seed: determines the list.
        kind: the class under test.
    """

    def __init__(self, seed: int, kind: type[Dispatcher] = Dispatcher) -> None:
        self.random, self.kind = random.Random(seed), kind
        self.stores = {survey.reports_topic: FaultyStore(survey) for survey in SURVEYS}
        self.errors: list[Exception] = []
        self.wanted = list(SURVEYS)

    def run(self) -> None:
        loop = VirtualLoop()
        loop.thread = partial(self._thread, loop)
        try:
            loop.run_until_complete(self._run())
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()

    def _thread(self, loop: VirtualLoop, future: "asyncio.Future[Any]", func: Any) -> None:
        def finish() -> None:
            if not future.done():
                try:
                    future.set_result(func())
                except Exception as error:
                    future.set_exception(error)

        loop.call_later(self.random.choice((0.0, 0.01, 1.0)), finish)

    async def _run(self) -> None:
        self.agents = [Agent(self), Agent(self)]
        for agent in self.agents:
            agent.follow(self.wanted)
        await self._rebalance()
        for _ in range(N_OPERATIONS):
            await self._operate()
            await asyncio.sleep(self.random.choice((0.0, 0.1, 1.0)))
        await self._settle()
        self._check()

    async def _operate(self) -> None:
        chance, where = self.random.random(), self.random.choice(PARTITIONS)
        agent, store = self.random.choice(self.agents), self.stores[where.topic]
        survey = SURVEYS[TOPICS.index(where.topic)]
        if chance < 0.5:
            agent.read(where, self.random.choice((1, 5, 20)))
        elif chance < 0.6:
            agent.read(where, 5, lose=True)
        elif chance < 0.7 and agent.last is not None:
            agent.dispatcher.take(*agent.last)
        elif chance < 0.78:
            await self._rebalance()
        elif chance < 0.84:
            agent.kill()
            self.agents[self.agents.index(agent)] = new = Agent(self)
            new.follow(self.wanted)
            await self._rebalance()
        elif chance < 0.9:
            store.fails = not store.fails
        elif survey in self.wanted:
            self.wanted.remove(survey)
            for each in self.agents:
                await each.dispatcher.remove(survey)
        else:
            self.wanted.append(survey)
            for each in self.agents:
                each.follow(self.wanted)

    async def _rebalance(self) -> None:
        for agent in self.agents:
            await agent.dispatcher.revoke(agent.assigned)
        self.random.shuffle(self.agents)
        for i, agent in enumerate(self.agents):
            agent.own(PARTITIONS[i :: len(self.agents)])

    async def _settle(self) -> None:
        """Ends all faults and waits until all records of all surveys are counted."""
        for store in self.stores.values():
            store.fails = False
        self.wanted = list(SURVEYS)
        for agent in self.agents:
            agent.follow(self.wanted)
        deadline = asyncio.get_running_loop().time() + SETTLED_S
        ends = {topic: {p: log[-1].offset + 1 for p, log in records.items()} for topic, records in RECORDS.items()}
        while any(self.stores[topic].positions() != ends[topic] for topic in TOPICS):
            if self.errors or asyncio.get_running_loop().time() > deadline:
                raise Violation(f"stuck: {[self.stores[topic].positions() for topic in TOPICS]} {self.errors}")
            for agent in self.agents:
                for where in agent.assigned:
                    agent.read(where, 20)
            await asyncio.sleep(0.5)

    def _check(self) -> None:
        for survey in SURVEYS:
            topic, store = survey.reports_topic, self.stores[survey.reports_topic]
            added = [tally(survey, log) for log in RECORDS[topic].values()]
            counts: dict[PaneKey, CountTable] = {}
            reasons = [reason for part in added for _, reason in part.rejected]
            for part in added:
                for key, table in part.counts.items():
                    counts[key] = counts[key] + table if key in counts else table
            if store.tables(range(1000)) != counts or store.rejected() != {r: reasons.count(r) for r in set(reasons)}:
                raise Violation(f"survey {survey.name}: the counts are not those of its log")


class MixesChunks(Dispatcher):
    """Counts a chunk for the next survey."""

    def take(self, topic: str, chunk: Chunk) -> None:
        super().take(TOPICS[(TOPICS.index(topic) + 1) % len(TOPICS)], chunk)


class GivesEveryPartitionToAll(Dispatcher):
    """Ignores the topic of an assigned partition and of a chunk."""

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        numbers = {partition.partition for partition in partitions}
        super().assign([TopicPartition(topic, number) for topic in TOPICS for number in numbers])

    def take(self, topic: str, chunk: Chunk) -> None:
        for each in TOPICS:
            super().take(each, chunk)


@pytest.mark.parametrize("seed", range(N_LISTS))
def test_every_survey_is_counted_exactly(seed: int) -> None:
    World(seed).run()


@pytest.mark.parametrize("mutant", [MixesChunks, GivesEveryPartitionToAll])
def test_the_lists_find_mixed_ledgers(mutant: type[Dispatcher]) -> None:
    with pytest.raises(Violation):
        for seed in range(N_LISTS):
            World(seed, mutant).run()
