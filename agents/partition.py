"""The state of a partition that is assigned to this process."""

from dataclasses import dataclass, field

from ldpstream.agents.fold import PartitionFold
from ldpstream.agents.log import DeadLetter


@dataclass(slots=True, eq=False)
class Partition:
    number: int
    fold: PartitionFold | None = None
    placement: int | None = None  # number of the last seek; with None, chunks are ignored until the next seek
    placed_at: int = 0  # offset of the last seek
    letters: list[DeadLetter] = field(default_factory=list)
    moved_s: float = 0.0  # last time when a record was counted, or none could be counted without a stall
    tried_s: float = 0.0  # last time when the partition was placed, checked by the stall detector or reported as damaged
