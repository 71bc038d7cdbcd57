"""The type of the loss between any two value sequences."""

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
