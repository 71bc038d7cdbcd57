"""Agents count the reports: `consumer/` reads the topic, `fold` counts one partition, and `tally` counts a batch of records."""

from ldpstream.agents.fold import PartitionFold
from ldpstream.agents.tally import Record, Tally, tally

__all__ = ["PartitionFold", "Record", "Tally", "tally"]
