"""The counting of `ldpstream serve`: counts the logs of all surveys in a data folder, and deletes expired records."""

import secrets
from collections.abc import Callable, Sequence
from threading import Event
from time import monotonic

import structlog

from ldpstream.agents import metrics
from ldpstream.agents.fold import PartitionFold
from ldpstream.agents.tally import Records
from ldpstream.engines.count_store import StoreDamaged, StoreUnavailable
from ldpstream.engines.folder.data_folder import PARTITION, DataFolder
from ldpstream.engines.folder.folder_log import FolderLog, expire
from ldpstream.engines.folder.folder_store import FolderCountStore
from ldpstream.runtime.clock import ClockJumped
from ldpstream.runtime.process import return_freed_memory
from ldpstream.surveys import Survey

log = structlog.get_logger("ldpstream.counting")

AT_ONCE = 20_000  # records in one commit
PAUSE_S, MOST_PAUSES = 0.2, 10  # with many surveys, a survey waits at most 2 s
RETRY_S, DAMAGED_S = 2.0, 30.0
STALL_S = 300.0  # a round that takes longer is a stall
TIDY_MS, EXPIRED_AT_ONCE = 60_000, 20_000


class LogCounter:
    """Counts the log of one survey, each record once."""

    def __init__(self, survey: Survey, store: FolderCountStore, source: FolderLog) -> None:
        self._survey, self._store, self._log = survey, store, source
        self._fold = PartitionFold(survey, store.load(PARTITION), log_id=source.log_id(), writer=secrets.token_hex(8))

    def count(self) -> None:
        """Counts the records that the log has now. Later records wait for the next call, after the other surveys' turns.

        Raises:
            StoreUnavailable: if the disk refuses a write.
            StoreDamaged: if the log lacks records, or the counts do not belong to it.
        """
        self._commit()  # the changes that an earlier call could not write
        end = self._log.ends()[PARTITION]
        while self._fold.next_offset < end and (found := self._log.read(self._fold.next_offset, AT_ONCE)).offsets:
            keys = found.keys if any(found.keys) else None
            result = self._fold.feed(Records(found.offsets, found.appended_ms, found.values, keys))
            metrics.count(result, 1)
            if result.gap is not None:
                raise StoreDamaged(f"the log of survey {self._survey.name} lacks records from {result.gap[0]} on")
            self._commit()

    def _commit(self) -> None:
        change = self._fold.changes()
        if change is None:
            return
        with metrics.commit_seconds.time():
            committed = self._store.commit(PARTITION, self._fold.stored_position, change)
        if not committed:
            raise StoreDamaged(f"another process has changed the counts of survey {self._survey.name}")
        self._fold.committed(change)


class FolderCounting:
    """Counts the surveys of a data folder in turn.

    Args:
        surveys: returns the present surveys.
        alone: True if there is only one survey. An error that no retry can mend then ends the counting.
        kept_ms: time for which counted records are kept, in ms.
    """

    def __init__(
        self, folder: DataFolder, surveys: Callable[[], Sequence[Survey]], alone: bool, clock: Callable[[], int], kept_ms: int
    ) -> None:
        self._folder, self._surveys, self._alone, self._clock, self._kept_ms = folder, surveys, alone, clock, kept_ms
        self._counters: dict[bytes, LogCounter] = {}
        self._troubles: dict[bytes, tuple[str, float]] = {}  # by survey: why it is not counted, and the time of the next try
        self._began_s: float | None = None  # None between two rounds
        self._tidied_ms = 0

    @property
    def stalled(self) -> set[bytes]:
        """The fingerprints of the surveys whose last counting raised an error; of all surveys, if the counting stalls."""
        began_s = self._began_s
        stalls = began_s is not None and monotonic() - began_s >= STALL_S
        return {survey.fingerprint for survey in self._surveys()} if stalls else set(self._troubles.copy())

    def run(self, stop: Event) -> None:
        while not stop.is_set():
            self.count()
            stop.wait(PAUSE_S * min(max(len(self._counters), 1), MOST_PAUSES))

    def count(self) -> None:
        """Counts the new records of all surveys."""
        self._began_s = monotonic()
        surveys, disk_works = self._surveys(), True
        for gone in (self._counters.keys() | self._troubles.keys()) - {survey.fingerprint for survey in surveys}:
            self._counters.pop(gone, None)
            self._troubles.pop(gone, None)
        for survey in surveys:
            if self._troubles.get(survey.fingerprint, ("", 0.0))[1] > monotonic():
                continue
            try:
                self._count(survey)
                self._troubles.pop(survey.fingerprint, None)
            except StoreUnavailable as error:
                disk_works = False
                self._put_off(survey, str(error), RETRY_S, log.warning)
            except Exception as error:
                if self._alone:
                    raise
                self._counters.pop(survey.fingerprint, None)
                why = str(error) if isinstance(error, StoreDamaged) else type(error).__name__
                self._put_off(survey, why, DAMAGED_S, log.error)
        metrics.partitions.set(len(self._counters))
        metrics.store_available.set(disk_works)
        metrics.surveys.labels("counted").set(len(surveys) - len(self._troubles))
        metrics.surveys.labels("stalled").set(len(self._troubles))
        self._tidy()
        self._began_s = None

    def _count(self, survey: Survey) -> None:
        if (counter := self._counters.get(survey.fingerprint)) is None:
            source = FolderLog(self._folder, survey, self._clock)
            counter = self._counters[survey.fingerprint] = LogCounter(survey, FolderCountStore(self._folder, survey), source)
        counter.count()

    def _put_off(self, survey: Survey, why: str, pause_s: float, tell: Callable[..., object]) -> None:
        if self._troubles.get(survey.fingerprint, ("", 0.0))[0] != why:
            tell("survey not counted", survey=survey.name, error=why)
        self._troubles[survey.fingerprint] = why, monotonic() + pause_s

    def _tidy(self) -> None:
        try:
            now_ms = self._clock()
            if now_ms - self._tidied_ms < TIDY_MS:
                return
            if expire(self._folder, now_ms - self._kept_ms, EXPIRED_AT_ONCE) < EXPIRED_AT_ONCE:
                return_freed_memory()
                self._tidied_ms = now_ms
        except (ClockJumped, StoreUnavailable) as error:
            log.warning("expired records stay", error=str(error))
