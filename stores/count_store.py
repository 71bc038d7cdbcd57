"""Count stores: hold the count tables of each Kafka partition and the offset up to which they count the log.

The tables are a fold over the log, so tables and offset are always written together. Each write names the offset that the
writer started from. The store refuses it if another agent has written since. Writes are idempotent. If two agents believe
they own a partition, only one of them succeeds and the other is refused.

All methods are synchronous and safe to call from several threads.
"""

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from mechanisms import CountTable
from surveys import Reason, Survey

MAX_MS: Final = 2**53 - 1  # later than any time; doubles are exact up to here


class PaneKey(NamedTuple):
    """Key of a count table: attribute, level and time step of its reports. Indices as in the survey."""

    attribute: int
    level: int
    step: int


class StoreUnavailable(Exception):
    """The count store is unreachable, does not answer in time, or refuses to answer. A later retry may succeed.

    A write that raised it may or may not have happened.
    """


class Missing(NamedTuple):
    """Records that can never be counted, because the log no longer has them.

    Attributes:
        after_ms, until_ms: they were appended in [after_ms, until_ms), in Unix milliseconds.
        below_offset: their offsets were below this one; counting continued here.
    """

    after_ms: int
    until_ms: int
    below_offset: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The counts of one partition: the sum of all its records below an offset.

    Attributes:
        next_offset: the first offset that is not counted.
        newest_ms: the latest append time among the counted records, in Unix milliseconds; 0 if there are none.
        panes: count tables; the method that returns the checkpoint determines which ones.
        rejected: number of envelopes refused so far, by reason.
        log_id: the log that the offset belongs to; "" if unknown. A recreated topic is another log.
        missing: the records missing from the counts, as one range from the first to the last; None if there are none.
        writer: random name of the fold that wrote it. Every load begins a new fold. A store restored from an older copy
            therefore gets a new writer before it reaches the same offset again.
        pruned_below: the panes of all steps below this one have been removed. Only `prune` sets it.
    """

    next_offset: int
    newest_ms: int = 0
    panes: dict[PaneKey, CountTable] = field(default_factory=dict)
    rejected: dict[Reason, int] = field(default_factory=dict)
    log_id: str = ""
    missing: Missing | None = None
    writer: str = field(default="", compare=False)
    pruned_below: int = 0

    @property
    def position(self) -> tuple[int, str]:
        """The next offset and its log."""
        return self.next_offset, self.log_id

    def follows(self, earlier: "Checkpoint") -> bool:
        """True if this is the earlier checkpoint, perhaps with more records counted."""
        same_fold = (self.writer, self.log_id) == (earlier.writer, earlier.log_id)
        return same_fold and self.next_offset >= earlier.next_offset

    def same_change(self, stored: "Checkpoint") -> bool:
        """True if this change is already stored: same position, same missing records, same writer.

        This makes a retry after a lost answer idempotent. It compares no tables: a fold has one table at one position.
        """
        return (self.position, self.missing, self.writer) == (stored.position, stored.missing, stored.writer)


def first_open_step(survey: Survey, newest_ms: int) -> int:
    """Returns the first step for which a record appended at `newest_ms` or later may still report."""
    return survey.step_at(newest_ms) - survey.lateness_steps


def sum_tables(partitions: Iterable[dict[PaneKey, CountTable]]) -> dict[PaneKey, CountTable]:
    """Adds up the tables of several partitions."""
    total: dict[PaneKey, CountTable] = {}
    for panes in partitions:
        for key, table in panes.items():
            total[key] = total[key] + table if key in total else table
    return total


def sum_rejected(partitions: Iterable[dict[Reason, int]]) -> dict[Reason, int]:
    """Adds up the rejections of several partitions."""
    total: Counter[Reason] = Counter()
    for rejected in partitions:
        total.update(rejected)
    return dict(total)


class CountStore(ABC):
    """The count tables of one survey.

    Every method raises StoreUnavailable if the store is unreachable. A read of one partition is atomic: its tables, offset
    and rejections belong together.
    """

    survey: Survey

    # ---- methods for agents

    @abstractmethod
    def load(self, partition: int) -> Checkpoint | None:
        """Returns the partition's checkpoint with the panes that may still change; None if nothing is stored.

        Leaves out `pruned_below`, and panes whose step had closed by the newest append time: they cannot change any more.
        """

    @abstractmethod
    def commit(self, partition: int, expected: int | None, change: Checkpoint) -> bool:
        """Writes the checkpoint and its panes in one atomic step. Other panes stay as they are.

        Args:
            partition: number of the Kafka partition.
            expected: the stored offset that the change starts from; None if nothing is stored.
            change: the new checkpoint and its changed panes, each one whole.

        Returns:
            False, and nothing written, if the stored offset is not `expected` or if another log is stored. True also if the
            same change is already stored: same position, same missing records, same writer.
        """

    @abstractmethod
    def begin_anew(self, partition: int, expected: tuple[int, str], change: Checkpoint) -> bool:
        """Writes the first checkpoint of another log in one atomic step. Removes its empty panes; others stay.

        Args:
            partition: number of the Kafka partition.
            expected: the stored offset and its log.
            change: the new checkpoint, with another log.

        Returns:
            False, and nothing written, if the stored position is not `expected`. True also if the same change is already
            stored.
        """

    # ---- methods for estimators

    @abstractmethod
    def heads(self) -> dict[int, Checkpoint]:
        """Returns all checkpoints by partition, without panes and `pruned_below`."""

    def positions(self) -> dict[int, int]:
        """Returns the next offset of every partition that has a checkpoint."""
        return {partition: head.next_offset for partition, head in self.heads().items()}

    @abstractmethod
    def checkpoints(self, steps: range) -> dict[int, Checkpoint]:
        """Returns all checkpoints by partition, with the panes of these consecutive steps.

        Judge the tables' completeness by the offsets in the same checkpoint, never by offsets read earlier: a store may lose
        its last writes in between.
        """

    def tables(self, steps: range) -> dict[PaneKey, CountTable]:
        """Returns the count tables of these consecutive steps, summed over all partitions, without empty panes."""
        return sum_tables(checkpoint.panes for checkpoint in self.checkpoints(steps).values())

    @abstractmethod
    def rejected(self) -> dict[Reason, int]:
        """Returns the number of envelopes refused so far by reason, over all partitions."""

    @abstractmethod
    def snapshot(self) -> dict[int, Checkpoint]:
        """Returns the whole checkpoint of every partition, with all panes."""

    @abstractmethod
    def prune(self, before_step: int, seen: Mapping[int, Checkpoint]) -> None:
        """Removes the panes of all steps below `before_step` and records that in `pruned_below`.

        Skips a partition whose checkpoint does not follow the one seen. Otherwise a caller that hung could remove tables
        that agents have since counted again.

        Args:
            before_step: the first step whose panes stay.
            seen: the checkpoints, by partition, from which the caller concluded that the panes are no longer needed.
        """


class MemoryCountStore(CountStore):
    """A count store in this process's memory, for the embedded mode and for tests."""

    def __init__(self, survey: Survey) -> None:
        self.survey = survey
        self._checkpoints: dict[int, Checkpoint] = {}
        self._lock = threading.Lock()

    def load(self, partition: int) -> Checkpoint | None:
        with self._lock:
            if (stored := self._checkpoints.get(partition)) is None:
                return None
            first = first_open_step(self.survey, stored.newest_ms)
            stored = replace(stored, pruned_below=0)
            return _with_panes(stored, {key: table for key, table in stored.panes.items() if key.step >= first})

    def commit(self, partition: int, expected: int | None, change: Checkpoint) -> bool:
        with self._lock:
            stored = self._checkpoints.get(partition)
            if stored is not None and change.same_change(stored):
                return True
            if stored is not None and stored.log_id not in ("", change.log_id):
                return False
            offset = None if stored is None else stored.next_offset
            return offset == expected and self._write(partition, stored, change)

    def begin_anew(self, partition: int, expected: tuple[int, str], change: Checkpoint) -> bool:
        with self._lock:
            stored = self._checkpoints.get(partition)
            if stored is not None and change.same_change(stored):
                return True
            position = None if stored is None else stored.position
            return position == expected and self._write(partition, stored, change)

    def _write(self, partition: int, stored: Checkpoint | None, change: Checkpoint) -> bool:
        panes = ({} if stored is None else stored.panes) | change.panes
        written = replace(change, pruned_below=0 if stored is None else stored.pruned_below)
        self._checkpoints[partition] = _with_panes(written, {key: table for key, table in panes.items() if table.n})
        return True

    def heads(self) -> dict[int, Checkpoint]:
        with self._lock:
            return {p: _with_panes(replace(checkpoint, pruned_below=0), {}) for p, checkpoint in self._checkpoints.items()}

    def checkpoints(self, steps: range) -> dict[int, Checkpoint]:
        return {
            partition: _with_panes(checkpoint, {key: table for key, table in checkpoint.panes.items() if key.step in steps})
            for partition, checkpoint in self.snapshot().items()
        }

    def rejected(self) -> dict[Reason, int]:
        return sum_rejected(checkpoint.rejected for checkpoint in self.snapshot().values())

    def snapshot(self) -> dict[int, Checkpoint]:
        with self._lock:
            return {p: _with_panes(checkpoint, dict(checkpoint.panes)) for p, checkpoint in self._checkpoints.items()}

    def prune(self, before_step: int, seen: Mapping[int, Checkpoint]) -> None:
        with self._lock:
            for partition, checkpoint in self._checkpoints.items():
                if partition in seen and checkpoint.follows(seen[partition]):
                    kept = {key: table for key, table in checkpoint.panes.items() if key.step >= before_step}
                    pruned = replace(checkpoint, pruned_below=max(before_step, checkpoint.pruned_below))
                    self._checkpoints[partition] = _with_panes(pruned, kept)


def _with_panes(checkpoint: Checkpoint, panes: dict[PaneKey, CountTable]) -> Checkpoint:
    return replace(checkpoint, panes=panes, rejected=dict(checkpoint.rejected))
