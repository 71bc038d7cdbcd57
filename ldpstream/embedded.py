"""The whole service in one process: the real counting, schedule and results, with an in-memory log and a manual clock."""

from bisect import bisect_left

from agents.fold import PartitionFold
from agents.tally import Record
from estimators.publishing.publication import Publication
from estimators.publishing.results import MemoryResults
from estimators.publishing.schedule import Publisher, Schedule
from stores.memory_store import MemoryCountStore
from surveys import Reason, Survey


def _appended(record: Record) -> int:
    return record.appended_ms


class MemoryLog:
    """A partitioned log of envelopes with append times, like Kafka's. Appends go to the partitions in turn.

    Args:
        partitions: number of partitions.
        now_ms: the current time, in ms; assign to the attribute to move the clock.
    """

    def __init__(self, partitions: int, now_ms: int) -> None:
        self.partitions: list[list[Record]] = [[] for _ in range(partitions)]
        self.now_ms = now_ms
        self._appended = 0

    def append(self, value: bytes) -> None:
        """Append a record at the current time."""
        partition = self.partitions[self._appended % len(self.partitions)]
        partition.append(Record(len(partition), self.now_ms, value))
        self._appended += 1

    # ---- the methods of estimators.publishing.schedule.LogPosition

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
        log: the log; a `producers.sinks.MemorySink` writes the reports into the log.
        publishers: receive the publications.
    """

    def __init__(self, survey: Survey, log: MemoryLog, publishers: list[Publisher] | None = None) -> None:
        self.log, self.store, self.results = log, MemoryCountStore(survey), MemoryResults()
        self._folds = [PartitionFold(survey, None) for _ in log.partitions]
        self._schedule = Schedule(survey, self.store, log, self.results, publishers or [])

    def count(self) -> None:
        """Count the newly appended records, and commit the counts."""
        for partition, (fold, records) in enumerate(zip(self._folds, self.log.partitions, strict=True)):
            fold.feed(records[fold.next_offset :])
            expected, change = fold.stored_position, fold.changes()
            if change is not None and self.store.commit(partition, expected, change):
                fold.committed(change)

    def estimate(self) -> list[Publication]:
        """Publish every step that has closed by the log's clock."""
        return self._schedule.run(self.log.now_ms)

    def rejected(self) -> dict[Reason, int]:
        """Returns the number of envelopes rejected so far, by reason."""
        return self.store.rejected()
