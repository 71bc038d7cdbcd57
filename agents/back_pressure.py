"""Back-pressure: accepts no chunks of a survey while the store does not answer, or while too many bytes wait to be written."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ldpstream.agents.fold import PartitionFold
from ldpstream.agents.log import DeadLetter

MAX_LETTER_BYTES: Final = 2**23  # limit of the dead letters of one survey that wait to be sent
MAX_UNWRITTEN_BYTES: Final = 2**26  # limit of the changed count tables and report keys of one survey that wait to be written
LETTER_BYTES: Final = 400  # approximate memory of a dead letter in bytes, without the record's value


@dataclass(slots=True, eq=False)
class Partition:
    """The state of a partition that is assigned to this process."""

    number: int
    fold: PartitionFold | None = None
    placement: int | None = None  # number of the last seek; with None, chunks are ignored until the next seek
    placed_at: int = 0  # offset of the last seek
    letters: list[DeadLetter] = field(default_factory=list)
    moved_s: float = 0.0  # last time when a record was counted, or none could be counted without a stall
    tried_s: float = 0.0  # last time when the partition was placed, checked by the stall detector or reported as damaged


class BackPressure:
    """Decides whether `Counting` accepts chunks.

    Attributes:
        open: set while `Counting` accepts chunks.
        store_refusal: the reason of the last failed request to the store, until `Counting.step` has read from the store and
            written the due changes without an error; then None.
    """

    def __init__(self, partitions: Mapping[int, Partition]) -> None:
        self._partitions = partitions
        self.open = asyncio.Event()
        self.store_refusal: str | None = None
        self.update()

    def refuse(self, why: str | None) -> None:
        """Sets `store_refusal`, and accepts or refuses chunks accordingly."""
        self.store_refusal = why
        self.update()

    def update(self) -> None:
        unwritten = sum(p.fold.dirty_bytes for p in self._partitions.values() if p.fold is not None)
        letters = [letter for p in self._partitions.values() for letter in p.letters]
        letter_bytes = sum(len(letter.record.value) + LETTER_BYTES for letter in letters)
        if self.store_refusal is None and letter_bytes <= MAX_LETTER_BYTES and unwritten <= MAX_UNWRITTEN_BYTES:
            self.open.set()
        else:
            self.open.clear()
