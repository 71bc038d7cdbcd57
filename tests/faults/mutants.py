"""Mutants: faults in the service's logic.

The lists of operations must find each fault: tests that cannot fail prove nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ldpstream.agents.fold import STEP_BACK_MS, PartitionFold
from ldpstream.agents.log import Chunk, DeadLetter
from ldpstream.agents.tally import Record, tally
from ldpstream.engines.checkpoint import MAX_MS, STORED_KEY_BYTES, Checkpoint
from ldpstream.publishing.progress import Progress
from ldpstream.surveys.report_key import REPORT_KEY_BYTES

from .code import Code
from .invariant import split
from .memory_store import MemoryCountStore
from .memory_topic import TopicClient

Mutant = Callable[[Code], None]


def writes_whatever_is_stored(code: Code) -> None:
    """The compare-and-set does not compare, so a stale owner overwrites newer counts."""

    class Store(MemoryCountStore):
        def commit(self, partition: int, expected: tuple[int, str] | None, change: Checkpoint) -> bool:
            head = self.heads().get(partition)
            if head is None:
                return super().commit(partition, None, change)
            return super().commit(partition, head.position, replace(change, base_writer=head.writer))

    code.store = Store


def counts_redelivered_records(code: Code) -> None:
    """A record below the expected offset is counted again."""

    class Fold(PartitionFold):
        def feed(self, records: Sequence[Record]) -> Any:
            again = [record for record in records if record.offset < self.next_offset]
            result = super().feed(records)
            for key, table in tally(self._survey, again).counts.items():
                self._panes[key] = self._panes[key] + table if key in self._panes else table
                self._dirty.add(key)
            return result

    code.fold = Fold


def takes_any_gap(code: Code) -> None:
    """The fold skips a missing record without asking the broker."""

    class Fold(PartitionFold):
        def feed(self, records: Sequence[Record]) -> Any:
            result = super().feed(records)
            if result.gap is not None:
                self._next = result.gap[1]
                result = super().feed(records)
            return result

    code.fold = Fold


def takes_chunks_of_former_placements(code: Code) -> None:
    """A chunk read before a seek is treated as read after the seek."""

    class Counting(code.counting.Counting):  # type: ignore[misc, name-defined]  # a copy of the module
        async def take(self, chunk: Chunk) -> None:
            partition = self._partitions.get(chunk.partition)
            await super().take(chunk if partition is None else chunk._replace(placement=partition.placement))

    code.counting.Counting = Counting


def commits_before_the_dead_letters(code: Code) -> None:
    """Dead letters are sent after the commit that includes their envelopes."""
    _with_log(code, _LateLetters)


def reads_from_the_groups_offset(code: Code) -> None:
    """Like Faust, reads a partition from the group's committed offset instead of the store's offset."""
    _with_log(code, _GroupOffsets)


def forgets_what_came_during_a_commit(code: Code) -> None:
    """Panes that change during a write are treated as written."""

    class Fold(PartitionFold):
        def committed(self, change: Checkpoint) -> None:
            self._dirty.clear()
            super().committed(change)

    code.fold = Fold


def leaves_out_open_panes(code: Code) -> None:
    """A loaded checkpoint lacks a pane of the oldest step that may still change."""

    class Store(MemoryCountStore):
        def load(self, partition: int) -> Checkpoint | None:
            found = super().load(partition)
            if found is not None and found.panes:
                del found.panes[min(found.panes, key=lambda key: key.step)]
            return found

    code.store = Store


def starts_rejections_anew(code: Code) -> None:
    """A new owner counts the rejected envelopes from zero."""

    class Store(MemoryCountStore):
        def load(self, partition: int) -> Checkpoint | None:
            found = super().load(partition)
            if found is not None:
                found.rejected.clear()
            return found

    code.store = Store


def judges_lateness_by_its_own_clock(code: Code) -> None:
    """The time of counting, not the append time, decides whether a record is late."""

    class Fold(PartitionFold):
        now_ms: Callable[[], int]  # set by the run (`traced`)

        def feed(self, records: Sequence[Record]) -> Any:
            return super().feed([record._replace(appended_ms=self.now_ms()) for record in records])

    code.fold = Fold


def publishes_when_some_partitions_are_done(code: Code) -> None:
    """A step is treated as complete once one partition has passed the close of the step."""

    class Schedule(code.schedule.Schedule):  # type: ignore[misc, name-defined]  # a copy of the module
        def _counted(self, step: int, heads: Any) -> bool:
            return any(head.newest_ms >= self._survey.closes_ms(step) for head in heads.values())

    code.schedule.Schedule = Schedule


def believes_offsets_asked_for_before(code: Code) -> None:
    """To decide if a step is complete, the schedule uses offsets that it read before the step's tables."""

    class Schedule(code.schedule.Schedule):  # type: ignore[misc, name-defined]  # a copy of the module
        _decided = False

        def _passed(self, step: int, now_ms: int) -> bool:
            self._decided = False
            self._decided = bool(super()._passed(step, now_ms))
            return self._decided

        def _counted(self, step: int, heads: Any) -> bool:
            return self._decided or bool(super()._counted(step, heads))

    code.schedule.Schedule = Schedule


def forgets_what_is_missing(code: Code) -> None:
    """The fold skips records that expired before they were counted, and does not note the missing records."""

    class Fold(PartitionFold):
        def lose(self, offset: int, until_ms: int = MAX_MS) -> None:
            self._next = offset

    code.fold = Fold


def bounds_missing_records_by_its_own_clock(code: Code) -> None:
    """Missing records are noted as appended before the agent's present time, even if the agent's clock is slow."""

    class Fold(PartitionFold):
        now_ms: Callable[[], int]  # set by the run (`traced`)

        def lose(self, offset: int, until_ms: int = MAX_MS) -> None:
            super().lose(offset, self.now_ms())

    code.fold = Fold


def trusts_append_times_to_rise(code: Code) -> None:
    """Missing records are noted as appended before the next record, even if the broker's clock has stepped back."""

    class Fold(PartitionFold):
        def _advance(self, times: Sequence[int]) -> None:
            super()._advance([ms - STEP_BACK_MS for ms in times])
            self._newest_ms = times[-1]

    code.fold = Fold


def jumps_over_removed_records(code: Code) -> None:
    """Records that are missing in the middle of the log are skipped and not noted."""

    class Fold(PartitionFold):
        _found = -1

        def feed(self, records: Sequence[Record]) -> Any:
            result = super().feed(records)
            self._found = -1 if result.gap is None else result.gap[1]
            return result

        def lose(self, offset: int, until_ms: int = MAX_MS) -> None:
            if offset == self._found:
                self._next = offset
            else:
                super().lose(offset, until_ms)

    code.fold = Fold


def overlooks_a_replaced_end(code: Code) -> None:
    """Records that take the place of lost ones are treated as counted."""

    class Counting(code.counting.Counting):  # type: ignore[misc, name-defined]  # a copy of the module
        async def _replaced(self, folds: dict[int, Any]) -> dict[int, int | None]:
            return dict.fromkeys(folds)

    code.counting.Counting = Counting


def compares_the_end_only_when_it_loads(code: Code) -> None:
    """An agent that already counts a partition does not notice that the log's end was replaced."""

    class Counting(code.counting.Counting):  # type: ignore[misc, name-defined]  # a copy of the module
        async def _replaced(self, folds: dict[int, Any]) -> dict[int, int | None]:
            new = {n: fold for n, fold in folds.items() if self._partitions[n].fold is None}
            return {**dict.fromkeys(folds), **await super()._replaced(new)}

    code.counting.Counting = Counting


def never_compares_the_end_after_a_noted_loss(code: Code) -> None:
    """After the log has lost its end, an agent does not look for new records below the offset where it continues."""

    class Fold(PartitionFold):
        @property
        def loss_is_open(self) -> bool:
            return self._missing is not None and self._missing.until_ms == MAX_MS

    code.fold = Fold


def believes_the_estimators_clock(code: Code) -> None:
    """The end of an idle partition is final once the step has closed by the estimator's own clock."""

    class Schedule(code.schedule.Schedule):  # type: ignore[misc, name-defined]  # a copy of the module
        def _counted(self, step: int, heads: Any) -> bool:
            return all(heads[p].next_offset >= end if p in heads else not end for p, end in self._position.ends().items())

    code.schedule.Schedule = Schedule


def publishes_although_replaced(code: Code) -> None:
    """The topic accepts publications of an estimator after another estimator has taken over."""

    class Topic(TopicClient):
        def publish(self, publications: list[Any]) -> int:
            self._topic.owner = self
            return super().publish(publications)

    code.topic = Topic


def forgets_what_was_told(code: Code) -> None:
    """An estimator that takes over ignores the publications in the topic."""

    class Topic(TopicClient):
        def take_over(self, since: int, still: Callable[[], bool]) -> dict[str, Any]:
            super().take_over(since, still)
            return {}

    code.topic = Topic


def replaces_better_by_poorer(code: Code) -> None:
    """A new estimate is published even if a more complete estimate was published before."""

    class Schedule(code.schedule.Schedule):  # type: ignore[misc, name-defined]  # a copy of the module
        def _best(self, concluded: list[Any]) -> list[Any]:
            return concluded

    code.schedule.Schedule = Schedule


def filters_preliminary_counts(code: Code) -> None:
    """The filter's state is saved after every step, although the counts of the step may still change."""

    class Schedule(code.schedule.Schedule):  # type: ignore[misc, name-defined]  # a copy of the module
        def _is_final(self, step: int, after: Progress) -> bool:
            return True

    code.schedule.Schedule = Schedule


def reads_the_filters_once(code: Code) -> None:
    """An estimator does not notice that the saved states of the filters have changed."""

    class Schedule(code.schedule.Schedule):  # type: ignore[misc, name-defined]  # a copy of the module
        _read: Any = None

        def _states(self, saved: Progress | None) -> Any:
            self._read = self._read or super()._states(saved)
            return self._read

    code.schedule.Schedule = Schedule


def never_compares_with_the_store(code: Code) -> None:
    """An agent without new records does not notice that the store has lost the agent's writes."""

    class Counting(code.counting.Counting):  # type: ignore[misc, name-defined]  # a copy of the module
        async def _compare_with_store(self) -> None:
            """Does nothing."""

    code.counting.Counting = Counting


def forgets_the_keys_of_a_loaded_checkpoint(code: Code) -> None:
    """A new owner of a partition begins without the report keys of its counts."""

    class Store(MemoryCountStore):
        def load(self, partition: int) -> Checkpoint | None:
            found = super().load(partition)
            if found is not None:
                found.keys.clear()
            return found

    code.store = Store


def writes_keys_apart_from_the_counts(code: Code) -> None:
    """The report keys are written even if the counts that belong to them are refused."""

    class Store(MemoryCountStore):
        def commit(self, partition: int, expected: tuple[int, str] | None, change: Checkpoint) -> bool:
            written = super().commit(partition, expected, change)
            if not written and (stored := self._checkpoints.get(partition)) is not None:
                keys = dict(stored.keys)
                for step, added in change.keys.items():
                    keys[step] = b"".join({*split(keys.get(step, b"")), *split(added)})
                n_keys = {step: len(found) // STORED_KEY_BYTES for step, found in keys.items()}
                self._checkpoints[partition] = replace(stored, keys=keys, n_keys=n_keys)
            return written

    code.store = Store


def forgets_keys_at_each_commit(code: Code) -> None:
    """Only the report keys since the last commit are remembered."""

    class Fold(PartitionFold):
        def committed(self, change: Checkpoint) -> None:
            super().committed(change)
            for generation in self._keys._generations.values():
                generation.runs = list(generation.unwritten)

    code.fold = Fold


def remembers_keys_of_rejected_records(code: Code) -> None:
    """An envelope that was rejected as too early is not counted when it is sent again."""

    class Fold(PartitionFold):
        def feed(self, records: Sequence[Record]) -> Any:
            result = super().feed(records)
            for record, _ in result.rejected:
                if len(record.key) == REPORT_KEY_BYTES:
                    self._keys.admit(np.frombuffer(record.key, np.uint64)[:1], record.appended_ms)
            return result

    code.fold = Fold


def drops_a_generation_one_step_early(code: Code) -> None:
    """The report keys of a step are forgotten while an envelope accepted in that step may still be accepted again."""

    class Fold(PartitionFold):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self._keys._ahead -= 1

    code.fold = Fold


def appends_keys_twice(code: Code) -> None:
    """A commit that is repeated after a lost answer appends its report keys again."""

    class Store(MemoryCountStore):
        def commit(self, partition: int, expected: tuple[int, str] | None, change: Checkpoint) -> bool:
            stored = self._checkpoints.get(partition)
            if stored is not None and change.same_change(stored):
                keys = {step: found + change.keys.get(step, b"") for step, found in stored.keys.items()}
                self._checkpoints[partition] = replace(stored, keys=keys)
            return super().commit(partition, expected, change)

    code.store = Store


def overlooks_another_writer(code: Code) -> None:
    """The compare-and-set compares only offset and log, not who has written. Only a fixed list finds this mutant."""

    class Store(MemoryCountStore):
        def commit(self, partition: int, expected: tuple[int, str] | None, change: Checkpoint) -> bool:
            head = self.heads().get(partition)
            return super().commit(partition, expected, replace(change, base_writer="" if head is None else head.writer))

    code.store = Store


MUTANTS: tuple[Mutant, ...] = (
    writes_whatever_is_stored,
    counts_redelivered_records,
    takes_any_gap,
    takes_chunks_of_former_placements,
    commits_before_the_dead_letters,
    reads_from_the_groups_offset,
    forgets_what_came_during_a_commit,
    leaves_out_open_panes,
    starts_rejections_anew,
    judges_lateness_by_its_own_clock,
    publishes_when_some_partitions_are_done,
    believes_offsets_asked_for_before,
    forgets_what_is_missing,
    bounds_missing_records_by_its_own_clock,
    trusts_append_times_to_rise,
    jumps_over_removed_records,
    overlooks_a_replaced_end,
    compares_the_end_only_when_it_loads,
    never_compares_the_end_after_a_noted_loss,
    believes_the_estimators_clock,
    publishes_although_replaced,
    forgets_what_was_told,
    replaces_better_by_poorer,
    filters_preliminary_counts,
    reads_the_filters_once,
    never_compares_with_the_store,
    forgets_the_keys_of_a_loaded_checkpoint,
    writes_keys_apart_from_the_counts,
    forgets_keys_at_each_commit,
    remembers_keys_of_rejected_records,
    drops_a_generation_one_step_early,
    appends_keys_twice,
)


class _Passing:
    """A log that forwards all requests."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def __getattr__(self, question: str) -> Any:
        return getattr(self._log, question)


class _LateLetters(_Passing):
    def __init__(self, log: Any) -> None:
        super().__init__(log)
        self._waiting: list[DeadLetter] = []

    async def send_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        self._waiting += letters

    async def commit_group(self, offsets: dict[int, int]) -> None:
        await self._log.send_dead_letters(self._waiting)
        self._waiting = []
        await self._log.commit_group(offsets)


class _GroupOffsets(_Passing):
    async def place(self, partition: int, offset: int) -> int:
        return int(await self._log.place(partition, self._log.group_offset(partition, offset)))


def _with_log(code: Code, log: Callable[[Any], Any]) -> None:
    class Counting(code.counting.Counting):  # type: ignore[misc, name-defined]  # a copy of the module
        def __init__(self, survey: Any, store: Any, source: Any, *more: Any, **named: Any) -> None:
            super().__init__(survey, store, log(source), *more, **named)

    code.counting.Counting = Counting
