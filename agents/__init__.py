"""Agents count the reports: the tally of envelopes, the count stores, the fold of a partition, and the Faust app."""

from agents.fold import FoldResult, PartitionFold
from agents.tally import Record, Tally, tally

__all__ = ["FoldResult", "PartitionFold", "Record", "Tally", "tally"]
