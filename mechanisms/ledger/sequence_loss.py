"""The type of the loss between any two value sequences, and shared functions."""

from collections.abc import Iterator
from dataclasses import dataclass

MAX_T = 2**50
TOLERANCE = 1e-9  # relative difference; a bound is exact if the loss of a pair is this close to the bound


@dataclass(frozen=True, slots=True)
class SequenceLoss:
    """Privacy loss of t reports between the worst two value sequences.

    Attributes:
        value: the loss in nats if `exact`, else a proven upper bound of the loss.
        exact: true if a known pair of sequences reaches `value` (to nine digits).
        witness: a description of the pair that reaches `value`; if not `exact`, of the worst known pair.
        gap: `value` minus the loss of the pair in `witness`, in nats; with fake data `value`. The true loss is in [value - gap,
            value].
    """

    value: float
    exact: bool
    witness: str
    gap: float = 0.0


def between(reached: float, bound: float, witness: str) -> SequenceLoss:
    """Returns the `SequenceLoss` of a loss that is in [reached, bound]."""
    assert bound >= reached * (1 - 1e-6), (reached, bound)
    if bound <= reached * (1 + TOLERANCE):
        return SequenceLoss(max(reached, bound), True, witness)
    return SequenceLoss(bound, False, witness, bound - reached)


def partitions(total: int, parts: int, largest: int | None = None) -> Iterator[tuple[int, ...]]:
    """All ways to write `total` as a sum of at most `parts` positive integers, the largest first."""
    if total == 0:
        yield ()
    elif parts:
        for first in range(min(total, largest or total), 0, -1):
            for rest in partitions(total - first, parts - 1, first):
                yield (first, *rest)
