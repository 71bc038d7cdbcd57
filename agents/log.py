"""What counting asks of the log, and what comes from it; `agents.consumer.chunks` and `agents.app` answer with Kafka."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from agents.tally import Record
from surveys import Reason


class LogUnavailable(Exception):
    """The broker cannot be reached, does not answer in time, or refuses. Worth another try later."""


class Refusal(NamedTuple):
    """Why a whole batch of the log is refused, and how many records that are."""

    records: int
    reason: Reason


class Chunk(NamedTuple):
    """Consecutive records of a partition as read in one go.

    Attributes:
        partition: number of the Kafka partition.
        placement: the placement after which they were read.
        sequence: how many chunks had been read since that placement.
        records: at least one, offsets ascending.
        refusal: if it is given, the one record stands for a batch that cannot be read: the batch's first offset and its bytes.
        markers: if it is not 0, the one record stands for so many offsets of transaction markers, and counts nothing.
    """

    partition: int
    placement: int
    sequence: int
    records: Sequence[Record]
    refusal: Refusal | None = None
    markers: int = 0


class DeadLetter(NamedTuple):
    """A rejected envelope, and where it was; or a batch that cannot be read, and how many records that are."""

    partition: int
    record: Record
    reason: Reason
    records: int = 1


class Log(Protocol):
    """What is asked of the log. Every method raises LogUnavailable if it cannot answer."""

    async def identity(self) -> str:
        """Which log this is: another one if the topic has been deleted and made again. "" if the broker does not say."""

    async def partitions(self) -> set[int]:
        """The partitions that the log has."""

    async def witness(self, partitions: Sequence[int]) -> None:
        """Return if the broker serves the partitions to others: asked past the client that reads them."""

    def shut_out(self) -> str:
        """What keeps the client that reads out of its group; "" while nothing does."""

    async def bounds(self, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        """For each partition the first offset that the log still has, and the one that its next record will get."""

    async def place(self, partition: int, offset: int) -> int:
        """Read on from that offset; gives the number that later chunks carry."""

    async def read_in_vain(self, partition: int) -> int | None:
        """The offset up to which the log was read since the partition was placed, if that gave no record at all."""

    async def commit_group(self, offsets: dict[int, int]) -> None:
        """Tell the consumer group's lag watchers how far the store is."""

    async def send_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        """Write to the dead-letter topic, and return when the broker has them."""
