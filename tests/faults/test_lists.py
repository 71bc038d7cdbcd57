"""Lists of faults against the real `Counting` and `Schedule`, in memory and on virtual time; see `world` for the invariant.

LDPSTREAM_FAULT_LISTS sets how many random lists are run; `python -m tests.faults.search` looks further, from any seed.

What Faust and its client are known to do wrong, and where each is provoked. The lists here do at will what cannot be had at
will from the real ones; `tests/services/test_faults.py` runs real processes.

    a seek in on_partitions_assigned is lost       here "read on from elsewhere", LoseDelivery, Redeliver;
                                                   mutant reads_from_the_groups_offset; real: every rebalance
    records skipped after a rebalance              here "dropped", LoseDelivery; mutant takes_any_gap
    records delivered again after a rebalance      here "twice", Redeliver; mutant counts_redelivered_records; real: KillAgent
    prefetched records late or out of order        here "late", "out of order", DelayDelivery, Reorder;
                                                   mutant takes_chunks_of_former_placements
    two agents that both own a partition           here "two owners", ZombieOwner; mutant writes_whatever_is_stored;
                                                   real: FreezeAgent for longer than a session
    its own commits pass the store's               here "all lost"; mutant reads_from_the_groups_offset; real: FlushRedis
    a consumer that slowly dies                    here "a dying consumer", StallConsumer
    a session timeout that the broker refuses      real: its own test
"""

import os
from collections import Counter

import pytest

from tests.conftest import Figures

from . import mutants, operations
from .operations import (
    AddAgent,
    DelayDelivery,
    Estimate,
    FlushRedis,
    KillAgent,
    LogErrors,
    LoseDelivery,
    Marker,
    Operation,
    PauseRedis,
    PoisonRecords,
    Produce,
    Redeliver,
    RedisErrors,
    RefuseWrites,
    Reorder,
    RestartRedis,
    StallConsumer,
    Wait,
    ZombieOwner,
    random_list,
)
from .search import fails, mutated, replay, search, shrunk

LISTS = int(os.environ.get("LDPSTREAM_FAULT_LISTS", "3000"))
LENGTH = 40
SOME = [Produce(0, 9, 1), Produce(1, 5, 2), PoisonRecords(1, 4), Produce(2, 12, 3)]
MORE = [Produce(0, 8, 4), Produce(1, 8, 5), Produce(2, 8, 6)]

# what is done, and what must be seen to have happened
FIXED: dict[str, tuple[str, list[Operation]]] = {
    "read on from elsewhere": ("gaps noticed", [*SOME, Wait(3), *MORE, LoseDelivery(0, 2), Wait(3)]),
    "dropped": ("gaps noticed", [*SOME, Wait(3), DelayDelivery(0, 2.0), *MORE, Wait(1), LoseDelivery(0, 0), Wait(3)]),
    "twice": ("records delivered again", [*SOME, Wait(3), Redeliver(0, 2, True), Redeliver(0, 1, True), *MORE, Wait(3)]),
    "late": ("chunks of former placements", [
        *SOME, Wait(9), DelayDelivery(0, 15.0), Wait(2), AddAgent(), *MORE, Wait(0.2), FlushRedis(), ZombieOwner(0), Wait(20),
    ]),
    "out of order": ("gaps noticed", [
        *SOME, Wait(3), DelayDelivery(0, 3.0), *MORE, Wait(0.5), *SOME, Wait(0.5), *MORE, Wait(1), Reorder(0, 1), Wait(9),
    ]),
    "two owners": ("commits refused", [
        *SOME, Wait(3), AddAgent(), Wait(3), *MORE, ZombieOwner(0), Wait(1), *SOME, Wait(3), *MORE,
    ]),
    "a dying consumer": ("ended by the watchdog", [*SOME, Wait(3), StallConsumer(0), *MORE, Wait(3)]),
    "a write that nobody waited for": ("questions that Redis answered to nobody", [
        Wait(2), *SOME, PauseRedis(8.0), Wait(2), KillAgent(0), AddAgent(), Wait(12), *MORE,
    ]),
    "an answer that was lost": ("commits", [*SOME, Wait(2), *MORE, RedisErrors(4, True), Wait(20)]),
    "a full disk": ("commits", [*SOME, Wait(2), RefuseWrites(5.0), *MORE, Wait(8)]),
    "letters that are answered late": ("commits", [
        *(PoisonRecords(0, i) for i in range(10)), LogErrors("send_dead_letters", 3, True), Wait(9),
    ]),
    "all lost": ("commits", [*SOME, Wait(3), FlushRedis(), *MORE, Wait(3)]),
    "the last writes lost": ("commits refused", [*SOME, Wait(3), *MORE, Wait(3), RestartRedis(2), *MORE, Wait(3)]),
    "the last writes lost between an estimator's two questions": ("commits", [
        *SOME, Wait(5), Wait(20), Estimate(lost=3, at=1), Wait(5), Estimate(),
    ]),
    "only offsets without records": ("rebalances", [Marker(0), Wait(20), Marker(0), Wait(20), Estimate()]),
}  # fmt: skip


@pytest.fixture(scope="module")
def told() -> Counter[str]:
    """What happened in all random lists."""
    failure, done = search(range(LISTS), LENGTH)
    if failure is not None:
        pytest.fail(str(failure))
    return done


def test_random_lists(told: Counter[str], figures: Figures) -> None:
    """And no list passes because nothing happened in it."""
    figures["random lists of faults, in memory"] = told + Counter({"operations": LISTS * LENGTH})
    assert told["lists"] == LISTS
    shares = {"commits": 3, "rebalances": 2, "gaps noticed": 0.3, "records delivered again": 0.3, "commits refused": 0.1,
              "chunks of former placements": 0.1, "questions that Redis answered to nobody": 0.05}  # fmt: skip
    for what, share in shares.items():
        assert told[what] > share * LISTS, (what, told)


@pytest.mark.parametrize("name", FIXED)
def test_each_fault_is_provoked_and_survived(name: str) -> None:
    happened, listed = FIXED[name]
    assert replay(1, listed)[happened]


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_fault_in_the_logic_is_found(mutant: mutants.Mutant) -> None:
    make = mutated(mutant)
    code = make()
    assert any(fails(seed, random_list(seed, LENGTH), code) for seed in range(min(LISTS, 3000)))


def test_a_failing_list_is_made_short_and_can_be_replayed() -> None:
    failure, _ = search(range(100), LENGTH, mutated(mutants.takes_any_gap))
    assert failure is not None
    code = mutated(mutants.takes_any_gap)()
    assert fails(failure.seed, failure.operations, code) == failure.what
    assert len(failure.operations) < LENGTH / 2
    assert not any(
        fails(failure.seed, failure.operations[:i] + failure.operations[i + 1 :], code) for i in range(len(failure.operations))
    )
    printed = str(failure).partition("\n")[2]
    again = eval(printed, vars(operations) | {"replay": lambda seed, done: (seed, done)})
    assert again == (failure.seed, list(failure.operations))


def test_shrinking_leaves_only_what_matters() -> None:
    waits = [Wait(i) for i in range(50)]
    assert shrunk(waits, lambda part: Wait(7) in part and Wait(33) in part) == (Wait(7), Wait(33))
    assert shrunk(waits, lambda part: True) == ()


def test_the_same_list_goes_the_same_way() -> None:
    assert replay(5, random_list(5)) == replay(5, random_list(5))
