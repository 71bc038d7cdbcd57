"""Counts the logs of a data folder, and gives the estimator its log, count store and results."""

import secrets
from collections.abc import Callable

from ldpstream.agents import metrics
from ldpstream.agents.fold import PartitionFold
from ldpstream.agents.tally import Records
from ldpstream.publishing.folder_results import FolderResults
from ldpstream.publishing.schedule import LogPosition
from ldpstream.publishing.stored import StoredReader
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.process import return_compiler, return_freed_memory
from ldpstream.runtime.settings import KEPT_MS
from ldpstream.stores.count_store import StoreDamaged, StoreUnavailable
from ldpstream.stores.data_folder import PARTITION, DataFolder
from ldpstream.stores.folder_log import FolderLog, expire
from ldpstream.stores.folder_store import FolderCountStore
from ldpstream.surveys import Survey

AT_ONCE = 20_000  # records in one commit
TIDY_MS, EXPIRED_AT_ONCE = 60_000, 20_000


class FolderEngine:
    """The engine of `publishing.engine.Engine` on one machine.

    Args:
        check: checks that a survey does not change an open survey.
        kept_ms: time for which counted records are kept, in ms.
    """

    def __init__(
        self, folder: DataFolder, check: Callable[[Survey], None], clock: Callable[[], int] = now_ms, kept_ms: int = KEPT_MS
    ) -> None:
        self._folder, self._check, self._clock, self._kept_ms = folder, check, clock, kept_ms
        self._counters: dict[bytes, Counter] = {}
        self._tidied_ms = 0

    def count_store(self, survey: Survey) -> FolderCountStore:
        return FolderCountStore(self._folder, survey)

    def results(self, survey: Survey, reader: StoredReader) -> FolderResults:
        return FolderResults(self._folder, survey, reader)

    def check(self, survey: Survey) -> None:
        self._check(survey)

    def open(self, survey: Survey, reader: StoredReader) -> tuple[LogPosition, None]:
        self._check(survey)
        position = FolderLog(self._folder, survey, self._clock)
        self._counters[survey.fingerprint] = Counter(survey, self.count_store(survey), position)
        metrics.partitions.set(len(self._counters))
        metrics.store_available.set(1)
        return position, None

    def count(self, survey: Survey, now_ms: int) -> None:
        try:
            self._counters[survey.fingerprint].count(now_ms)
            self._tidy(now_ms)
        except StoreUnavailable:
            metrics.store_available.set(0)
            raise
        metrics.store_available.set(1)

    def _tidy(self, now_ms: int) -> None:
        if (
            now_ms - self._tidied_ms >= TIDY_MS
            and expire(self._folder, now_ms - self._kept_ms, EXPIRED_AT_ONCE) < EXPIRED_AT_ONCE
        ):
            return_freed_memory()
            return_compiler()
            self._tidied_ms = now_ms

    def close(self) -> None:
        """Has no effect: the process closes the folder."""


class Counter:
    """Counts the log of one survey, each record once."""

    def __init__(self, survey: Survey, store: FolderCountStore, source: FolderLog) -> None:
        self._survey, self._store, self._log = survey, store, source
        self._fold = PartitionFold(survey, store.load(PARTITION), log_id=source.log_id(), writer=secrets.token_hex(8))

    def count(self, now_ms: int) -> None:
        """Counts the new records. If a step has closed and the log has no later record, appends a marker and counts it.

        Raises:
            StoreUnavailable: if the disk refuses a write.
            StoreDamaged: if the log lacks records, or the counts do not belong to it.
        """
        self._count()
        if self._fold.stored_newest_ms < self._closed_ms(now_ms):
            self._log.mark([PARTITION])
            self._count()

    def _closed_ms(self, now_ms: int) -> int:
        survey = self._survey
        step = survey.step_at(now_ms) - 1 - survey.lateness_steps
        if survey.n_steps is not None:
            step = min(step, survey.n_steps - 1)
        return survey.closes_ms(step) if step >= 0 else 0

    def _count(self) -> None:
        while (found := self._log.read(self._fold.next_offset, AT_ONCE)).offsets:
            all_records = Records(found.offsets, found.appended_ms, found.values, found.keys if any(found.keys) else None)
            for records in all_records.by_step(self._survey):
                result = self._fold.feed(records)
                metrics.count(result, 1)
                if result.gap is not None:
                    raise StoreDamaged(f"the log of survey {self._survey.name} lacks records from {result.gap[0]} on")
            self._commit()
        self._commit()  # writes the changes that an earlier call could not write

    def _commit(self) -> None:
        change = self._fold.changes()
        if change is None:
            return
        with metrics.commit_seconds.time():
            committed = self._store.commit(PARTITION, self._fold.stored_position, change)
        if not committed:
            raise StoreDamaged(f"another process has changed the counts of survey {self._survey.name}")
        self._fold.committed(change)
