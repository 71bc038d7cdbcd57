"""The service's counting and schedule in one process, with a log, counts and results in memory, and a manual clock."""

from collections.abc import Collection

from ldpstream.agents.fold import PartitionFold
from ldpstream.agents.tally import Record
from ldpstream.publishing.publication import Publication
from ldpstream.publishing.results import MemoryResults
from ldpstream.publishing.schedule import Publisher, Schedule
from ldpstream.stores.memory_store import MemoryCountStore
from ldpstream.surveys import Reason, Survey


class MemoryLog:
    """A partitioned log of envelopes with append times, like Kafka's. Appends go to the partitions in turn.

    Args:
        now_ms: the current time, in ms; assign to the attribute to move the clock.
    """

    def __init__(self, partitions: int, now_ms: int) -> None:
        self.partitions: list[list[Record]] = [[] for _ in range(partitions)]
        self.now_ms = now_ms
        self._appended = 0

    def append(self, value: bytes) -> None:
        partition = self.partitions[self._appended % len(self.partitions)]
        partition.append(Record(len(partition), self.now_ms, value))
        self._appended += 1

    # ---- the methods of publishing.schedule.LogPosition

    def described(self) -> tuple[str, range]:
        return "", range(len(self.partitions))

    def ends(self) -> dict[int, int]:
        return {i: len(records) for i, records in enumerate(self.partitions)}

    def mark(self, partitions: Collection[int]) -> dict[int, int]:
        for i in partitions:
            self.partitions[i].append(Record(len(self.partitions[i]), self.now_ms, b""))
        return dict.fromkeys(partitions, self.now_ms)

    def earliest_ms(self) -> int | None:
        return min((records[0].appended_ms for records in self.partitions if records), default=None)


class EmbeddedService:
    """Counting and estimating over a `MemoryLog`."""

    def __init__(self, survey: Survey, log: MemoryLog, publishers: list[Publisher] | None = None) -> None:
        self.log, self.store, self.results = log, MemoryCountStore(survey), MemoryResults()
        self._folds = [PartitionFold(survey, None) for _ in log.partitions]
        self._schedule = Schedule(survey, self.store, log, self.results, publishers or [])

    def count(self) -> None:
        for partition, (fold, records) in enumerate(zip(self._folds, self.log.partitions, strict=True)):
            fold.feed(records[fold.next_offset :])
            expected, change = fold.stored_position, fold.changes()
            if change is not None and self.store.commit(partition, expected, change):
                fold.committed(change)

    def estimate(self) -> list[Publication]:
        """Publishes the steps that are due by the log's clock."""
        made = self._schedule.run(self.log.now_ms)
        while self.log.ends() != self.store.positions():  # the schedule has marked idle partitions
            self.count()
            made += self._schedule.run(self.log.now_ms)
        return made

    def rejected(self) -> dict[Reason, int]:
        """Returns the number of envelopes rejected so far, by reason."""
        return self.store.rejected()
