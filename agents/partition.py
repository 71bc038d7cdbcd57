"""The state of a partition that is assigned to this process."""

from dataclasses import dataclass, field

from agents.fold import PartitionFold
from agents.log import DeadLetter


@dataclass(slots=True, eq=False)
class Partition:
    """A partition assigned to this process."""

    number: int
    fold: PartitionFold | None = None
    placement: int | None = None  # None: takes no chunks and waits to be placed
    placed_at: int = 0  # offset
    letters: list[DeadLetter] = field(default_factory=list)
    moved_s: float = 0.0  # when records were last folded or none were left to fold
    tried_s: float = 0.0  # when it was last placed or checked
