"""The operations of a run, as data.

A run consists of a list of operations and a seed. The printed form of a run can be replayed.

Indices of agents and partitions are taken modulo their number. Any part of a list is therefore a valid list.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, dataclass_transform


@dataclass_transform(frozen_default=True)
class Operation:
    """One event of a run. Time passes only in `Wait`. The wall clock also jumps in `AdvanceClock`, `LoseEnd` and `MakeAnew`."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


class Wait(Operation):
    """All processes run for a while."""

    seconds: float


class AdvanceClock(Operation):
    """The wall clock and the broker's clock jump ahead; steps close."""

    seconds: float


class BrokerClock(Operation):
    """From now on the broker's clock is `behind_ms` behind the wall clock. Append times may step back."""

    behind_ms: int


class Produce(Operation):
    """The producer sends n sound envelopes, and the broker acknowledges them."""

    partition: int
    n: int
    seed: int


class PoisonRecords(Operation):
    """The producer sends an envelope that must be rejected, for the reason with this index.

    The index after the last reason is a malformed report key. The next index is a record without an envelope, a marker.
    """

    partition: int
    reason: int


class Duplicate(Operation):
    """The producer sends n records again, and the broker acknowledges these records. `back` later records are not sent again.

    Agents count a record with a report key once, and a record without a key again.
    """

    partition: int
    n: int
    back: int = 0


class Marker(Operation):
    """A transaction leaves an offset without a record."""

    partition: int


class AddAgent(Operation):
    """Another agent joins."""


class KillAgent(Operation):
    """An agent gets SIGKILL. The group notices the loss at the session timeout."""

    agent: int


class StopAgent(Operation):
    """An agent gets SIGTERM."""

    agent: int


class ZombieOwner(Operation):
    """The group gives an agent's partitions to others, but the agent continues as their owner."""

    agent: int


class FreezeAgent(Operation):
    """An agent gets SIGSTOP and later SIGCONT. After the session timeout the agent is a zombie. Only for real processes."""

    agent: int
    seconds: float


class Rebalance(Operation):
    """The group assigns all partitions again, even to zombies."""

    turn: int


class Redeliver(Operation):
    """The framework delivers an earlier chunk again.

    With `relabel`, the chunk is labelled as a new read.
    """

    agent: int
    back: int
    relabel: bool


class LoseDelivery(Operation):
    """The framework drops a chunk before the chunk reaches the agent."""

    agent: int
    which: int


class Reorder(Operation):
    """The framework delivers an agent's waiting chunks in another order."""

    agent: int
    turn: int


class DelayDelivery(Operation):
    """The framework delays an agent's chunks for a while, even until after a new seek that makes the chunks invalid."""

    agent: int
    seconds: float


class StallConsumer(Operation):
    """An agent's consumer silently stops reading until the process is restarted."""

    agent: int


class PauseRedis(Operation):
    """Redis hangs for a while. Redis then runs the queued requests, even if their callers no longer wait."""

    seconds: float


class SlowRedis(Operation):
    """From now on every answer of Redis takes this long."""

    seconds: float


class RedisErrors(Operation):
    """The next n requests to Redis fail. With `after`, each request takes effect before it fails."""

    n: int
    after: bool


class RefuseWrites(Operation):
    """Redis answers reads but refuses writes for a while, as Redis does when its disk is full."""

    seconds: float


class FlushRedis(Operation):
    """Redis loses all data, including the results."""


class RestartRedis(Operation):
    """Redis restarts without its last writes."""

    lost: int


class BrokerAway(Operation):
    """No broker answers or acknowledges anything for a while."""

    seconds: float


class RestartBroker(Operation):
    """The broker is unreachable for three seconds and forgets the group."""


class LogErrors(Operation):
    """The next n requests of this name to the log fail. With `after`, each request takes effect before it fails."""

    question: str
    n: int
    after: bool


class Expire(Operation):
    """Retention removes a partition's oldest n records. Unless `blind` is set, retention removes only counted records."""

    partition: int
    n: int
    blind: bool = False


class Remove(Operation):
    """Somebody removes n records in the middle of a partition, for example by `cleanup.policy=compact`. `back` later records
    remain."""

    partition: int
    n: int
    back: int


class LoseEnd(Operation):
    """The broker loses at least the last n records of a partition, among them a counted record, and then accepts the next
    `more` records. Redis loses nothing in the same run."""

    partition: int
    n: int
    more: int
    seed: int


class MakeAnew(Operation):
    """Somebody deletes the topic and creates it again, after all partitions have been counted. Redis loses nothing in the same
    run."""


class AgentClock(Operation):
    """From now on the agents' clocks are `behind_ms` behind the wall clock; ahead of it if negative."""

    behind_ms: int


class EstimatorClock(Operation):
    """From now on the estimators' clocks are `ahead_ms` ahead of the wall clock; behind it if negative."""

    ahead_ms: int


class Estimate(Operation):
    """An estimator runs its schedule once. A hanging estimator resumes its earlier run instead.

    At request number `stop_at` the estimator hangs, is killed or gets no answer. Before request number `at`, Redis loses its
    last `lost` writes.
    """

    estimator: int = 0
    stop_at: int | None = None
    then: Literal["hang", "kill", "lose the answer"] = "kill"
    lost: int = 0
    at: int = 0


class KillEstimator(Operation):
    """An estimator is killed and restarted, even if it hangs."""

    estimator: int


class LoseShard(Operation):
    """The keys of one partition lose their last writes. If `lost` is None, somebody deletes the keys.

    The number after the last partition stands for the keys of the progress and the estimates.
    """

    shard: int
    lost: int | None


QUESTIONS = (
    "bounds",
    "place",
    "position_if_nothing_read",
    "commit_group",
    "described",
    "later",
)

Draw = Callable[[random.Random], Operation]


def _estimate(r: random.Random) -> Estimate:
    then: Literal["hang", "kill", "lose the answer"] = r.choice(("hang", "hang", "kill", "lose the answer"))
    stop_at = r.randrange(14) if r.random() < 0.5 else None
    return Estimate(r.randrange(2), stop_at, then, r.randint(1, 5) if r.random() < 0.25 else 0, r.randrange(10))


# relative frequency of each operation, and its random values
_DRAWS: list[tuple[float, Draw]] = [
    (14, lambda r: Wait(round(r.choice((r.uniform(0, 0.3), r.uniform(0, 3), r.uniform(3, 9))), 2))),
    (1, lambda r: AdvanceClock(r.choice((5.0, 10.0, 31.0)))),
    (0.5, lambda r: BrokerClock(r.choice((0, 100, 400)))),
    (10, lambda r: Produce(r.randrange(3), r.randint(1, 10), r.randrange(1000))),
    (2, lambda r: PoisonRecords(r.randrange(3), r.randrange(12))),
    (2.5, lambda r: Duplicate(r.randrange(3), r.randint(1, 6), r.choice((0, 0, 4, 12, 30)))),
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
    (0.4, lambda r: Remove(r.randrange(3), r.randint(1, 10), r.choice((0, 1, 5)))),
    (0.4, lambda r: LoseEnd(r.randrange(3), r.randint(1, 8), r.choice((0, 2, 10)), r.randrange(1000))),
    (0.2, lambda r: MakeAnew()),
    (0.5, lambda r: AgentClock(r.choice((-20_000, 0, 9_000, 60_000)))),
    (1, lambda r: EstimatorClock(r.choice((-12_000, 0, 3_000, 12_000)))),
]  # fmt: skip


def random_list(seed: int, length: int = 40) -> list[Operation]:
    """Returns the list of a seed.

    Each list omits some kinds of operations, so that the remaining kinds occur together more often.
    """
    source = random.Random(seed)
    kinds = [(weight, draw) for i, (weight, draw) in enumerate(_DRAWS) if weight >= 10 or source.random() < 0.6]
    weights = [weight for weight, _ in kinds]
    return [draw(source) for _, draw in source.choices(kinds, weights, k=length)]
