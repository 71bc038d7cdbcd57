"""Many partitions and agents on the model, while records arrive; `invariant` is checked between the phases and at the end.

python -m tests.faults.scale [--partitions P] [--agents A] [--seed SEED]

Agents start one by one, are killed, are stopped as in a rollout, and lose Redis and the brokers for some seconds. Each agent
runs the real `Counting`. The command prints for each phase the rebalances, the commits, and the time until all records were
counted. The times are virtual: they follow from the model's delays, up to 50 ms for Redis and up to 120 ms for Kafka.
"""

import argparse
import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from . import operations as op
from .code import MARGIN_MS, Code
from .invariant import Violation
from .memory_log import SURVEY
from .world import SESSION_S, World

TURNS = 40  # most turns of the estimators at the end
PER_SECOND = 0.1  # share of the partitions that get records in a second


class Phase(op.Operation):
    """Ends a phase: waits until all records are counted."""

    name: str


@dataclass(frozen=True)
class Seen:
    """The length and the events of a phase.

    Attributes:
        name: what happened in it.
        settling_s: virtual seconds from its last operation until all records were counted.
        rebalances, commits: their numbers in the phase.
    """

    name: str
    settling_s: float
    rebalances: int
    commits: int


class Scale(World):
    """A run with many partitions and agents.

    Attributes:
        seen: the length and the events of each phase.
    """

    def __init__(self, seed: int, code: Code, partitions: int, agents: int) -> None:
        super().__init__(seed, code, partitions, 2 * agents)
        self.seen: list[Seen] = []
        self._before = dict(self.done)

    async def _do(self, what: op.Operation) -> None:
        if not isinstance(what, Phase):
            await super()._do(what)
            return
        began = self.loop.time()
        await self._settle()
        self._invariant.check_counts()
        rebalances, commits = (self.done[kind] - self._before.get(kind, 0) for kind in ("rebalances", "commits"))
        self.seen.append(Seen(what.name, self.loop.time() - began, rebalances, commits))
        self._before = dict(self.done)

    async def _finish(self) -> None:
        """Closes every step, and checks that all steps with records are published complete, and no step falsely.

        Later steps close while agents count the markers of so many partitions, so the last of them may still be incomplete.
        """
        last = max(key.step for key in self._invariant.acknowledged().panes)
        self.log.ahead_ms += max(0, SURVEY.closes_ms(last + 1) + MARGIN_MS + 1000 - self.log.now_ms())
        for turn in range(TURNS):
            self._estimate(op.Estimate(turn))
            await asyncio.sleep(5)
            await self._settle()
            progress = self.redis.progress()
            if progress is not None and progress.next_step > last and not any(step <= last for step in progress.incomplete):
                break
        else:
            raise Violation(f"not published in the end: {progress} of {last}")
        self._invariant.check_told(0)
        self.done["steps published complete"] = last + 1
        self.done["reports counted"] = sum(n for n, _ in self._invariant.acknowledged().panes.values())


def operations(partitions: int, agents: int, seed: int) -> list[op.Operation]:
    """Makes the phases' operations."""
    source, done = random.Random(seed), list[op.Operation]()

    def pass_time(seconds: int) -> None:
        for _ in range(seconds):
            for partition in source.sample(range(partitions), max(1, round(PER_SECOND * partitions))):
                done.append(op.Produce(partition, source.randint(1, 4), source.randrange(10**6)))
            done.append(op.Wait(1.0))

    def each(kinds: Sequence[op.Operation], every: int) -> None:
        for i, kind in enumerate(kinds):
            done.append(kind)
            if i % every == 0:
                pass_time(1)

    pass_time(3)
    done.append(Phase("one agent"))
    each([op.AddAgent()] * (agents - 1), 5)
    done.append(Phase(f"{agents - 1} more agents start, five a second"))
    few = max(1, agents // 10)
    each([op.KillAgent(source.randrange(agents)) for _ in range(few)], few)
    pass_time(round(SESSION_S) + 1)
    done.append(Phase(f"{few} agents are killed at once"))
    each([op.AddAgent()] * few, few)
    done.append(Phase(f"{few} agents start at once"))
    for _ in range(few):
        done.extend((op.AddAgent(), op.StopAgent(0)))
        pass_time(2)
    done.append(Phase(f"{few} agents are replaced, one every two seconds"))
    done.append(op.PauseRedis(5.0))
    pass_time(6)
    done.append(Phase("Redis does not answer for 5 s"))
    done.append(op.RestartBroker())
    pass_time(6)
    done.append(Phase("the brokers restart, away for 3 s"))
    return done


def run(partitions: int, agents: int, seed: int, code: Code | None = None) -> Scale:
    """Runs all phases, with the service's own code by default.

    Raises:
        Violation: if the invariant does not hold.
    """
    world = Scale(seed, code or Code.real(), partitions, agents)
    world.run(operations(partitions, agents, seed))
    return world


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    world = run(asked.partitions, asked.agents, asked.seed)
    for seen in world.seen:
        print(f"{seen.name:50} {seen.rebalances:4} rebalances {seen.commits:6} commits {seen.settling_s:7.1f} s")
    for what, n in world.done.most_common():
        print(f"{n:10} {what}")


if __name__ == "__main__":
    main()
