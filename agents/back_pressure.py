"""Back-pressure: accepts no chunks of a survey while the store does not answer, or while too many bytes wait to be written."""

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ldpstream.agents.fold import PartitionFold

MAX_UNWRITTEN_BYTES: Final = 2**26  # limit of the changed count tables and report keys of one survey that wait to be written


@dataclass(slots=True, eq=False)
class Partition:
    """The state of a partition that is assigned to this process."""

    number: int
    fold: PartitionFold | None = None
    placement: int | None = None  # number of the last seek; with None, chunks are ignored until the next seek
    placed_at: int = 0  # offset of the last seek
    moved_s: float = 0.0  # last time when a record was counted, or none could be counted without a stall
    tried_s: float = 0.0  # last time when the partition was placed, checked by the stall detector or reported as damaged
    told_s: float = -math.inf  # last time when rejected envelopes were logged


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
        if self.store_refusal is None and unwritten <= MAX_UNWRITTEN_BYTES:
            self.open.set()
        else:
            self.open.clear()
