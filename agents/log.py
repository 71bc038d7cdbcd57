"""The interface between `agents.counting` and the log."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from ldpstream.agents.tally import Record
from ldpstream.surveys import Reason


class Unread(NamedTuple):
    """The number of refused records, and the reason.

    `why` is the detail of the refusal for the log, without a record's content.
    """

    records: int
    reason: Reason
    why: str = ""


class Chunk(NamedTuple):
    """Records of a partition, from one read.

    Attributes:
        placement: number of the last seek (`place`) before the read.
        sequence: number of chunks read between that seek and this chunk.
        records: at least one, offsets ascending.
        unread: if given, the only item of `records` represents the refused part of a batch.
    """

    partition: int
    placement: int
    sequence: int
    records: Sequence[Record]
    unread: Unread | None = None


class Found(NamedTuple):
    """A record that was found by its append time."""

    offset: int
    appended_ms: int


class CountedLog(Protocol):
    """The log of one survey, for the agent that counts it.

    Each coroutine except `later` raises LogUnavailable if it needs an answer of the broker and gets none. `described`
    and `later` do not need the consumer: a second client asks.
    """

    async def described(self) -> tuple[str, Collection[int]]:
        """Returns the log's id and its partitions.

        The id changes if the topic is deleted and recreated. It is "" if the broker has no topic ids.
        """

    def shut_out(self) -> str:
        """Returns the reason why the consumer is shut out of its group; "" if it is not."""

    async def bounds(self, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Returns for each partition the first remaining offset and the offset after the last record."""

    async def later(self, times_ms: Mapping[int, int]) -> dict[int, Found | None]:
        """Returns for each partition the first record appended at or after the partition's given time; None if there is none.

        Leaves out each partition whose broker does not answer. If the only partition asked for has no answer, raises
        `LogUnavailable`.
        """

    async def place(self, partition: int, offset: int) -> int:
        """Seeks to an offset and returns the number of this seek."""

    async def position_if_nothing_read(self, partition: int) -> int | None:
        """Returns the consumer's position; None if a chunk was read since the last seek, or no seek is valid."""

    async def commit_group(self, offsets: dict[int, int]) -> None:
        """Commits offsets of the consumer group, only for tools that watch the group's lag."""
