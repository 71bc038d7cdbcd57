"""Agents count the reports: the tally of envelopes, the fold of a partition, and the Faust app that drives them.

Every record is counted exactly once, also after a failure or a second delivery. A rejected envelope changes no count and has
a reason. `consumer/` reads the topic.
"""

from agents.fold import FoldResult, PartitionFold
from agents.tally import Record, Tally, tally

__all__ = ["FoldResult", "PartitionFold", "Record", "Tally", "tally"]
