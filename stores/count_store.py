"""Count stores: hold the count tables of each Kafka partition and the offset up to which the tables count the log.

The tables are a fold over the log, so tables and offset are always written together. Each write names the position (offset
and log) that the writer started from. The store refuses it if another agent has written since. Writes are idempotent. If two
agents believe they own a partition, only one of them succeeds and the other is refused.

All methods are synchronous and safe to call from several threads.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from mechanisms import CountTable
from stores.checkpoint import Checkpoint, PaneKey, sum_tables
from surveys import Reason, Survey
from surveys.errors import UserError


class StoreUnavailable(UserError):
    """The count store is unreachable, does not answer in time, or refuses to answer. A later retry may succeed.

    A write that raised this error may or may not have happened.
    """


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

        Leaves out `pruned_below`, and panes whose step had closed by the newest append time: such panes cannot change.
        """

    @abstractmethod
    def commit(self, partition: int, expected: tuple[int, str] | None, change: Checkpoint) -> bool:
        """Writes the checkpoint and its panes in one atomic step. Removes its empty panes; panes it does not name stay.

        Args:
            partition: number of the Kafka partition.
            expected: the stored position that the change starts from; None if nothing is stored.
            change: the new checkpoint and its changed panes, each one whole. Its log may be another one.

        Returns:
            False, and nothing written, if the stored position is not `expected`. True also if the same change is already
            stored: same position, same missing records, same writer.
        """

    # ---- methods for estimators

    @abstractmethod
    def heads(self) -> dict[int, Checkpoint]:
        """Returns all checkpoints by partition, without panes and `pruned_below`."""

    def positions(self) -> dict[int, int]:
        """Returns the checkpoint's next offset for every partition that has a checkpoint."""
        return {partition: head.next_offset for partition, head in self.heads().items()}

    @abstractmethod
    def checkpoints(self, steps: range) -> dict[int, Checkpoint]:
        """Returns all checkpoints by partition, with the panes of these consecutive steps.

        Use the offsets in the same checkpoint to decide whether the tables are complete, never offsets read earlier: a store
        may lose its last writes in between.
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
        """Removes the panes of all steps below `before_step` and writes `before_step` to `pruned_below`.

        Skips a partition whose checkpoint does not follow the checkpoint seen. Otherwise a caller that hung could remove
        tables that agents have since counted again.

        Args:
            before_step: the first step whose panes are kept.
            seen: the checkpoints, by partition, that the caller used to decide that the panes are no longer needed.
        """
