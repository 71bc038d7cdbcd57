"""Agents count the reports: `tally` counts envelopes, `fold` counts one partition, and the Faust app drives both.

`consumer/` reads the topic.
"""

from ldpstream.agents.fold import FoldResult, PartitionFold
from ldpstream.agents.tally import Record, Tally, tally

__all__ = ["FoldResult", "PartitionFold", "Record", "Tally", "tally"]
