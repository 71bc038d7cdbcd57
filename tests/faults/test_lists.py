"""Runs lists of faults against the real `Counting` and `Schedule`, in memory and on virtual time; see `invariant`.

LDPSTREAM_FAULT_LISTS sets the number of random lists. `python -m tests.faults.search` runs more lists, from a given seed on.

The table shows known faults of Faust and its client, and the operation that provokes each fault. The lists provoke faults that
the real libraries show only by chance. "real" means real processes, as in `tests/services/test_faults.py`.

    a seek in on_partitions_assigned is lost       LoseDelivery, Redeliver; mutant ReadsFromTheGroupsOffset;
                                                   real: every rebalance
    records skipped after a rebalance              LoseDelivery; mutant TakesAnyGap
    records delivered again after a rebalance      Redeliver; mutant CountsRedeliveredRecords; real: KillAgent
    prefetched records late or out of order        DelayDelivery, Reorder; mutant TakesChunksOfFormerPlacements
    two agents that both own a partition           ZombieOwner; mutant WritesWhateverIsStored;
                                                   real: FreezeAgent for longer than a session
    the group's offsets get ahead of the store's   FlushRedis; mutant ReadsFromTheGroupsOffset; real: FlushRedis
    an envelope sent again while its step is open  Duplicate; mutants of report keys; real: Duplicate
    a consumer that slowly dies                    StallConsumer
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
    Estimate,
    Expire,
    FlushRedis,
    Operation,
    PoisonRecords,
    Produce,
    Wait,
    ZombieOwner,
    random_list,
)
from .search import fails, mutated, replay, search

LISTS = int(os.environ.get("LDPSTREAM_FAULT_LISTS", "800"))
LENGTH = 40
SOME = [Produce(0, 9, 1), Produce(1, 5, 2), PoisonRecords(1, 4), Produce(2, 12, 3)]
MORE = [Produce(0, 8, 4), Produce(1, 8, 5), Produce(2, 8, 6)]


class Fixed(NamedTuple):
    """A fixed list that finds a mutant which random lists find too rarely.

    Attributes:
        happens: an event that must occur.
        operations: the list's operations.
        shows: a mutant (faulty code) that the list finds.
        seed: determines everything that the list leaves open.
    """

    happens: str
    operations: list[Operation]
    shows: type[mutants.Mutant]
    seed: int = 1


FIXED: dict[str, Fixed] = {
    "all lost after a complete step": Fixed(
        "commits",
        [*SOME, Wait(10.48), Estimate(1), Wait(16.92), Estimate(1), Wait(4.02), Estimate(1), FlushRedis(), Estimate()],
        mutants.ForgetsWhatWasTold,
        78,
    ),
    "the last writes lost between an estimator's two questions": Fixed(
        "commits",
        [Wait(18.11), *SOME, AdvanceClock(5.0), *MORE, Wait(2.5), Estimate(lost=1, at=6), Wait(2.26)],
        mutants.BelievesOffsetsAskedForBefore,
        56,
    ),
    "two writers at one offset, and only one of them has counted the expired records": Fixed(
        "commits refused",
        [
            *SOME, Wait(5.27), AddAgent(), Wait(4.68), ZombieOwner(0), Wait(0.19), FlushRedis(),
            *(Expire(partition, 5, blind=True) for partition in range(3)), Wait(0.9),
            *(Produce(partition, 4, 9 + partition) for partition in range(3)), Wait(0.08), Estimate(at=1), Wait(2.27),
        ],
        mutants.OverlooksAnotherWriter,
        11,
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
              "duplicates of report keys": 0.5, "ended by the watchdog": 0.01}  # fmt: skip
    for what, share in shares.items():
        assert told[what] > share * LISTS, (what, told)


@pytest.mark.parametrize("name", FIXED)
def test_each_fault_is_provoked_and_survived(name: str) -> None:
    fixed = FIXED[name]
    assert replay(fixed.seed, fixed.operations)[fixed.happens]
    assert fails(fixed.seed, fixed.operations, mutated(fixed.shows)())


# Only a few lists in a hundred find these mutants. For each mutant, the search starts shortly before a seed whose list finds
# this mutant.
START: dict[type[mutants.Mutant], int] = {
    mutants.ForgetsTheKeysOfALoadedCheckpoint: 70,
    mutants.WritesKeysApartFromTheCounts: 150,
    mutants.DropsAGenerationOneStepEarly: 155,
    mutants.RemembersKeysOfRejectedRecords: 40,
    mutants.TakesChunksOfFormerPlacements: 1615,
    mutants.TrustsAppendTimesToRise: 1200,
    mutants.AppendsKeysTwice: 55,
    mutants.ComparesTheEndOnlyWhenItLoads: 675,
    mutants.PublishesAlthoughReplaced: 325,
    mutants.BelievesTheEstimatorsClock: 885,
    mutants.PublishesWhenSomePartitionsAreDone: 420,
}


# Random lists find these mutants too rarely. `test_completeness` finds the last one, a fixed list each of the others.
RARE = (
    mutants.OverlooksAnotherWriter,
    mutants.BelievesOffsetsAskedForBefore,
    mutants.ForgetsWhatWasTold,
    mutants.ReplacesBetterByPoorer,
)


@pytest.mark.parametrize("mutant", [m for m in mutants.MUTANTS if m not in RARE], ids=lambda mutant: mutant.__name__)
def test_a_fault_in_the_logic_is_found(mutant: type[mutants.Mutant]) -> None:
    code = mutated(mutant)()
    start = START.get(mutant, 0)
    assert any(fails(seed, random_list(seed, LENGTH), code) for seed in range(start, start + 3000))


def test_a_failing_list_is_shortened_and_can_be_replayed() -> None:
    failure, _ = search(range(100), LENGTH, mutated(mutants.TakesAnyGap))
    assert failure is not None
    code = mutated(mutants.TakesAnyGap)()
    assert fails(failure.seed, failure.operations, code) == failure.what
    assert len(failure.operations) < LENGTH / 2
    assert not any(
        fails(failure.seed, failure.operations[:i] + failure.operations[i + 1 :], code) for i in range(len(failure.operations))
    )
    printed = str(failure).partition("\n")[2]
    again = eval(printed, vars(operations) | {"replay": lambda seed, done: (seed, done)})
    assert again == (failure.seed, list(failure.operations))


def test_the_same_list_and_seed_give_the_same_run() -> None:
    assert replay(5, random_list(5)) == replay(5, random_list(5))
