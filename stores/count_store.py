"""Where the count tables are kept: together with the offset up to which they count the log, per Kafka partition.

The tables are a fold over the log, so neither is ever written without the other. A write names the offset that the writer
started from and is refused if somebody else has written since; writing the same twice does no harm. So of two agents that
both take themselves for a partition's owner only one succeeds, and the other learns of it.

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

MAX_MS: Final = 2**53 - 1  # the largest integer that a double holds: later than any time


class PaneKey(NamedTuple):
    """What one count table counts: the reports of an attribute, at a level, of a time step. Indices as in the survey."""

    attribute: int
    level: int
    step: int


class StoreUnavailable(Exception):
    """The count store cannot be reached, does not answer in time, or refuses to answer. Worth another try later.

    After it, a write may or may not have happened.
    """


class Missing(NamedTuple):
    """Records that were never counted and never will be, because the log does not have them any more.

    Attributes:
        after_ms, until_ms: they were appended at or after the one and before the other.
        below_offset: their offsets were below this one, at which counting went on.
    """

    after_ms: int
    until_ms: int
    below_offset: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything that the records of one partition below an offset have added up to.

    Attributes:
        next_offset: the first offset that is not counted.
        newest_ms: the latest append time among the records counted; 0 if there are none.
        panes: count tables; which of them depends on who hands the checkpoint out.
        rejected: number of envelopes refused so far, by reason.
        log_id: the log whose offset it is, since a topic that is deleted and made again is another one; "" if not known.
        missing: the records that are missing from the counts, if there are any: from the first that is missing to the last.
        writer: random name of the fold that wrote it. Every load begins a new fold, so a store that came back from an older
            copy gets a new writer before it reaches the same offset again.
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
        """The offset and the log that it belongs to."""
        return self.next_offset, self.log_id

    def follows(self, earlier: "Checkpoint") -> bool:
        """Whether this is the earlier checkpoint with more records counted, or the same one."""
        same_fold = (self.writer, self.log_id) == (earlier.writer, earlier.log_id)
        return same_fold and self.next_offset >= earlier.next_offset

    def same_change(self, stored: "Checkpoint") -> bool:
        """Whether the stored checkpoint has this one's position, missing records and writer: it was written before.

        A writer whose answer was lost asks that. The tables are not compared: one fold has one table at one position.
        """
        return (self.position, self.missing, self.writer) == (stored.position, stored.missing, stored.writer)


def first_open_step(survey: Survey, newest_ms: int) -> int:
    """The first step that a record appended at that time, or later, may still report for."""
    return survey.step_at(newest_ms) - survey.lateness_steps


def sum_tables(partitions: Iterable[dict[PaneKey, CountTable]]) -> dict[PaneKey, CountTable]:
    """The tables of several partitions, added up."""
    total: dict[PaneKey, CountTable] = {}
    for panes in partitions:
        for key, table in panes.items():
            total[key] = total[key] + table if key in total else table
    return total


def sum_rejected(partitions: Iterable[dict[Reason, int]]) -> dict[Reason, int]:
    """The rejections of several partitions, added up."""
    total: Counter[Reason] = Counter()
    for rejected in partitions:
        total.update(rejected)
    return dict(total)


class CountStore(ABC):
    """The count tables of one survey.

    Every method raises StoreUnavailable if the store is out of reach. What is read of a partition belongs together: tables,
    offset and rejections of one moment.
    """

    survey: Survey

    # ---- what an agent asks

    @abstractmethod
    def load(self, partition: int) -> Checkpoint | None:
        """The partition's checkpoint, with the panes that may still change; None if nothing is stored.

        A pane whose step had closed by the newest append time cannot change any more and is left out, as is `pruned_below`.
        """

    @abstractmethod
    def commit(self, partition: int, expected: int | None, change: Checkpoint) -> bool:
        """Write the checkpoint with the given panes, in one atomic step; other panes stay as they are.

        Args:
            partition: number of the Kafka partition.
            expected: the stored offset that the change starts from; None if nothing is stored.
            change: the new checkpoint, and the panes that have changed, whole.

        Returns:
            False, and nothing is written, if the stored offset is not `expected`, or if another log is stored. True if this
            very change is stored already: same position, same missing records, same writer.
        """

    @abstractmethod
    def begin_anew(self, partition: int, expected: tuple[int, str], change: Checkpoint) -> bool:
        """Write the first checkpoint of another log, in one atomic step; its empty panes are removed, the others stay.

        Args:
            partition: number of the Kafka partition.
            expected: the stored offset and the log that it belongs to.
            change: the new checkpoint; its log is another one.

        Returns:
            False, and nothing is written, if the stored position is not `expected`. True if this very change is stored
            already.
        """

    # ---- what an estimator asks

    @abstractmethod
    def heads(self) -> dict[int, Checkpoint]:
        """The checkpoint of every partition that has one, without its panes and `pruned_below`."""

    def positions(self) -> dict[int, int]:
        """The next offset of every partition that has a checkpoint."""
        return {partition: head.next_offset for partition, head in self.heads().items()}

    @abstractmethod
    def checkpoints(self, steps: range) -> dict[int, Checkpoint]:
        """The checkpoint of every partition that has one, with the panes of those consecutive steps.

        Tables are complete if the offsets that they were read with say so. Offsets that were asked for before say nothing:
        a store may lose its last writes in between.
        """

    def tables(self, steps: range) -> dict[PaneKey, CountTable]:
        """The count tables of those consecutive steps, summed over all partitions; panes without a report are absent."""
        return sum_tables(checkpoint.panes for checkpoint in self.checkpoints(steps).values())

    @abstractmethod
    def rejected(self) -> dict[Reason, int]:
        """Number of envelopes refused so far, by reason, over all partitions."""

    @abstractmethod
    def snapshot(self) -> dict[int, Checkpoint]:
        """The whole checkpoint of every partition, with all panes."""

    @abstractmethod
    def prune(self, before_step: int, seen: Mapping[int, Checkpoint]) -> None:
        """Remove the panes of all steps below that one, and keep in each checkpoint that they are gone.

        A partition is left alone unless its checkpoint follows the one that was seen. A caller that hung could otherwise
        remove tables that agents have counted again since.

        Args:
            before_step: the first step whose panes stay.
            seen: checkpoints from which the caller has concluded that the panes are needed no more; by partition.
        """


class MemoryCountStore(CountStore):
    """A count store in this process, for the embedded mode and for tests."""

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
