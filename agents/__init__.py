"""Who counts: the tally of envelopes, the fold of a partition, and the Faust app that drives them."""

from agents.fold import FoldResult, PartitionFold
from agents.tally import Record, Tally, tally

__all__ = ["FoldResult", "PartitionFold", "Record", "Tally", "tally"]
