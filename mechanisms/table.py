"""The count table."""

from __future__ import annotations

from dataclasses import dataclass

from ldpstream.mechanisms.arguments import IntArray
from ldpstream.mechanisms.arrays import np


@dataclass(frozen=True, slots=True, eq=False)  # `__eq__` below compares arrays, so tables have no hash
class CountTable:
    """Additive counts of the reports of one mechanism.

    ``+`` adds tables of the same mechanism and raises ValueError for tables of different mechanisms.

    Args:
        mechanism: signature of the mechanism of these counts (`Mechanism.signature`).
        n: number of reports counted, at least 0.
        counts: int64, of the mechanism's `table_shape`: reports per symbol (GRR and sets), ones per bit (unary encodings and
            subsets), reports per hash function and symbol (local hashing), reports per cell (Square Wave, location).
    """

    mechanism: str
    n: int
    counts: IntArray

    def __add__(self, other: CountTable) -> CountTable:
        if not isinstance(other, CountTable):
            return NotImplemented
        if other.mechanism != self.mechanism:
            raise ValueError(f"count tables of different mechanisms cannot be added: {self.mechanism} and {other.mechanism}")
        return CountTable(self.mechanism, self.n + other.n, self.counts + other.counts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CountTable):
            return NotImplemented
        return (self.mechanism, self.n) == (other.mechanism, other.n) and np.array_equal(self.counts, other.counts)

    def to_bytes(self) -> bytes:
        """n and the counts as little-endian int64, the format of a table in the count store."""
        return np.concatenate(([self.n], self.counts.ravel())).astype("<i8").tobytes()
