"""Count stores: the count tables of each partition, with the first offset not yet counted.

All methods are synchronous and safe to call from several threads.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping

from ldpstream.engines.checkpoint import ALL_STEPS, Checkpoint, PaneKey, sum_tables
from ldpstream.mechanisms import CountTable
from ldpstream.surveys import Reason, Survey
from ldpstream.surveys.errors import UserError


class StoreUnavailable(UserError):
    """The count store is unreachable, does not answer in time, or refuses to answer.

    A write that raises this error may have happened.
    """


class StoreRefused(StoreUnavailable):
    """The store denies our login or a right, or a certificate is wrong."""


class StoreDamaged(UserError):
    """Stored entries cannot be read, contradict each other, or have another format; a retry does not help."""


class CountStore(ABC):
    """The count tables of one survey.

    Every method raises StoreUnavailable if the store is unreachable. The tables, offset and rejections that a read returns for
    a partition come from one commit.
    """

    survey: Survey

    # ---- methods for agents

    @abstractmethod
    def load(self, partition: int) -> Checkpoint | None:
        """Returns the partition's checkpoint with its report keys and open panes; None if there is none.

        Raises:
            StoreDamaged: if the stored report keys are not complete, or an open pane is not a count table.
        """

    @abstractmethod
    def commit(self, partition: int, expected: tuple[int, str] | None, change: Checkpoint) -> bool:
        """Writes a checkpoint, its panes and its report keys in one atomic step. An empty pane or generation of keys in
        `change` removes the stored one.

        Args:
            expected: the stored position from which the change starts; None if nothing is stored.

        Returns:
            True if the change is stored, also by an earlier call; False, and the checkpoint unchanged, if it does not start
            there.
        """

    def check_writes(self) -> None:  # noqa: B027  # a data folder has no rights of its own
        """Checks that the store accepts the writes of agents, and changes no counts."""

    # ---- methods for estimators

    @abstractmethod
    def heads(self) -> dict[int, Checkpoint]:
        """Returns all checkpoints by partition, without panes, report keys and `pruned_below`."""

    def positions(self) -> dict[int, int]:
        """Returns the checkpoint's next offset for every partition that has a checkpoint."""
        return {partition: head.next_offset for partition, head in self.heads().items()}

    @abstractmethod
    def checkpoints(self, steps: range) -> dict[int, Checkpoint]:
        """Returns all checkpoints by partition, with the panes of the given consecutive steps, without report keys."""

    def tables(self, steps: range) -> dict[PaneKey, CountTable]:
        """Returns the count tables of consecutive steps, summed over all partitions."""
        return sum_tables(checkpoint.panes for checkpoint in self.checkpoints(steps).values())

    def rejected(self) -> dict[Reason, int]:
        """Returns the number of envelopes rejected so far, by reason, over all partitions."""
        total: Counter[Reason] = Counter()
        for head in self.heads().values():
            total.update(head.rejected)
        return dict(total)

    def snapshot(self) -> dict[int, Checkpoint]:
        """Returns the checkpoint of every partition, with all panes, without report keys."""
        return self.checkpoints(ALL_STEPS)

    @abstractmethod
    def prune(self, before_step: int, seen: Mapping[int, Checkpoint]) -> None:
        """Removes the panes of all steps below `before_step`, and raises `pruned_below` to this step.

        Skips a partition that is not in `seen`, or whose checkpoint does not follow the one in `seen`.

        Args:
            seen: the checkpoints that the caller has read, by partition.
        """
