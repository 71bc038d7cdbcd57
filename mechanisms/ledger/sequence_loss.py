"""The type of the loss between any two value sequences, and partitions of reports."""

from collections.abc import Iterator
from dataclasses import dataclass

MAX_T = 2**50


@dataclass(frozen=True, slots=True)
class SequenceLoss:
    """Privacy loss of t reports between the worst two value sequences.

    Attributes:
        value: the loss in nats if `exact`, else a proven upper bound of the loss.
    """

    value: float
    exact: bool


def partitions(total: int, parts: int, largest: int) -> Iterator[tuple[int, ...]]:
    """All ways to write `total` as a sum of at most `parts` integers from 1 to `largest`, in descending order."""
    if total == 0:
        yield ()
    elif parts:
        for first in range(min(total, largest), 0, -1):
            for rest in partitions(total - first, parts - 1, first):
                yield (first, *rest)
