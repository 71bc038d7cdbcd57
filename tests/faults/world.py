"""The simulated world of a run, on virtual time: a log, a Redis, a group of agents, and estimators.

Each agent runs the real `Counting`, each estimator the real `Schedule`. Any request can fail, be slow, get its answer after the
timeout, or take effect without an answer. `invariant` lists the properties that must hold under all these faults.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

from . import operations as op
from .agent import Agent
from .code import MARGIN_MS, Code
from .estimator import Estimator
from .invariant import Invariant, Violation, publish_counts
from .memory_log import PARTITIONS, SURVEY, MemoryLog
from .memory_redis import MemoryRedis
from .memory_topic import MemoryTopic
from .virtual import VirtualLoop

MAX_AGENTS = 3
SESSION_S = 6.0  # session timeout, after which the group notices that an agent has died
REVOKED_S = 15.0  # the group's timeout for agents to give up their partitions in a rebalance
STALLED_S = 120.0  # timeout of an agent's watchdog
SETTLED_S = 500.0
ESTIMATORS = 2


class World:
    """Runs one list of operations; see the module docstring.

    Args:
        seed: determines everything that a list does not fix: delays, lengths of chunks, order of agents.
        code: the code under test.
    """

    def __init__(self, seed: int, code: Code) -> None:
        self.random, self.code, self.loop = random.Random(seed), code, VirtualLoop()
        self.log = MemoryLog(self.loop, self.random)
        self.redis = MemoryRedis(code.store(SURVEY), self.loop, self.random)
        self.done = self.redis.done
        self.topic = MemoryTopic(self.log.now_ms)
        self._invariant = Invariant(self.log, self.redis, self.topic)
        self._errors: list[BaseException] = []
        self._agents: list[Agent] = []
        self._turn = 0
        self.regroup = asyncio.Event()
        self.log.moved = self._wake_readers
        self.loop.thread = self.redis.thread
        fold = self.redis.traced(code.fold, lambda: self.log.now_ms() - self.log.agents_behind_ms)
        code.counting.PartitionFold = fold
        publish_counts(code.schedule)
        self._estimators = [Estimator(self) for _ in range(ESTIMATORS)]

    def run(self, operations: Sequence[op.Operation]) -> Counter[str]:
        """Runs the list, ends all faults, checks the invariant, and returns the number of events by kind.

        Raises:
            Violation: if the invariant does not hold.
        """
        try:
            self.loop.run_until_complete(self._run(operations))
        finally:
            for estimator in self._estimators:
                estimator.kill()
            leftover = asyncio.all_tasks(self.loop)
            for task in leftover:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*leftover, return_exceptions=True))
            self.loop.close()
        return self.done

    def fail(self, error: BaseException) -> None:
        """Stores an error of a task or thread that cannot raise the error itself; `run` raises the error later."""
        self._errors.append(error)

    def _raise(self) -> None:
        for error in self._errors:
            raise error if isinstance(error, Violation) else Violation(f"an agent ended: {error!r}") from error

    async def _run(self, operations: Sequence[op.Operation]) -> None:
        coordinator = asyncio.create_task(self._coordinate())
        self._add()
        for operation in operations:
            self.done[type(operation).__name__] += 1
            await self._do(operation)
            self._raise()
        await self._settle()
        await self._finish()
        coordinator.cancel()

    async def _settle(self) -> None:
        """Ends all faults and waits until all records are counted."""
        self.redis.heal()
        self.log.estimators_ahead_ms = 0
        self.log.away_until = -1.0
        self.log.errors.clear()
        if any(agent.zombie for agent in self._living):
            self.regroup.set()
        for agent in self._living:
            agent.zombie = False
        self._wake_readers()
        deadline = self.loop.time() + SETTLED_S
        while not self._settled():
            if self.loop.time() > deadline:
                ends = [len(log) for log in self.log.records]
                raise Violation(f"stuck: stored {self.redis.store.positions()}, logged {ends}")
            for agent in self._living:
                if self.loop.time() - agent.well_s > STALLED_S:
                    self.done["ended by the watchdog"] += 1
                    self._kill(agent)
            if not self._living:
                self._add()
            await asyncio.sleep(0.5)
            self._raise()

    def _settled(self) -> bool:
        positions = self.redis.store.positions()
        at_end = all(positions.get(partition, 0) == len(log) for partition, log in enumerate(self.log.records))
        at_end &= all(head.log_id == self.log.log_id() for head in self.redis.store.heads().values())
        return at_end and bool(self._living) and all(agent.counting.unready is None for agent in self._living)

    async def _finish(self) -> None:
        """Closes every step, runs the estimators and checks the end."""
        last = max((key.step for key in self._invariant.acknowledged().panes), default=0)
        self.log.ahead_ms += max(0, SURVEY.closes_ms(last + 1) + MARGIN_MS + 1000 - self.log.now_ms())
        for turn in range(8 * len(self._estimators)):  # hanging estimators resume first
            self._estimate(op.Estimate(turn))
            await asyncio.sleep(5)  # the agents count the markers
            await self._settle()
            progress = self.redis.progress()
            if turn >= 4 * len(self._estimators) and not (progress and progress.incomplete):
                break
        self._invariant.check_end(last)

    # ---- operations

    async def _do(self, what: op.Operation) -> None:
        match what:
            case op.Wait(seconds):
                await asyncio.sleep(seconds)
            case op.Estimate():
                self._estimate(what)
            case op.KillEstimator(estimator):
                self._kill_estimator(estimator)
            case op.AddAgent():
                if len(self._living) < MAX_AGENTS:
                    self._add()
            case op.Rebalance(turn):
                self._turn = turn
                for agent in self._living:
                    agent.zombie = False
                self.regroup.set()
            case _:
                self._do_to_log(what)
                self._do_to_redis(what)
                self._do_to_agent(what)

    def _do_to_log(self, what: op.Operation) -> None:
        log = self.log
        match what:
            case op.AdvanceClock(seconds):
                log.ahead_ms += int(seconds * 1000)
            case op.BrokerClock(behind_ms):
                log.behind_ms = behind_ms
            case op.Produce(partition, n, seed):
                log.produce(partition, n, seed)
            case op.PoisonRecords(partition, reason):
                log.poison(partition, reason)
            case op.Duplicate(partition, n, back):
                log.repeat(partition, n, back)
            case op.Marker(partition):
                log.append(partition, b"")
            case op.Expire(partition, n, blind):
                partition %= PARTITIONS
                log.expire(partition, n, None if blind else self.redis.store.positions().get(partition, 0))
            case op.Remove(partition, n, back):
                log.remove(partition % PARTITIONS, n, back)
            case op.LoseEnd(partition, n, more, seed):
                self._lose_end(partition % PARTITIONS, n, more, seed)
            case op.MakeAnew():
                heads = self.redis.store.heads()
                if not self.redis.lost and all(p in heads for p, records in enumerate(log.records) if records):
                    log.make_anew()
                    self.redis.keeps_all = True
            case op.AgentClock(behind_ms):
                log.agents_behind_ms = behind_ms
            case op.EstimatorClock(ahead_ms):
                log.estimators_ahead_ms = ahead_ms
            case op.BrokerAway(seconds):
                log.go_away(seconds)
            case op.RestartBroker():
                log.go_away(3.0)
                self.loop.call_later(3.0, self.regroup.set)
            case op.LogErrors(question, n, after):
                log.errors[question] = (n, after)

    def _lose_end(self, partition: int, n: int, more: int, seed: int) -> None:
        """Loses the end of the log from a counted record on. Nobody can notice the loss of records that nobody has counted."""
        head = self.redis.store.heads().get(partition)
        counted = head.next_offset if head is not None and head.log_id == self.log.log_id() else 0
        kept = min(len(self.log.records[partition]) - n, counted - 1)
        if not self.redis.lost and kept >= self.log.begins[partition]:
            self.log.lose_end(partition, kept)
            self.redis.keeps_all = True
            self.log.produce(partition, more, seed)

    def _do_to_redis(self, what: op.Operation) -> None:
        redis = self.redis
        if redis.keeps_all and isinstance(what, op.FlushRedis | op.RestartRedis | op.LoseShard):
            return  # if both the log and Redis lose data, nobody can notice the loss
        match what:
            case op.PauseRedis(seconds):
                redis.paused_until = max(redis.paused_until, self.loop.time() + seconds)
            case op.SlowRedis(seconds):
                redis.slow_s = seconds
            case op.RedisErrors(n, after):
                redis.errors, redis.errors_after = n, after
            case op.RefuseWrites(seconds):
                redis.refusing_until = self.loop.time() + seconds
            case op.FlushRedis():
                redis.flush()
            case op.RestartRedis(lost):
                redis.lose_writes(lost)
            case op.LoseShard(shard, lost):
                redis.lose_shard(shard, lost)

    def _do_to_agent(self, what: op.Operation) -> None:
        number = getattr(what, "agent", None)
        if number is None or not self._living:
            return
        agent = self._living[number % len(self._living)]
        match what:
            case op.KillAgent():
                self._kill(agent)
            case op.StopAgent():
                agent.stop()
            case op.ZombieOwner():
                agent.zombie = True
                self.regroup.set()
            case op.StallConsumer():
                agent.stalled = True
            case op.Redeliver(_, back, relabel):
                agent.redeliver(back, relabel)
            case op.LoseDelivery(_, which):
                agent.lose(which)
            case op.Reorder(_, turn):
                agent.reorder(turn)
            case op.DelayDelivery(_, seconds):
                agent.delayed_until = self.loop.time() + seconds

    # ---- the group

    @property
    def _living(self) -> list[Agent]:
        return [agent for agent in self._agents if agent.alive]

    def _add(self) -> None:
        self._agents.append(Agent(self))
        self.regroup.set()

    def _kill(self, agent: Agent) -> None:
        agent.kill()
        self.loop.call_later(SESSION_S, self.regroup.set)

    def _wake_readers(self) -> None:
        for agent in self._living:
            agent.readable.set()

    async def _coordinate(self) -> None:
        while True:
            await self.regroup.wait()
            self.regroup.clear()
            await self._rebalance()

    async def _rebalance(self) -> None:
        """Revokes all partitions of all members, as Faust does. Then each member gets a share of the partitions."""
        self.done["rebalances"] += 1
        members = [agent for agent in self._living if not agent.zombie and not agent.leaving]
        self.random.shuffle(members)
        giving_up = {agent: agent.spawn(agent.counting.revoke(list(range(PARTITIONS)))) for agent in members}
        if giving_up:
            await asyncio.wait(giving_up.values(), timeout=REVOKED_S)
        for task in giving_up.values():
            if not task.done():  # the agent rejoins when it has finished
                task.add_done_callback(lambda _: self.regroup.set())
        ready = [a for a, task in giving_up.items() if task.done() and a.alive and not a.leaving and not a.zombie]
        for i, agent in enumerate(ready):
            agent.assigned([p for p in range(PARTITIONS) if (p + self._turn) % len(ready) == i])

    # ---- the estimator

    def _estimate(self, how: op.Estimate) -> None:
        if self.loop.time() < self.redis.paused_until:
            return
        before = len(self.topic.records)
        estimator = self._estimators[how.estimator % len(self._estimators)]
        self.done["estimators that hung and went on"] += estimator.hung
        estimator.run(how)
        self._invariant.check_counts()
        self._invariant.check_told(before)

    def _kill_estimator(self, number: int) -> None:
        number %= len(self._estimators)
        self._estimators[number].kill()
        self._estimators[number] = Estimator(self)
