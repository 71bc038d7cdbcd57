"""Who counts: the tally of envelopes, the count stores, the fold of a partition, and the Faust app that drives them."""

from agents.fold import FoldResult, PartitionFold
from agents.store import Checkpoint, CountStore, MemoryCountStore, StoreUnavailable
from agents.tally import PaneKey, Record, Tally, tally

__all__ = [
    "Checkpoint", "CountStore", "FoldResult", "MemoryCountStore", "PaneKey", "PartitionFold", "Record", "StoreUnavailable",
    "Tally", "tally",
]  # fmt: skip
