"""Moves the data of `ldpstream serve` to Kafka and Redis: counts, report keys, and all results.

The folder counts its whole log first, so no report depends on the log any more. Kafka's log begins empty:

- **Records are not copied.** Kafka would give them new append times (LogAppendTime), and agents judge lateness by these times.
- **All report keys go to partition 0.** Its first record, a marker, is deleted, so the partition is older than all others.
  Gateways therefore send every request with a key, for a step that is open at the move, to partition 0
  (`engines.kafka.partitions`).
- **If Redis loses everything**, agents find a log that begins after offset 0, and note missing records.
- **The clock.** If the folder's last append time is later than the clock of Kafka or of this machine, move
  refuses.
- **The topic of estimates** is filled by the estimator from the results (`copies.REFILLING`).

A move that was killed can run again.
"""

import math
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ldpstream.engines.checkpoint import Checkpoint
from ldpstream.engines.folder.data_folder import FILE, PARTITION, DataFolder, FolderError, SurveyPart
from ldpstream.engines.folder.folder_log import FolderLog
from ldpstream.engines.folder.folder_results import FolderResults
from ldpstream.engines.folder.folder_store import FolderCountStore
from ldpstream.engines.kafka.log_position import KafkaLogPosition, LogClient
from ldpstream.engines.kafka.redis_connection import Client, connect
from ldpstream.engines.kafka.redis_results import RedisResults
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.engines.kafka.topic_keeper import write_kept
from ldpstream.engines.kafka.topics import ensure_topics
from ldpstream.publishing.copies import REFILLING
from ldpstream.publishing.progress import begun
from ldpstream.publishing.results import KeptResults
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.settings import Settings
from ldpstream.services.counting import LogCounter
from ldpstream.surveys import Survey
from ldpstream.surveys.errors import UserError
from ldpstream.surveys.life.keeper import Kept, kept_survey

AT_ONCE = 200  # publications in one write


class MoveRefused(UserError):
    """Kafka or Redis holds data that this folder did not write, or a clock is behind."""


@dataclass(frozen=True)
class Moved:
    survey: str
    open_tables: int
    report_keys: int
    publications: int


def move(data: Path, settings: Settings) -> list[Moved]:
    """Moves all surveys of a data folder. Afterwards `serve` refuses the folder.

    Args:
        data: the data folder; no process may use it.

    Raises:
        FolderError: if the folder has no data, is in use, or was moved before.
        MoveRefused: if Kafka or Redis holds data that this folder did not write, or a clock is behind the last append time.
        UserError: if Kafka or Redis does not answer, or refuses us.
    """
    if not (data / FILE).exists():
        raise FolderError(f"{data}: holds no data of ldpstream")
    with ExitStack() as opened:
        folder = opened.enter_context(closing(DataFolder(data)))
        if folder.moved() == "moved":
            raise FolderError(f"{folder.file}: the data were moved before; run the services")
        surveys = list(_surveys(folder))
        if not surveys:
            raise FolderError(f"{folder.file}: holds no survey")
        client = opened.enter_context(closing(connect(settings)))
        for survey, _ in surveys:
            ensure_topics(settings, survey)
        log_client = opened.enter_context(closing(LogClient(settings)))
        moves = [_Move(*one, folder, settings, client, log_client) for one in surveys]
        for one in moves:
            one.check()
        for one in moves:
            one.begin()
        done = [one.copy() for one in moves]
        with folder.write() as db:
            db.execute("UPDATE move SET done = 1")
        return done


def _surveys(folder: DataFolder) -> Iterator[tuple[Survey, Kept]]:
    with folder.read() as db:
        found = db.execute("SELECT fingerprint, toml FROM kept ORDER BY name").fetchall()
    for kept in map(Kept._make, found):
        yield kept_survey(str(folder.file), kept), kept


class _Move:
    def __init__(
        self, survey: Survey, kept: Kept, folder: DataFolder, settings: Settings, client: Client,
        log_client: LogClient,
    ) -> None:  # fmt: skip
        self._kept = kept
        self._survey, self._part, self._settings = survey, SurveyPart(folder, survey), settings
        self._log_client, self._from = log_client, FolderLog(folder, survey, now_ms)
        self._log = KafkaLogPosition(survey, log_client)
        self._store, self._to = (
            RedisCountStore(survey, client),
            KeptResults(survey, RedisResults(survey, client)),
        )
        self._counts, self._results = (
            FolderCountStore(folder, survey),
            KeptResults(survey, FolderResults(folder, survey)),
        )
        self._topic_id = self._log.described()[0]
        self._writer = f"move-{self._part.log_id}"  # no other folder writes under this name

    def check(self) -> None:
        where, name = f"Redis at {self._settings.redis_url()}", self._survey.name
        if any((head.writer, head.log_id) != (self._writer, self._topic_id) for head in self._store.heads().values()):
            raise MoveRefused(f"{where} holds counts of survey {name} that this folder did not write")
        saved, ours = self._to.progress(), self._results.progress()
        if saved is not None and (ours is None or saved != msgspec.structs.replace(ours, topic_end=REFILLING)):
            raise MoveRefused(f"{where} holds estimates of survey {name} that this folder did not write")
        if not self._begun() and any(self._log.ends().values()):
            topic = self._survey.reports_topic
            raise MoveRefused(f"Kafka at {self._settings.kafka}: topic {topic} holds records that this folder did not write")
        self._refuse_if_ahead("this machine's clock", now_ms())
        self._refuse_if_ahead("Kafka's clock", write_kept(self._settings, self._survey, self._kept))

    def _refuse_if_ahead(self, clock: str, at_ms: int) -> None:
        if (ahead_ms := self._from.newest_ms() - at_ms) > 0:  # the newest record need not be counted yet
            raise MoveRefused(
                f"{self._part.file}: survey {self._survey.name}: the last append time is {math.ceil(ahead_ms / 1000)} s "
                f"ahead of {clock}; wait for this time, then run move again"
            )

    def _begun(self) -> bool:
        with self._part.read() as db:
            found = db.execute("SELECT topic_id FROM move WHERE survey = ?", (self._part.id,)).fetchone()
        return bool(found == (self._topic_id,))

    def begin(self) -> None:
        LogCounter(self._survey, self._counts, self._from).count()
        if self._results.progress() is None and (begin_ms := self._from.earliest_ms()) is not None:
            self._results.save([], None, begun(self._survey, begin_ms))
        with self._part.write() as db:
            db.execute("REPLACE INTO move VALUES (?, ?, 0)", (self._part.id, self._topic_id))

    def copy(self) -> Moved:
        counted = self._counts.load(PARTITION)
        if counted is not None:
            self._copy_counts(replace(self._counts.snapshot()[PARTITION], keys=counted.keys))
        n_keys = 0 if counted is None else sum(counted.n_keys.values())
        return Moved(self._survey.name, 0 if counted is None else len(counted.panes), n_keys, self._copy_results())

    def _copy_counts(self, counted: Checkpoint) -> None:
        if (written := self._store.heads().get(PARTITION)) is None:
            written = self._write_counts(counted)
        self._store.prune(counted.pruned_below, {PARTITION: written})

    def _write_counts(self, counted: Checkpoint) -> Checkpoint:
        self._refuse_if_ahead("Kafka's clock", self._log.mark([PARTITION])[PARTITION])
        # deletes only the first marker: after a killed call, gateways may have written reports
        self._log_client.delete_records(self._survey.reports_topic, PARTITION, 1)
        missing = None if counted.missing is None else counted.missing._replace(below_offset=1)  # Kafka's offsets
        change = replace(counted, next_offset=1, log_id=self._topic_id, missing=missing, writer=self._writer, pruned_below=0)
        if not self._store.commit(PARTITION, None, change):
            raise MoveRefused(f"Redis at {self._settings.redis_url()}: another process counts survey {self._survey.name}")
        return change

    def _copy_results(self) -> int:
        progress = self._results.progress()
        if progress is None:
            return 0
        history, before = self._results.history(), self._to.progress()
        after, filters = msgspec.structs.replace(progress, topic_end=REFILLING), self._results.filters()
        for first in range(0, max(1, len(history)), AT_ONCE):
            if not self._to.save(history[first : first + AT_ONCE], before, after, filters):
                raise MoveRefused(
                    f"Redis at {self._settings.redis_url()}: another process estimates survey {self._survey.name}"
                )
            before = after
        return len(history)
