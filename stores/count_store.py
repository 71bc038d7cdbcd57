"""Count stores. A store has the count tables of each partition and the first offset not yet counted.

The tables count the records below the offset, so tables and offset are always written together. Each write names the position
(offset and log) from which the writer started. The store refuses the write if another agent has written since. Writes are
idempotent. All methods are synchronous and safe to call from several threads.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from ldpstream.mechanisms import CountTable
from ldpstream.stores.checkpoint import Checkpoint, PaneKey, sum_tables
from ldpstream.surveys import Reason, Survey
from ldpstream.surveys.errors import UserError


class StoreUnavailable(UserError):
    """The count store is unreachable, does not answer in time, or refuses to answer. A later retry may succeed.

    A write that raised this error may or may not have happened.
    """


class StoreRefused(StoreUnavailable):
    """The store denies our login or a right, or a certificate is wrong. A retry fails until the configuration is corrected."""


class StoreDamaged(UserError):
    """Stored entries contradict each other, or have another format. A retry does not help."""


class CountStore(ABC):
    """The count tables of one survey.

    Every method raises StoreUnavailable if the store is unreachable. A read of one partition is atomic: the tables, the offset
    and the rejections come from the same commit. A read raises StoreDamaged if it cannot interpret a stored entry.
    """

    survey: Survey

    # ---- methods for agents

    @abstractmethod
    def load(self, partition: int) -> Checkpoint | None:
        """Returns the partition's checkpoint, with its report keys and the panes that may still change; None if there is none.

        Leaves out `pruned_below`. Also leaves out the panes whose step had closed at the newest append time: such panes cannot
        change.

        Raises:
            StoreDamaged: also if the stored report keys are not complete. Without them, reports might count twice.
        """

    @abstractmethod
    def commit(self, partition: int, expected: tuple[int, str] | None, change: Checkpoint) -> bool:
        """Writes a checkpoint, its panes and its report keys in one atomic step. Removes stored panes and generations of keys
        that are empty in `change`, and keeps stored panes and keys that are not in `change`.

        Args:
            partition: number of the Kafka partition.
            expected: the stored position from which the change starts; None if nothing is stored.
            change: the new checkpoint, with the complete table of every changed pane. The checkpoint's log may differ from the
                stored log.

        Returns:
            False, and nothing is written, if the stored position is not `expected`, if the stored writer is not
            `change.base_writer`, or if the stored checkpoint has another format. True also if the same change is already
            stored: same position, same missing records, same writer.
        """

    # ---- methods for estimators

    @abstractmethod
    def heads(self) -> dict[int, Checkpoint]:
        """Returns all checkpoints by partition, without panes, report keys and `pruned_below`."""

    def positions(self) -> dict[int, int]:
        """Returns the checkpoint's next offset for every partition that has a checkpoint."""
        return {partition: head.next_offset for partition, head in self.heads().items()}

    @abstractmethod
    def checkpoints(self, steps: range) -> dict[int, Checkpoint]:
        """Returns all checkpoints by partition, with the panes of the given consecutive steps, without report keys.

        Only the offset of the same checkpoint shows whether the tables are complete: since an earlier read, the store may have
        lost its last writes.
        """

    def tables(self, steps: range) -> dict[PaneKey, CountTable]:
        """Returns the count tables of the given consecutive steps, summed over all partitions, without empty panes."""
        return sum_tables(checkpoint.panes for checkpoint in self.checkpoints(steps).values())

    @abstractmethod
    def rejected(self) -> dict[Reason, int]:
        """Returns the number of envelopes rejected so far, by reason, over all partitions."""

    @abstractmethod
    def snapshot(self) -> dict[int, Checkpoint]:
        """Returns the checkpoint of every partition, with all panes, without report keys."""

    @abstractmethod
    def prune(self, before_step: int, seen: Mapping[int, Checkpoint]) -> None:
        """Removes the panes of all steps below `before_step` and writes `before_step` to `pruned_below`.

        Skips a partition whose checkpoint does not follow the checkpoint in `seen`. Without this check, a delayed caller could
        remove tables that agents have counted again since then.

        Args:
            before_step: the first step whose panes are kept.
            seen: the checkpoints, by partition, from which the caller concluded that the panes are no longer needed.
        """
