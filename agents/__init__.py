"""Agents count the reports: `consumer/` reads the topic, `fold` counts one partition, and `tally` counts a batch of records."""

from ldpstream.agents.fold import FoldResult, PartitionFold
from ldpstream.agents.tally import Record, Tally, tally

__all__ = ["FoldResult", "PartitionFold", "Record", "Tally", "tally"]
