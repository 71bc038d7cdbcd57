"""Agents count the reports: `tally` counts envelopes, `fold` counts one partition, and the Faust app drives both.

Every record is counted exactly once, even after a failure or a second delivery. Every rejected envelope gets a reason and
changes no count. `consumer/` reads the topic.
"""

from ldpstream.agents.fold import FoldResult, PartitionFold
from ldpstream.agents.tally import Record, Tally, tally

__all__ = ["FoldResult", "PartitionFold", "Record", "Tally", "tally"]
