"""What may happen during a run, as data: a run is a list of these and a seed, and can be replayed from what is printed of it.

Agents and partitions are named by an index that is taken modulo those that there are, so that any part of a list is a list.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


class Operation:
    """One thing that happens; time passes only in `Wait` and `AdvanceClock`."""


@dataclass(frozen=True)
class Wait(Operation):
    """Let everything run."""

    seconds: float


@dataclass(frozen=True)
class AdvanceClock(Operation):
    """The wall clock, the broker's too, is so much later all at once; steps close."""

    seconds: float


@dataclass(frozen=True)
class BrokerClock(Operation):
    """From now on the broker's clock is so much behind the wall clock; so append times step back."""

    behind_ms: int


@dataclass(frozen=True)
class Produce(Operation):
    """n sound envelopes, acknowledged by the broker."""

    partition: int
    n: int
    seed: int


@dataclass(frozen=True)
class PoisonRecords(Operation):
    """An envelope that is to be refused for the reason with that index."""

    partition: int
    reason: int


@dataclass(frozen=True)
class Duplicate(Operation):
    """The producer sends its last n records once more, which are acknowledged and so count once more."""

    partition: int
    n: int


@dataclass(frozen=True)
class Marker(Operation):
    """An offset without a record, as a transaction leaves it."""

    partition: int


@dataclass(frozen=True)
class AddAgent(Operation):
    """Another agent joins."""


@dataclass(frozen=True)
class KillAgent(Operation):
    """SIGKILL; the group notices when the session times out."""

    agent: int


@dataclass(frozen=True)
class StopAgent(Operation):
    """SIGTERM."""

    agent: int


@dataclass(frozen=True)
class ZombieOwner(Operation):
    """The group gives an agent's partitions to others, and it goes on as if they were its own."""

    agent: int


@dataclass(frozen=True)
class FreezeAgent(Operation):
    """SIGSTOP, and SIGCONT after a while: after more than a session a real zombie. For real processes only."""

    agent: int
    seconds: float


@dataclass(frozen=True)
class Rebalance(Operation):
    """The group deals the partitions anew, to zombies too."""

    turn: int


@dataclass(frozen=True)
class Redeliver(Operation):
    """The framework hands an agent a chunk that it had before; `relabel`: as if it had just been read."""

    agent: int
    back: int
    relabel: bool


@dataclass(frozen=True)
class LoseDelivery(Operation):
    """The framework drops a chunk on its way to the agent."""

    agent: int
    which: int


@dataclass(frozen=True)
class Reorder(Operation):
    """The framework hands the chunks that an agent waits for in another order."""

    agent: int
    turn: int


@dataclass(frozen=True)
class DelayDelivery(Operation):
    """The framework keeps what it has read from an agent for a while, over whatever happens meanwhile."""

    agent: int
    seconds: float


@dataclass(frozen=True)
class StallConsumer(Operation):
    """An agent's consumer reads nothing any more and says nothing about it: only a new process helps."""

    agent: int


@dataclass(frozen=True)
class PauseRedis(Operation):
    """Redis hangs; what was asked meanwhile it does when it goes on, although nobody waits for the answer any more."""

    seconds: float


@dataclass(frozen=True)
class SlowRedis(Operation):
    """From now on every answer of Redis takes so long."""

    seconds: float


@dataclass(frozen=True)
class RedisErrors(Operation):
    """The next n questions fail; `after`: after Redis has done what was asked."""

    n: int
    after: bool


@dataclass(frozen=True)
class RefuseWrites(Operation):
    """Redis reads but does not write for a while, as with a full disk."""

    seconds: float


@dataclass(frozen=True)
class FlushRedis(Operation):
    """Redis loses everything, results too."""


@dataclass(frozen=True)
class RestartRedis(Operation):
    """Redis comes back without its last writes."""

    lost: int


@dataclass(frozen=True)
class BrokerAway(Operation):
    """No broker answers for a while, and nothing is acknowledged."""

    seconds: float


@dataclass(frozen=True)
class RestartBroker(Operation):
    """The broker is away for three seconds, and forgets the group."""


@dataclass(frozen=True)
class LogErrors(Operation):
    """The next n questions of that name to the log fail; `after`: after the broker has done what was asked."""

    question: str
    n: int
    after: bool


@dataclass(frozen=True)
class Expire(Operation):
    """Retention removes a partition's oldest n records, those only that are counted unless it is `blind`."""

    partition: int
    n: int
    blind: bool = False


@dataclass(frozen=True)
class Estimate(Operation):
    """An estimator runs its schedule once; if it hangs, it goes on instead.

    At its question number `stop_at` it hangs, is killed, or gets no answer; before its question number `at`, Redis loses its
    last writes.
    """

    estimator: int = 0
    stop_at: int | None = None
    then: Literal["hang", "kill", "lose the answer"] = "kill"
    lost: int = 0
    at: int = 0


@dataclass(frozen=True)
class KillEstimator(Operation):
    """An estimator is killed, also if it hangs, and started anew."""

    estimator: int


@dataclass(frozen=True)
class LoseShard(Operation):
    """One node of a Redis Cluster comes back without its last writes, or without any.

    It holds one partition's counts; or, with the number after the last partition, progress and estimates.
    """

    shard: int
    lost: int | None


QUESTIONS = ("bounds", "place", "read_in_vain", "commit_group", "send_dead_letters", "identity", "witness")

Draw = Callable[[random.Random], Operation]


def _estimate(r: random.Random) -> Estimate:
    then: Literal["hang", "kill", "lose the answer"] = r.choice(("hang", "hang", "kill", "lose the answer"))
    stop_at = r.randrange(14) if r.random() < 0.5 else None
    return Estimate(r.randrange(2), stop_at, then, r.randint(1, 5) if r.random() < 0.25 else 0, r.randrange(10))


# how often each comes, and with which values
_DRAWS: list[tuple[float, Draw]] = [
    (14, lambda r: Wait(round(r.choice((r.uniform(0, 0.3), r.uniform(0, 3), r.uniform(3, 9))), 2))),
    (1, lambda r: AdvanceClock(r.choice((5.0, 10.0, 31.0)))),
    (0.5, lambda r: BrokerClock(r.choice((0, 100, 400)))),
    (10, lambda r: Produce(r.randrange(3), r.randint(1, 12), r.randrange(1000))),
    (2, lambda r: PoisonRecords(r.randrange(3), r.randrange(10))),
    (1, lambda r: Duplicate(r.randrange(3), r.randint(1, 4))),
    (0.7, lambda r: Marker(r.randrange(3))),
    (1.5, lambda r: AddAgent()),
    (1.5, lambda r: KillAgent(r.randrange(4))),
    (1, lambda r: StopAgent(r.randrange(4))),
    (1, lambda r: ZombieOwner(r.randrange(4))),
    (1.5, lambda r: Rebalance(r.randrange(4))),
    (2, lambda r: Redeliver(r.randrange(4), r.randrange(6), r.random() < 0.5)),
    (1.5, lambda r: LoseDelivery(r.randrange(4), r.randrange(3))),
    (0.7, lambda r: Reorder(r.randrange(4), r.randrange(6))),
    (1, lambda r: DelayDelivery(r.randrange(4), r.choice((2.0, 8.0, 15.0)))),
    (0.1, lambda r: StallConsumer(r.randrange(4))),
    (0.7, lambda r: PauseRedis(r.choice((1.0, 4.0, 8.0)))),
    (0.5, lambda r: SlowRedis(r.choice((0.0, 0.5, 2.5)))),
    (1, lambda r: RedisErrors(r.randint(1, 4), r.random() < 0.6)),
    (0.4, lambda r: RefuseWrites(r.choice((1.0, 5.0)))),
    (0.6, lambda r: FlushRedis()),
    (0.8, lambda r: RestartRedis(r.randint(1, 5))),
    (0.6, lambda r: BrokerAway(r.choice((0.5, 4.0, 12.0)))),
    (0.4, lambda r: RestartBroker()),
    (1.5, lambda r: LogErrors(r.choice(QUESTIONS), r.randint(1, 3), r.random() < 0.6)),
    (0.6, lambda r: Expire(r.randrange(3), r.randint(1, 30), r.random() < 0.4)),
    (4, _estimate),
    (0.5, lambda r: KillEstimator(r.randrange(2))),
    (0.8, lambda r: LoseShard(r.randrange(4), r.choice((1, 2, 5, None)))),
]  # fmt: skip


def random_list(seed: int, length: int = 40) -> list[Operation]:
    """The list of that seed. Some kinds are left out of each list, so that others come together more often."""
    source = random.Random(seed)
    kinds = [(weight, draw) for i, (weight, draw) in enumerate(_DRAWS) if weight >= 10 or source.random() < 0.6]
    weights = [weight for weight, _ in kinds]
    return [draw(source) for _, draw in source.choices(kinds, weights, k=length)]
