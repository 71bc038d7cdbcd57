"""Prometheus metrics of an agent.

The counters include work that is repeated after a fault.
"""

from prometheus_client import Counter, Gauge, Histogram

from ldpstream.agents.fold import FoldResult
from ldpstream.surveys.envelope import REASONS

records = Counter(
    "ldpstream_records",
    "Records processed: counted, rejected, duplicates, and records without a value, such as transaction markers",
)
reports = Counter("ldpstream_reports", "Reports counted")
rejected = Counter("ldpstream_rejected", "Envelopes rejected", ["reason"])
for _reason in (*REASONS, "unreadable batch", "malformed key"):
    rejected.labels(_reason)  # starts the series at zero, because a rate needs a sample before the first rejection
redelivered = Counter("ldpstream_redelivered", "Envelopes delivered again and skipped")
duplicates = Counter("ldpstream_duplicates", "Records not counted again, because their report key was counted before")
keys_not_remembered = Counter(
    "ldpstream_keys_not_remembered", "Records counted whose report key was not remembered, because the step has too many keys"
)
gaps = Counter("ldpstream_gaps", "Number of deliveries with missing envelopes, which were fetched again")
missing_offsets = Counter("ldpstream_missing_offsets", "Offsets whose record the log no longer had")
new_logs = Counter("ldpstream_new_logs", "Partitions whose topic had been deleted and recreated")
refused_commits = Counter(
    "ldpstream_refused_commits", "Commits refused because the stored checkpoint had changed: by another agent, or by a loss"
)
store_losses = Counter(
    "ldpstream_store_losses", "Partitions loaded again because the count store lost or replaced their counts"
)
commit_seconds = Histogram("ldpstream_commit_seconds", "Time to write the changes of one partition to the count store")
partitions = Gauge("ldpstream_partitions", "Partitions that are assigned to this agent")
surveys = Gauge(
    "ldpstream_agent_surveys", "Surveys of this agent, by state: counted, stalled, or waiting until they can be used", ["state"]
)
store_available = Gauge("ldpstream_store_available", "1 while the count store answers, else 0")


def count(result: FoldResult, each: int) -> None:
    """Counts the records of a chunk.

    Args:
        each: number of records that each rejection represents.
    """
    records.inc(result.records)
    reports.inc(result.reports)
    redelivered.inc(result.redelivered)
    duplicates.inc(result.duplicates)
    keys_not_remembered.inc(result.not_remembered)
    for _, reason in result.rejected:
        rejected.labels(reason).inc(each)
