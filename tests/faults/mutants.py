"""Mutants: faults in the service's logic.

The lists of operations must find each fault: tests that cannot fail prove nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ldpstream.agents.fold import STEP_BACK_MS
from ldpstream.agents.log import Chunk
from ldpstream.agents.tally import Record, tally
from ldpstream.engines.checkpoint import MAX_MS, STORED_KEY_BYTES, Checkpoint
from ldpstream.publishing.progress import Progress
from ldpstream.surveys.report_key import REPORT_KEY_BYTES

from .code import Code
from .invariant import split

if TYPE_CHECKING:
    Part = Any  # the class that a mutant changes
else:
    Part = object


class Mutant(Part):  # type: ignore[misc]  # its methods extend those of the part
    """A fault: its methods replace those of a part of the code.

    Attributes:
        part: the replaced class, as a path in `Code`.
    """

    part: ClassVar[str]

    @classmethod
    def apply(cls, code: Code) -> None:
        """Puts the fault into the code."""
        *module, name = cls.part.split(".")
        place = getattr(code, module[0]) if module else code
        setattr(place, name, type(cls.__name__, (cls, getattr(place, name)), {}))


class _Passing:
    """A log that forwards all requests."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def __getattr__(self, question: str) -> Any:
        return getattr(self._log, question)


class _GroupOffsets(_Passing):
    async def place(self, partition: int, offset: int) -> Any:
        return int(await self._log.place(partition, self._log.group_offset(partition, offset)))


class _OtherLog(Mutant):
    part = "counting.Counting"
    log: ClassVar[type[_Passing]]

    def __init__(self, survey: Any, store: Any, source: Any, *more: Any, **named: Any) -> None:
        super().__init__(survey, store, self.log(source), *more, **named)


class WritesWhateverIsStored(Mutant):
    """The compare-and-set does not compare, so a stale owner overwrites newer counts."""

    part = "store"

    def commit(self, partition: int, expected: tuple[int, str] | None, change: Checkpoint) -> Any:
        head = self.heads().get(partition)
        if head is None:
            return super().commit(partition, None, change)
        return super().commit(partition, head.position, replace(change, base_writer=head.writer))


class CountsRedeliveredRecords(Mutant):
    """A record below the expected offset is counted again."""

    part = "fold"

    def feed(self, records: Sequence[Record]) -> Any:
        again = [record for record in records if record.offset < self.next_offset]
        result = super().feed(records)
        for key, table in tally(self._survey, again).counts.items():
            self._panes[key] = self._panes[key] + table if key in self._panes else table
            self._dirty.add(key)
        return result


class TakesAnyGap(Mutant):
    """The fold skips a missing record without asking the broker."""

    part = "fold"

    def feed(self, records: Sequence[Record]) -> Any:
        result = super().feed(records)
        if result.gap is not None:
            self.next_offset = result.gap[1]
            result = super().feed(records)
        return result


class TakesChunksOfFormerPlacements(Mutant):
    """A chunk read before a seek is treated as read after the seek."""

    part = "counting.Counting"

    async def take(self, chunk: Chunk) -> None:
        partition = self._partitions.get(chunk.partition)
        await super().take(chunk if partition is None else chunk._replace(placement=partition.placement))


class ReadsFromTheGroupsOffset(_OtherLog):
    """Like Faust, reads a partition from the group's committed offset instead of the store's offset."""

    log = _GroupOffsets


class ForgetsWhatCameDuringACommit(Mutant):
    """Panes that change during a write are treated as written."""

    part = "fold"

    def committed(self, change: Checkpoint) -> None:
        self._dirty.clear()
        super().committed(change)


class LeavesOutOpenPanes(Mutant):
    """A loaded checkpoint lacks a pane of the oldest step that may still change."""

    part = "store"

    def load(self, partition: int) -> Any:
        found = super().load(partition)
        if found is not None and found.panes:
            del found.panes[min(found.panes, key=lambda key: key.step)]
        return found


class StartsRejectionsAnew(Mutant):
    """A new owner counts the rejected envelopes from zero."""

    part = "store"

    def load(self, partition: int) -> Any:
        found = super().load(partition)
        if found is not None:
            found.rejected.clear()
        return found


class JudgesLatenessByItsOwnClock(Mutant):
    """The time of counting, not the append time, decides whether a record is late."""

    part = "fold"
    now_ms: Callable[[], int]  # set by the run (`traced`)

    def feed(self, records: Sequence[Record]) -> Any:
        return super().feed([record._replace(appended_ms=self.now_ms()) for record in records])


class PublishesWhenSomePartitionsAreDone(Mutant):
    """A step is treated as complete once one partition has passed the close of the step."""

    part = "schedule.Schedule"

    def _counted(self, step: int, heads: Any) -> Any:
        return any(head.newest_ms >= self._survey.closes_ms(step) for head in heads.values())


class BelievesOffsetsAskedForBefore(Mutant):
    """To decide if a step is complete, the schedule uses offsets that it read before the step's tables."""

    part = "schedule.Schedule"
    _decided = False

    def _passed(self, step: int, now_ms: int) -> Any:
        self._decided = False
        self._decided = bool(super()._passed(step, now_ms))
        return self._decided

    def _counted(self, step: int, heads: Any) -> Any:
        return self._decided or bool(super()._counted(step, heads))


class ForgetsWhatIsMissing(Mutant):
    """The fold skips records that expired before they were counted, and does not note the missing records."""

    part = "fold"

    def lose(self, offset: int) -> None:
        self.next_offset = offset


class BoundsMissingRecordsByItsOwnClock(Mutant):
    """Missing records are noted as appended before the agent's present time, even if the agent's clock is slow."""

    part = "fold"
    _missing: Any
    now_ms: Callable[[], int]  # set by the run (`traced`)

    def lose(self, offset: int) -> None:
        super().lose(offset)
        self._missing = self._missing._replace(until_ms=self.now_ms())


class TrustsAppendTimesToRise(Mutant):
    """Missing records are noted as appended before the next record, even if the broker's clock has stepped back."""

    part = "fold"

    def _advance(self, times: Sequence[int]) -> None:
        super()._advance([ms - STEP_BACK_MS for ms in times])
        self._newest_ms = times[-1]


class JumpsOverRemovedRecords(Mutant):
    """Records that are missing in the middle of the log are skipped and not noted."""

    part = "fold"
    _found = -1

    def feed(self, records: Sequence[Record]) -> Any:
        result = super().feed(records)
        self._found = -1 if result.gap is None else result.gap[1]
        return result

    def lose(self, offset: int) -> None:
        if offset == self._found:
            self.next_offset = offset
        else:
            super().lose(offset)


class OverlooksAReplacedEnd(Mutant):
    """Records that take the place of lost ones are treated as counted."""

    part = "counting.Counting"

    async def _replaced(self, folds: dict[int, Any]) -> Any:
        return dict.fromkeys(folds)


class ComparesTheEndOnlyWhenItLoads(Mutant):
    """An agent that already counts a partition does not notice that the log's end was replaced."""

    part = "counting.Counting"

    async def _replaced(self, folds: dict[int, Any]) -> Any:
        new = {n: fold for n, fold in folds.items() if self._partitions[n].fold is None}
        return {**dict.fromkeys(folds), **await super()._replaced(new)}


class NeverComparesTheEndAfterANotedLoss(Mutant):
    """After the log has lost its end, an agent does not look for new records below the offset where it continues."""

    part = "fold"

    @property
    def loss_is_open(self) -> Any:
        return self._missing is not None and self._missing.until_ms == MAX_MS


class BelievesTheEstimatorsClock(Mutant):
    """The end of an idle partition is final once the step has closed by the estimator's own clock."""

    part = "schedule.Schedule"

    def _counted(self, step: int, heads: Any) -> Any:
        return all(heads[p].next_offset >= end if p in heads else not end for p, end in self._position.ends().items())


class PublishesAlthoughReplaced(Mutant):
    """The topic accepts publications of an estimator after another estimator has taken over."""

    part = "topic"

    def publish(self, publications: list[Any]) -> Any:
        self._topic.owner = self
        return super().publish(publications)


class ForgetsWhatWasTold(Mutant):
    """An estimator that takes over ignores the publications in the topic."""

    part = "topic"

    def take_over(self, since: int, still: Callable[[], bool]) -> Any:
        super().take_over(since, still)
        return {}


class ReplacesBetterByPoorer(Mutant):
    """A new estimate is published even if a more complete estimate was published before."""

    part = "schedule.Schedule"

    def _best(self, concluded: list[Any]) -> list[Any]:
        return concluded


class FiltersPreliminaryCounts(Mutant):
    """The filter's state is saved after every step, although the counts of the step may still change."""

    part = "schedule.Schedule"

    def _is_final(self, step: int, after: Progress) -> Any:
        return True


class ReadsTheFiltersOnce(Mutant):
    """An estimator does not notice that the saved states of the filters have changed."""

    part = "schedule.Schedule"
    _read: Any = None

    def _states(self, saved: Progress | None) -> Any:
        self._read = self._read or super()._states(saved)
        return self._read


class NeverComparesWithTheStore(Mutant):
    """An agent without new records does not notice that the store has lost the agent's writes."""

    part = "counting.Counting"

    async def _compare_with_store(self) -> None:
        """Does nothing."""


class ForgetsTheKeysOfALoadedCheckpoint(Mutant):
    """A new owner of a partition begins without the report keys of its counts."""

    part = "store"

    def load(self, partition: int) -> Any:
        found = super().load(partition)
        if found is not None:
            found.keys.clear()
        return found


class WritesKeysApartFromTheCounts(Mutant):
    """The report keys are written even if the counts that belong to them are refused."""

    part = "store"

    def commit(self, partition: int, expected: tuple[int, str] | None, change: Checkpoint) -> Any:
        written = super().commit(partition, expected, change)
        if not written and (stored := self._checkpoints.get(partition)) is not None:
            keys = dict(stored.keys)
            for step, added in change.keys.items():
                keys[step] = b"".join({*split(keys.get(step, b"")), *split(added)})
            n_keys = {step: len(found) // STORED_KEY_BYTES for step, found in keys.items()}
            self._checkpoints[partition] = replace(stored, keys=keys, n_keys=n_keys)
        return written


class ForgetsKeysAtEachCommit(Mutant):
    """Only the report keys since the last commit are remembered."""

    part = "fold"

    def committed(self, change: Checkpoint) -> None:
        super().committed(change)
        for generation in self._keys._generations.values():
            generation.runs = list(generation.unwritten)


class RemembersKeysOfRejectedRecords(Mutant):
    """An envelope that was rejected as too early is not counted when it is sent again."""

    part = "fold"

    def feed(self, records: Sequence[Record]) -> Any:
        result = super().feed(records)
        for record, _ in result.rejected:
            if len(record.key) == REPORT_KEY_BYTES:
                self._keys.admit(np.frombuffer(record.key, np.uint64)[:1], record.appended_ms)
        return result


class DropsAGenerationOneStepEarly(Mutant):
    """The report keys of a step are forgotten while an envelope accepted in that step may still be accepted again."""

    part = "fold"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._keys._ahead -= 1


class AppendsKeysTwice(Mutant):
    """A commit that is repeated after a lost answer appends its report keys again."""

    part = "store"

    def commit(self, partition: int, expected: tuple[int, str] | None, change: Checkpoint) -> Any:
        stored = self._checkpoints.get(partition)
        if stored is not None and change.same_change(stored):
            keys = {step: found + change.keys.get(step, b"") for step, found in stored.keys.items()}
            self._checkpoints[partition] = replace(stored, keys=keys)
        return super().commit(partition, expected, change)


class OverlooksAnotherWriter(Mutant):
    """The compare-and-set compares only offset and log, not who has written. Only a fixed list finds this mutant."""

    part = "store"

    def commit(self, partition: int, expected: tuple[int, str] | None, change: Checkpoint) -> Any:
        head = self.heads().get(partition)
        return super().commit(partition, expected, replace(change, base_writer="" if head is None else head.writer))


MUTANTS = [
    found for name, found in list(vars().items()) if name[0] != "_" and isinstance(found, type) and hasattr(found, "part")
]
