"""Runs lists of faults against the real `Counting` and `Schedule`, in memory and on virtual time; see `invariant`.

LDPSTREAM_FAULT_LISTS sets the number of random lists. `python -m tests.faults.search` runs more lists, from a given seed on.

The table shows known faults of Faust and its client, and the list or test that provokes each fault. The lists here provoke
faults that the real libraries show only by chance. "real" means real processes, as in `tests/services/test_faults.py`.

    a seek in on_partitions_assigned is lost       here "read on from elsewhere", LoseDelivery, Redeliver;
                                                   mutant reads_from_the_groups_offset; real: every rebalance
    records skipped after a rebalance              here "dropped", LoseDelivery; mutant takes_any_gap
    records delivered again after a rebalance      here "twice", Redeliver; mutant counts_redelivered_records; real: KillAgent
    prefetched records late or out of order        here "late", "out of order", DelayDelivery, Reorder;
                                                   mutant takes_chunks_of_former_placements
    two agents that both own a partition           here "two owners", ZombieOwner; mutant writes_whatever_is_stored;
                                                   real: FreezeAgent for longer than a session
    the group's offsets get ahead of the store's   here "all lost"; mutant reads_from_the_groups_offset; real: FlushRedis
    an envelope sent again while its step is open  here "sent again ...", Duplicate; mutants of report keys; real: Duplicate
    a consumer that slowly dies                    here "a dying consumer", StallConsumer
    a session timeout that the broker refuses      real: its own test
"""

import os
from collections import Counter
from typing import NamedTuple

import pytest

from tests.conftest import Figures

from . import mutants, operations
from .operations import (
    AddAgent,
    AdvanceClock,
    AgentClock,
    BrokerClock,
    DelayDelivery,
    Duplicate,
    Estimate,
    EstimatorClock,
    Expire,
    FlushRedis,
    KillAgent,
    LogErrors,
    LoseDelivery,
    LoseEnd,
    MakeAnew,
    Marker,
    Operation,
    PauseRedis,
    PoisonRecords,
    Produce,
    Rebalance,
    Redeliver,
    RedisErrors,
    RefuseWrites,
    Remove,
    Reorder,
    RestartRedis,
    StallConsumer,
    Wait,
    ZombieOwner,
    random_list,
)
from .search import fails, mutated, replay, search, shrunk

LISTS = int(os.environ.get("LDPSTREAM_FAULT_LISTS", "800"))
LENGTH = 40
SOME = [Produce(0, 9, 1), Produce(1, 5, 2), PoisonRecords(1, 4), Produce(2, 12, 3)]
MORE = [Produce(0, 8, 4), Produce(1, 8, 5), Produce(2, 8, 6)]


class Fixed(NamedTuple):
    """A fixed list that every test run replays.

    Attributes:
        happens: an event that must occur.
        operations: the list's operations.
        shows: a mutant (faulty code) that the list finds.
        seed: determines everything that the list leaves open.
    """

    happens: str
    operations: list[Operation]
    shows: mutants.Mutant
    seed: int = 1


FIXED: dict[str, Fixed] = {
    "read on from elsewhere": Fixed(
        "gaps noticed", [*SOME, Wait(3), *MORE, LoseDelivery(0, 2), Wait(3)], mutants.takes_any_gap
    ),
    "dropped": Fixed(
        "gaps noticed",
        [*SOME, Wait(3), DelayDelivery(0, 2.0), *MORE, Wait(1), LoseDelivery(0, 0), Wait(3)],
        mutants.takes_any_gap,
    ),
    "twice": Fixed(
        "records delivered again",
        [*SOME, Wait(3), Redeliver(0, 2, True), Redeliver(0, 1, True), *MORE, Wait(3)],
        mutants.counts_redelivered_records,
    ),
    "late": Fixed(
        "chunks of former placements",
        [
            Wait(0.19), Estimate(at=4), Wait(0.39), Rebalance(3), Wait(0.24), RestartRedis(2), Produce(2, 7, 660),
            DelayDelivery(2, 2.0),
        ],
        mutants.takes_chunks_of_former_placements,
        283,
    ),
    "out of order": Fixed(
        "gaps noticed",
        [*SOME, Wait(3), DelayDelivery(0, 3.0), *MORE, Wait(0.5), *SOME, Wait(0.5), *MORE, Wait(1), Reorder(0, 1), Wait(9)],
        mutants.takes_any_gap,
    ),
    "two owners": Fixed(
        "commits refused",
        [*SOME, Wait(3), AddAgent(), Wait(3), *MORE, ZombieOwner(0), Wait(1), *SOME, Wait(3), *MORE],
        mutants.leaves_out_open_panes,
    ),
    "expired before anybody could count": Fixed(
        "commits",
        [*SOME, Wait(3), KillAgent(0), *MORE, Wait(1), Expire(0, 20, blind=True), AddAgent(), Wait(40), Estimate()],
        mutants.forgets_what_is_missing,
    ),
    "expired, and the agents' clocks are slow": Fixed(
        "commits",
        [
            *SOME, Wait(3), KillAgent(0), AdvanceClock(10.0), *MORE, Wait(1), *(Expire(p, 40, blind=True) for p in range(3)),
            AgentClock(60_000), AddAgent(), Wait(12), Estimate(), Wait(3), Estimate(),
        ],
        mutants.bounds_missing_records_by_its_own_clock,
    ),
    "expired, and the broker's clock has stepped back": Fixed(
        "Expire",
        [Produce(1, 9, 202), BrokerClock(400), Expire(1, 12, blind=True), Marker(1)],
        mutants.trusts_append_times_to_rise,
        1209,
    ),
    "records removed in the middle": Fixed(
        "Remove",
        [*SOME, Wait(3), KillAgent(0), *MORE, Wait(1), Remove(0, 4, 2), AddAgent(), Wait(12), Estimate(), Wait(3), Estimate()],
        mutants.jumps_over_removed_records,
    ),
    "the end lost and refilled": Fixed(
        "LoseEnd",
        [*SOME, Wait(3), KillAgent(0), LoseEnd(0, 4, 9, 7), AddAgent(), Wait(12), Estimate(), Wait(3), Estimate()],
        mutants.overlooks_a_replaced_end,
    ),
    "the end lost and partly refilled": Fixed(
        "LoseEnd",
        [Produce(2, 6, 274), Wait(2.84), LoseEnd(2, 5, 2, 524)],
        mutants.never_compares_the_end_after_a_noted_loss,
        60,
    ),
    "the end lost and refilled under a counting agent": Fixed(
        "LoseEnd",
        [*SOME, Wait(3), LoseEnd(0, 4, 9, 7), Wait(3), Estimate(), Wait(3), Estimate()],
        mutants.compares_the_end_only_when_it_loads,
    ),
    "the estimators' clocks jump ahead in a quiet moment": Fixed(
        "EstimatorClock",
        [*SOME, Wait(9), EstimatorClock(12_000), Estimate(), Wait(1), Estimate(), EstimatorClock(0), *MORE, Wait(9)],
        mutants.believes_the_estimators_clock,
    ),
    "the topic made anew": Fixed(
        "MakeAnew",
        [*SOME, Wait(3), *MORE, MakeAnew(), *SOME, Wait(12), Estimate(), Wait(3), Estimate()],
        mutants.forgets_what_is_missing,
    ),
    "all lost after a complete step": Fixed(
        "commits",
        [*SOME, Wait(10.48), Estimate(1), Wait(16.92), Estimate(1), Wait(4.02), Estimate(1), FlushRedis(), Estimate()],
        mutants.forgets_what_was_told,
        78,
    ),
    "a dying consumer": Fixed(
        "ended by the watchdog", [*SOME, Wait(3), StallConsumer(0), *MORE, Wait(3)], mutants.judges_lateness_by_its_own_clock
    ),
    "a write that nobody waited for": Fixed(
        "questions that Redis answered to nobody",
        [Wait(2), *SOME, PauseRedis(8.0), Wait(2), KillAgent(0), AddAgent(), Wait(12), *MORE],
        mutants.leaves_out_open_panes,
        2,
    ),
    "an answer that was lost": Fixed(
        "commits", [*SOME, Wait(2), *MORE, RedisErrors(4, True), Wait(20)], mutants.commits_before_the_dead_letters
    ),
    "a full disk": Fixed(
        "commits",
        [*SOME, Wait(2), RefuseWrites(5.0), *MORE, Wait(8), KillAgent(0), *MORE],
        mutants.leaves_out_open_panes,
    ),
    "letters that are answered late": Fixed(
        "commits",
        [*(PoisonRecords(0, i) for i in range(10)), LogErrors("send_dead_letters", 3, True), Wait(9)],
        mutants.commits_before_the_dead_letters,
    ),
    "all lost": Fixed("commits", [*SOME, Wait(3), FlushRedis(), *MORE, Wait(3)], mutants.writes_whatever_is_stored),
    "the last writes lost": Fixed(
        "commits refused",
        [*SOME, Wait(3), *MORE, Wait(3), RestartRedis(2), *MORE, Wait(3)],
        mutants.reads_from_the_groups_offset,
    ),
    "the last writes lost between an estimator's two questions": Fixed(
        "commits",
        [Wait(18.27), *SOME, AdvanceClock(5.0), *MORE, Wait(2.48), Estimate(lost=1, at=6), Wait(2.13)],
        mutants.believes_offsets_asked_for_before,
        138,
    ),
    "one partition behind the others": Fixed(
        "commits",
        [AddAgent(), Wait(9), StallConsumer(1), *SOME, AdvanceClock(31.0), *MORE, Wait(3), Estimate(), Wait(2), Estimate()],
        mutants.publishes_when_some_partitions_are_done,
    ),
    "two writers at one offset, and only one of them has counted the expired records": Fixed(
        "commits refused",
        [
            *SOME, Wait(5.24), AddAgent(), Wait(3.84), ZombieOwner(0), Wait(0.13), FlushRedis(),
            *(Expire(partition, 5, blind=True) for partition in range(3)), Wait(1.22),
            *(Produce(partition, 4, 9 + partition) for partition in range(3)), Wait(0.11), Estimate(at=1), Wait(3.68),
        ],
        mutants.overlooks_another_writer,
        280,
    ),
    "sent again to a new owner": Fixed(
        "duplicates of report keys",
        [*SOME, Wait(3), KillAgent(0), AddAgent(), *(Duplicate(partition, 9) for partition in range(3)), Wait(12)],
        mutants.forgets_the_keys_of_a_loaded_checkpoint,
    ),
    "sent again after commits": Fixed(
        "duplicates of report keys",
        [*SOME, Wait(3), *(Duplicate(partition, 9) for partition in range(3)), Wait(3)],
        mutants.forgets_keys_at_each_commit,
    ),
    "sent again until the step closes": Fixed(
        "duplicates of report keys",
        [Wait(9), *SOME, *MORE, *[AdvanceClock(5.0), *(Duplicate(p, 40) for p in range(3))] * 4],
        mutants.drops_a_generation_one_step_early,
    ),
    "sent again because it was too early": Fixed(
        "duplicates of report keys",
        [*SOME, *MORE, Wait(3), AdvanceClock(10.0), *[Duplicate(p, 40) for p in range(3)] * 2, Wait(3)],
        mutants.remembers_keys_of_rejected_records,
    ),
    "only offsets without records": Fixed(
        "rebalances",
        [Marker(0), *SOME, Wait(20), Marker(0), Wait(20), *MORE, Estimate()],
        mutants.commits_before_the_dead_letters,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def told() -> Counter[str]:
    """Runs all random lists and returns the number of events of each kind."""
    failure, done = search(range(LISTS), LENGTH)
    if failure is not None:
        pytest.fail(str(failure))
    return done


def test_random_lists_of_faults_keep_the_invariant(told: Counter[str], figures: Figures) -> None:
    """The invariant holds after every list, and the lists contain enough events of each kind."""
    figures["random lists of faults, in memory"] = told + Counter({"operations": LISTS * LENGTH})
    assert told["lists"] == LISTS
    shares = {"commits": 3, "rebalances": 2, "gaps noticed": 0.3, "records delivered again": 0.3, "commits refused": 0.1,
              "chunks of former placements": 0.1, "questions that Redis answered to nobody": 0.05,
              "duplicates of report keys": 0.5}  # fmt: skip
    for what, share in shares.items():
        assert told[what] > share * LISTS, (what, told)


@pytest.mark.parametrize("name", FIXED)
def test_each_fault_is_provoked_and_survived(name: str) -> None:
    fixed = FIXED[name]
    assert replay(fixed.seed, fixed.operations)[fixed.happens]
    assert fails(fixed.seed, fixed.operations, mutated(fixed.shows)())


@pytest.mark.parametrize(
    ("seed", "operations"),
    [
        (770105, [Produce(2, 9, 937), Wait(24), Marker(2), Wait(8.4), MakeAnew()]),
        (770109, [Marker(1), Wait(2.66), Expire(1, 24, blind=False), FlushRedis()]),
    ],
    ids=["closes a step", "expires"],
)
def test_a_transaction_marker_counts_as_a_record(seed: int, operations: list[Operation]) -> None:
    """Its append time closes steps. Once its offset has expired, an agent cannot tell that it had no report."""
    replay(seed, operations)


# Only a few lists in a hundred find these mutants. For each mutant, the search starts shortly before a seed whose list finds
# this mutant.
START: dict[mutants.Mutant, int] = {
    mutants.forgets_the_keys_of_a_loaded_checkpoint: 70,
    mutants.writes_keys_apart_from_the_counts: 150,
    mutants.drops_a_generation_one_step_early: 155,
    mutants.remembers_keys_of_rejected_records: 40,
    mutants.takes_chunks_of_former_placements: 1375,
    mutants.trusts_append_times_to_rise: 1200,
    mutants.appends_keys_twice: 55,
    mutants.compares_the_end_only_when_it_loads: 675,
    mutants.publishes_although_replaced: 325,
    mutants.believes_the_estimators_clock: 545,
}


# Random lists find these mutants too rarely. A fixed list finds the first two, `test_completeness` the third.
RARE = (mutants.believes_offsets_asked_for_before, mutants.forgets_what_was_told, mutants.replaces_better_by_poorer)


@pytest.mark.parametrize("mutant", [m for m in mutants.MUTANTS if m not in RARE], ids=lambda mutant: mutant.__name__)
def test_a_fault_in_the_logic_is_found(mutant: mutants.Mutant) -> None:
    code = mutated(mutant)()
    start = START.get(mutant, 0)
    assert any(fails(seed, random_list(seed, LENGTH), code) for seed in range(start, start + 3000))


def test_a_failing_list_is_shortened_and_can_be_replayed() -> None:
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


def test_shrinking_keeps_only_necessary_operations() -> None:
    waits = [Wait(i) for i in range(50)]
    assert shrunk(waits, lambda part: Wait(7) in part and Wait(33) in part) == (Wait(7), Wait(33))
    assert shrunk(waits, lambda part: True) == ()


def test_the_same_list_and_seed_give_the_same_run() -> None:
    assert replay(5, random_list(5)) == replay(5, random_list(5))
