"""Random lists of faults on one machine (`tests.faults.folder`), with mutants that the lists must find."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from sqlite3 import Connection
from typing import Any

import pytest

from ldpstream.agents.fold import PartitionFold
from ldpstream.engines.checkpoint import MAX_MS, Checkpoint, Missing, missing_from_json, missing_to_json
from ldpstream.engines.folder import backup
from ldpstream.engines.folder.data_folder import DataFolder
from ldpstream.engines.folder.folder_log import FolderLog
from ldpstream.engines.folder.folder_results import FolderResults
from ldpstream.engines.folder.folder_store import FolderCountStore
from ldpstream.engines.folder.gateway_logs import FolderLogs
from ldpstream.engines.gateway_log import Outcome
from ldpstream.services.engine import FolderEngine
from tests.conftest import Figures

from . import folder as lists
from .folder import fails, replay

LISTS = int(os.environ.get("LDPSTREAM_FOLDER_LISTS", "150"))


def test_random_lists_lose_and_double_nothing(figures: Figures) -> None:
    total: Counter[str] = Counter()
    for seed in range(LISTS):
        total.update(replay(seed))
    figures["random lists of faults, one machine"] = total | Counter(lists=LISTS)
    assert total["restarts"] > LISTS
    assert (
        min(
            total[name]
            for name in ("duplicates", "refused by the disk", "answered by 202", "publications", "steps that lack reports")
        )
        > 0
    )


# ---- faults in the code, each of which a list must find


def answers_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """The gateway answers 202 even if the transaction fails or the process dies in it."""

    def append(self: Any, batch: Sequence[Any]) -> tuple[Outcome, list[int | None]]:
        try:
            return honest(self, batch)
        except BaseException:
            return Outcome.APPENDED, [self._now_ms()] * len(batch)

    honest = FolderLogs._append
    patch.setattr(FolderLogs, "_append", append)


def commits_the_counts_apart_from_the_offset(patch: pytest.MonkeyPatch) -> None:
    """The tables and the offset are two transactions."""

    def commit(self: Any, partition: int, expected: tuple[int, str] | None, change: Checkpoint) -> bool:
        with self._part.write() as db:
            self._write_panes(db, partition, change.panes)
        return bool(honest(self, partition, expected, change))

    honest = FolderCountStore.commit
    patch.setattr(FolderCountStore, "commit", commit)


def forgets_the_report_keys(patch: pytest.MonkeyPatch) -> None:
    """A restarted process does not know which keys it has counted."""

    def load(self: Any, partition: int) -> Checkpoint | None:
        loaded = honest(self, partition)
        return None if loaded is None else replace(loaded, keys={}, n_keys={})

    honest = FolderCountStore.load
    patch.setattr(FolderCountStore, "load", load)


def lets_append_times_go_back(patch: pytest.MonkeyPatch) -> None:
    """The log stamps records with the clock as it is, also after it was set back."""

    def append(self: Any, db: Connection, envelopes: Sequence[bytes], key: bytes) -> int:
        db.execute("UPDATE survey SET newest_ms = 0 WHERE id = ?", (self._part.id,))
        return int(honest(self, db, envelopes, key))

    honest = FolderLog.append
    patch.setattr(FolderLog, "append", append)


def expires_uncounted_records(patch: pytest.MonkeyPatch) -> None:
    """Retention does not ask whether a record is counted."""

    def expire(folder: DataFolder, before_ms: int, limit: int) -> int:
        with folder.write() as db:
            return db.execute("DELETE FROM record WHERE appended_ms < ?", (before_ms,)).rowcount

    patch.setattr(lists, "expire", expire)


def saves_the_progress_before_the_publications(patch: pytest.MonkeyPatch) -> None:
    """The progress and the publications are two transactions."""

    def save(self: Any, rows: Any, before: Any, progress: Any, filters: Any, kept_from: int) -> bool:
        if not honest(self, [], before, progress, filters, kept_from):
            return False
        return bool(honest(self, rows, progress, progress, {}, kept_from))

    honest = FolderResults.save
    patch.setattr(FolderResults, "save", save)


def publishes_what_is_not_counted_yet(patch: pytest.MonkeyPatch) -> None:
    """After a pause, steps past their deadline are published incomplete before the marker is counted."""
    patch.setattr(FolderEngine, "deadline_steps", 1)


def leaves_what_the_killed_process_began(patch: pytest.MonkeyPatch) -> None:
    """A transaction that failed is committed by the next one."""

    @contextmanager
    def write(self: Any) -> Any:
        if not self._writer.in_transaction:
            self._writer.execute("BEGIN IMMEDIATE")
        yield self._writer
        self._writer.execute("COMMIT")

    patch.setattr(DataFolder, "write", write)


def copies_without_a_note(patch: pytest.MonkeyPatch) -> None:
    """A restored service takes the reports of its copy for all reports."""
    patch.setattr(backup, "_note_missing", lambda copy: None)


def ends_the_note_at_a_record_of_the_copy(patch: pytest.MonkeyPatch) -> None:
    """The first uncounted record of the copy bounds the loss, not the first record after the restore."""

    def note(copy: Connection) -> None:
        honest(copy)
        for survey, place, text in copy.execute("SELECT survey, next_offset, missing FROM checkpoint").fetchall():
            missing = missing_from_json(text)
            assert missing is not None
            said = missing_to_json(missing._replace(below_offset=place))
            copy.execute("UPDATE checkpoint SET missing = ? WHERE survey = ?", (said, survey))

    honest = backup._note_missing
    patch.setattr(backup, "_note_missing", note)


def bounds_a_loss_only_at_the_beginning_of_a_batch(patch: pytest.MonkeyPatch) -> None:
    """A loss stays open if records of the copy and of the restored service are counted together."""

    def advance(self: Any, times: Sequence[int]) -> None:
        later = self._missing is not None and self._missing.below_offset > self.next_offset
        missing = self._missing
        honest(self, times)
        if later:
            self._missing = missing

    honest = PartitionFold._advance
    patch.setattr(PartitionFold, "_advance", advance)


def takes_a_survey_that_the_copy_lacks_for_whole(patch: pytest.MonkeyPatch) -> None:
    """A survey that was added after the copy begins anew, as if no report had been received."""

    def add(self: Any, db: Connection, survey: Any) -> tuple[int, str]:
        added = honest(self, db, survey)
        db.execute("DELETE FROM checkpoint WHERE survey = ?", added[:1])
        return added

    honest = DataFolder._add
    patch.setattr(DataFolder, "_add", add)


def ends_the_loss_of_a_survey_that_the_copy_lacks_at_its_first_record(patch: pytest.MonkeyPatch) -> None:
    """Steps that began after the restore are incomplete, too."""

    def add(self: Any, db: Connection, survey: Any) -> tuple[int, str]:
        added = honest(self, db, survey)
        db.execute("UPDATE checkpoint SET missing = ? WHERE survey = ?", (missing_to_json(Missing(0, MAX_MS, 0)), added[0]))
        return added

    honest = DataFolder._add
    patch.setattr(DataFolder, "_add", add)


MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    answers_before_the_commit, commits_the_counts_apart_from_the_offset, forgets_the_report_keys, lets_append_times_go_back,
    expires_uncounted_records, saves_the_progress_before_the_publications, publishes_what_is_not_counted_yet,
    leaves_what_the_killed_process_began, copies_without_a_note, ends_the_note_at_a_record_of_the_copy,
    bounds_a_loss_only_at_the_beginning_of_a_batch, takes_a_survey_that_the_copy_lacks_for_whole,
    ends_the_loss_of_a_survey_that_the_copy_lacks_at_its_first_record,
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_lists_find_a_mutant(mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    assert any(fails(seed) for seed in range(LISTS))
