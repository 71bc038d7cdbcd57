"""The log of one survey in a data folder: one partition, with append times that never decrease.

The machine's clock is the log's clock. If it is set back, records keep the newest append time until the clock has caught up.
If it jumps ahead, the steps up to the new time close, as they would if the time had passed.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from sqlite3 import Connection
from typing import Final, NamedTuple

from ldpstream.stores.data_folder import PARTITION, DataFolder, SurveyPart
from ldpstream.surveys import Survey

READ_BYTES: Final = 8_000_000  # a read ends within `CHUNK` records after this size
CHUNK: Final = 16


class StoredRecords(NamedTuple):
    """Records as columns: offsets, append times in Unix ms, envelopes (empty: a marker), and report keys (or empty)."""

    offsets: Sequence[int] = ()
    appended_ms: Sequence[int] = ()
    values: Sequence[bytes] = ()
    keys: Sequence[bytes] = ()


class FolderLog:
    """The log of a survey. Several threads may share the object.

    Args:
        folder: the data folder.
        survey: the survey.
        now_ms: the machine's clock, in Unix milliseconds.
    """

    def __init__(self, folder: DataFolder, survey: Survey, now_ms: Callable[[], int]) -> None:
        self._part, self._now_ms = SurveyPart(folder, survey), now_ms

    def append(self, db: Connection, records: Sequence[tuple[bytes, bytes]]) -> int:
        """Appends envelopes with their report keys (or empty), in a transaction of the caller's. Call `log_id` before it.

        Returns:
            The records' append time, in Unix milliseconds. It holds once the transaction has ended.
        """
        me = self._part.id
        end, newest_ms = db.execute("SELECT end, newest_ms FROM survey WHERE id = ?", (me,)).fetchone()
        appended_ms = max(newest_ms, self._now_ms())
        rows = ((me, end + i, appended_ms, value, key) for i, (value, key) in enumerate(records))
        db.executemany("INSERT INTO record VALUES (?, ?, ?, ?, ?)", rows)
        db.execute("UPDATE survey SET end = ?, newest_ms = ? WHERE id = ?", (end + len(records), appended_ms, me))
        return int(appended_ms)

    def read(self, offset: int, limit: int) -> StoredRecords:
        """Returns the first records from an offset on, at most `limit`. Their size is bounded, see `READ_BYTES`."""
        found, n_bytes = list[tuple[int, int, bytes, bytes]](), 0
        query = "SELECT place, appended_ms, value, key FROM record WHERE survey = ? AND place >= ? ORDER BY place LIMIT ?"
        with self._part.read() as db, closing(db.execute(query, (self._part.id, offset, limit))) as rows:
            while n_bytes < READ_BYTES and (some := rows.fetchmany(CHUNK)):
                found += some
                n_bytes += sum(len(value) for _, _, value, _ in some)
        return StoredRecords(*zip(*found, strict=True))

    def newest_ms(self) -> int:
        """Returns the last append time, in Unix milliseconds; 0 before the first record."""
        with self._part.read() as db:
            return int(db.execute("SELECT newest_ms FROM survey WHERE id = ?", (self._part.id,)).fetchone()[0])

    # ---- the methods of publishing.schedule.LogPosition

    def log_id(self) -> str:
        return self._part.log_id

    def earliest_ms(self) -> int | None:
        with self._part.read() as db:
            found = db.execute(
                "SELECT appended_ms FROM record WHERE survey = ? ORDER BY place LIMIT 1", (self._part.id,)
            ).fetchone()
        return None if found is None else int(found[0])

    def ends(self) -> dict[int, int]:
        with self._part.read() as db:
            return {PARTITION: int(db.execute("SELECT end FROM survey WHERE id = ?", (self._part.id,)).fetchone()[0])}

    def mark(self, partitions: Collection[int]) -> dict[int, int]:
        with self._part.write() as db:
            return {partition: self.append(db, [(b"", b"")]) for partition in partitions}


def expire(folder: DataFolder, before_ms: int, limit: int) -> int:
    """Deletes counted records that were appended before a time, of all surveys that the folder has served.

    Before the first publication of a survey, its records stay: the schedule begins at the earliest record.

    Args:
        folder: the data folder.
        before_ms: Unix milliseconds.
        limit: the number of records of each survey to look at, the oldest first.

    Returns:
        The number of deleted records.
    """
    with folder.write() as db:
        surveys = db.execute("SELECT survey, next_offset FROM checkpoint NATURAL JOIN progress WHERE part = ?", (PARTITION,))
        deleted = sum(
            db.execute(
                "DELETE FROM record WHERE survey = :survey AND place IN (SELECT place FROM (SELECT place, appended_ms FROM "
                "record WHERE survey = :survey AND place < :counted ORDER BY place LIMIT :limit) "
                "WHERE appended_ms < :before_ms)",
                {"survey": survey, "counted": counted, "before_ms": before_ms, "limit": limit},
            ).rowcount
            for survey, counted in surveys.fetchall()
        )
    if deleted:
        folder.shrink()
    return deleted
