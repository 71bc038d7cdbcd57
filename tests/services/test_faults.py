"""Lists of faults with real processes: two fixed lists, and random lists by seed.

LDPSTREAM_REAL_FAULT_LISTS sets the number of random lists, and LDPSTREAM_REAL_FAULT_SEED sets the first seed. The random lists
also change the clocks of the estimator and of the agents. In a list with an even seed, the log loses records: they expire, or
a hole appears. The test prints each list. Add a failing list to `FIXED`. `tests/faults/test_lists.py` describes Faust's faults
and the tests that provoke them.
"""

import dataclasses
import os
import random
from collections import Counter
from collections.abc import Callable

import pytest

from tests.conftest import Figures
from tests.faults.operations import (
    AddAgent,
    AgentClock,
    BrokerAway,
    Duplicate,
    EstimatorClock,
    Expire,
    FlushRedis,
    FreezeAgent,
    KillAgent,
    Operation,
    PauseRedis,
    PoisonRecords,
    Produce,
    Remove,
    RestartBroker,
    RestartRedis,
    StopAgent,
    Wait,
)

from .agent_site import MakeSite, Site
from .rig import KafkaNode, RedisNode
from .site_under_faults import Run

CarryOut = Callable[[int, list[Operation]], Run]

LISTS = int(os.environ.get("LDPSTREAM_REAL_FAULT_LISTS", "1"))
SEED = int(os.environ.get("LDPSTREAM_REAL_FAULT_SEED", "2"))

FIXED: dict[str, list[Operation]] = {
    "agents": [
        *(PoisonRecords(i, i) for i in range(9)), KillAgent(0), Wait(2), AddAgent(), Wait(1), Duplicate(0, 9), StopAgent(0),
        AddAgent(), FreezeAgent(0, 9.0), Wait(4), Produce(0, 200, 1), KillAgent(1), KillAgent(0), AddAgent(), AddAgent(),
        Wait(8),
    ],
    "services": [
        PauseRedis(4.0), Wait(1), FlushRedis(), PoisonRecords(0, 3), Wait(2), RestartRedis(10), Wait(1), BrokerAway(3.0),
        Wait(1), KillAgent(0), RestartBroker(), AddAgent(), RestartRedis(0), Wait(3), FlushRedis(), KillAgent(0), AddAgent(),
        Wait(2),
    ],
}  # fmt: skip


def random_list(seed: int, length: int = 18) -> list[Operation]:
    """Returns the random list that a seed determines. Only with an even seed does the log lose records."""
    losses = 0 if seed % 2 else 1
    draws: list[tuple[float, Callable[[random.Random], Operation]]] = [
        (8, lambda r: Wait(round(r.uniform(0.1, 1.5), 1))),
        (2, lambda r: Produce(r.randrange(4), r.randint(1, 200), 0)),
        (2, lambda r: PoisonRecords(r.randrange(4), r.randrange(9))),
        (1, lambda r: Duplicate(0, r.randint(1, 20))),
        (2, lambda r: AddAgent()),
        (2, lambda r: KillAgent(r.randrange(3))),
        (1, lambda r: StopAgent(r.randrange(3))),
        (1, lambda r: FreezeAgent(r.randrange(3), r.choice((1.0, 8.0)))),
        (1, lambda r: PauseRedis(r.choice((0.5, 4.0)))),
        (1, lambda r: FlushRedis()),
        (1, lambda r: RestartRedis(r.choice((0, 5)))),
        (0.7, lambda r: BrokerAway(r.choice((0.5, 3.0)))),
        (0.3, lambda r: RestartBroker()),
        (1, lambda r: AgentClock(r.choice((0, 60_000)))),
        (2, lambda r: EstimatorClock(r.choice((-12_000, 0, 3_000, 12_000)))),
        (losses, lambda r: Expire(r.randrange(4), 0, r.random() < 0.6)),
        (losses, lambda r: Remove(r.randrange(4), r.randint(1, 20), r.randint(1, 5))),
    ]
    source = random.Random(seed)
    return [draw(source) for _, draw in source.choices(draws, [weight for weight, _ in draws], k=length)]


@pytest.fixture
def carry_out(kafka_node: KafkaNode, redis_node: RedisNode, make_site: MakeSite, figures: Figures) -> CarryOut:
    """Runs and prints a list of operations, and adds up the events."""

    def do(seed: int, operations: list[Operation]) -> Run:
        run = Run(make_site(kafka_node.bootstrap, redis_node.url), kafka_node, redis_node, seed)
        print(f"seed {seed}: {operations!r}")
        try:
            run.run(operations)
        finally:
            whole = figures.setdefault("lists of faults, real processes", Counter())
            whole.update({"lists": 1, "operations": len(operations), "lost": 0, "doubled": 0})
            whole.update(run.done)
        return run

    return do


@pytest.mark.parametrize("name", FIXED)
def test_fixed_fault_lists_keep_the_invariant(name: str, carry_out: CarryOut) -> None:
    run = carry_out(0, FIXED[name])
    assert run.done["records acknowledged"] > 500
    assert run.done["steps published"] > 3
    assert run.done["refused"] > 0
    assert run.done["duplicates of report keys"] > 200
    _count_a_pane_twice(run.site)
    with pytest.raises(AssertionError):  # the control: the check notices reports counted twice
        run.check()


def _count_a_pane_twice(site: Site) -> None:
    partition, stored = next((p, checkpoint) for p, checkpoint in site.store.snapshot().items() if checkpoint.panes)
    key, table = next(iter(stored.panes.items()))
    stored = dataclasses.replace(stored, base_writer=stored.writer)
    change = dataclasses.replace(stored, next_offset=stored.next_offset + 1, panes={key: table + table})
    assert site.store.commit(partition, stored.position, change)
    assert site.store.commit(partition, change.position, dataclasses.replace(change, next_offset=stored.next_offset))


@pytest.mark.parametrize("seed", range(SEED, SEED + LISTS))
def test_random_fault_lists_keep_the_invariant(seed: int, carry_out: CarryOut) -> None:
    run = carry_out(seed, random_list(seed))
    assert run.done["records acknowledged"] > 500
    if run.done["reports that the log lost before they were counted"]:
        assert run.done["keys never complete"]
        run.estimator.told = [dataclasses.replace(p, complete=True) for p in run.estimator.told]
        with pytest.raises(AssertionError):  # the control: the check notices a false completeness
            run.check()
