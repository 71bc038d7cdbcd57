"""Back-pressure: accepts no chunks of a survey while the store does not answer, or while too many bytes wait to be written."""

import asyncio
from collections.abc import Mapping
from typing import Final

from ldpstream.agents.log import DeadLetter
from ldpstream.agents.partition import Partition

MAX_LETTER_BYTES: Final = 2**23  # limit of the dead letters of one survey that wait to be sent
MAX_UNWRITTEN_BYTES: Final = 2**26  # limit of the changed count tables and report keys of one survey that wait to be written
LETTER_BYTES: Final = 400  # approximate memory of a dead letter in bytes, without the record's value


class BackPressure:
    """Decides whether `Counting` accepts chunks.

    Attributes:
        store_refusal: the reason of the last failed request to the store, until `Counting.step` has read from the store and
            written the due changes without an error; then None.
    """

    def __init__(self, partitions: Mapping[int, Partition]) -> None:
        self._partitions = partitions
        self._letter_bytes = 0
        self._open = asyncio.Event()
        self.store_refusal: str | None = None
        self.update()

    @property
    def open(self) -> bool:
        return self._open.is_set()

    async def wait(self) -> None:
        await self._open.wait()

    @property
    def full(self) -> bool:
        unwritten = sum(p.fold.dirty_bytes for p in self._partitions.values() if p.fold is not None)
        return self._letter_bytes > MAX_LETTER_BYTES or unwritten > MAX_UNWRITTEN_BYTES

    def add(self, letter: DeadLetter) -> None:
        self._letter_bytes += _weight(letter)

    def weigh_letters(self) -> None:
        self._letter_bytes = sum(_weight(letter) for p in self._partitions.values() for letter in p.letters)
        self.update()

    def refuse(self, why: str | None) -> None:
        """Sets `store_refusal`, and accepts or refuses chunks accordingly."""
        self.store_refusal = why
        self.update()

    def update(self) -> None:
        if self.store_refusal is None and not self.full:
            self._open.set()
        else:
            self._open.clear()


def _weight(letter: DeadLetter) -> int:
    return len(letter.record.value) + LETTER_BYTES
