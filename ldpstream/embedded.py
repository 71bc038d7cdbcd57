"""The whole service in one process: the log in memory, the same fold, schedule and results, on a clock that is set by hand."""

from bisect import bisect_left

from agents.fold import PartitionFold
from agents.tally import Record
from estimators.publishing.publication import Publication
from estimators.publishing.results import MemoryResults
from estimators.publishing.schedule import Publisher, Schedule
from stores.count_store import MemoryCountStore
from surveys import Reason, Survey


def _appended(record: Record) -> int:
    return record.appended_ms


class MemoryLog:
    """A partitioned log of envelopes with append times, as Kafka keeps it; records go round the partitions.

    Args:
        partitions: number of partitions.
        now_ms: the time to begin at; set the attribute to move it.
    """

    def __init__(self, partitions: int, now_ms: int) -> None:
        self.partitions: list[list[Record]] = [[] for _ in range(partitions)]
        self.now_ms = now_ms
        self._appended = 0

    def append(self, value: bytes) -> None:
        """Take a record at the present time."""
        partition = self.partitions[self._appended % len(self.partitions)]
        partition.append(Record(len(partition), self.now_ms, value))
        self._appended += 1

    # ---- what the schedule asks (estimators.publishing.schedule.LogPosition)

    def log_id(self) -> str:
        return ""

    def offsets_at(self, time_ms: int) -> dict[int, int]:
        return {i: bisect_left(records, time_ms, key=_appended) for i, records in enumerate(self.partitions)}

    def earliest_ms(self) -> int | None:
        return min((records[0].appended_ms for records in self.partitions if records), default=None)


class EmbeddedService:
    """Counting and estimating over a `MemoryLog`.

    Args:
        survey: the survey.
        log: the log, into which a `producers.sinks.MemorySink` writes.
        publishers: who is told of publications.
    """

    def __init__(self, survey: Survey, log: MemoryLog, publishers: list[Publisher] | None = None) -> None:
        self.log, self.store, self.results = log, MemoryCountStore(survey), MemoryResults()
        self._folds = [PartitionFold(survey, None) for _ in log.partitions]
        self._schedule = Schedule(survey, self.store, log, self.results, publishers or [])

    def count(self) -> None:
        """Fold whatever has been appended, and commit it."""
        for partition, (fold, records) in enumerate(zip(self._folds, self.log.partitions, strict=True)):
            fold.feed(records[fold.next_offset :])
            expected, change = fold.stored_offset, fold.changes()
            if change is not None and self.store.commit(partition, expected, change):
                fold.committed(change)

    def estimate(self) -> list[Publication]:
        """Publish every step that has closed by the log's time."""
        return self._schedule.run(self.log.now_ms)

    def rejected(self) -> dict[Reason, int]:
        """Envelopes refused so far, by reason."""
        return self.store.rejected()
