"""The log of one survey in a data folder: one partition, with append times that never decrease.

The envelopes of a request are one row, with the offset of the first envelope and the number of envelopes.

If the clock is set back, new records get the newest append time until the clock has caught up.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from sqlite3 import Connection
from typing import Final, NamedTuple

import msgspec

from ldpstream.engines.folder.data_folder import PARTITION, DataFolder, SurveyPart
from ldpstream.surveys import Survey
from ldpstream.surveys.report_key import KeyRoom, batch_keys

READ_BYTES: Final = 8_000_000  # a read ends at most `CHUNK` requests after it has reached this size
CHUNK: Final = 16

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[bytes]).decode


class StoredRecords(NamedTuple):
    """Records as columns: offsets, append times in Unix ms, envelopes (empty for a marker), report keys (empty if none)."""

    offsets: list[int]
    appended_ms: list[int]
    values: list[bytes]
    keys: list[bytes]


class NoRoom(Exception):
    """The log cannot remember more report keys in this step."""


class FolderLog:
    """The log of a survey."""

    def __init__(self, folder: DataFolder, survey: Survey, now_ms: Callable[[], int]) -> None:
        self._part, self._now_ms, self._survey = SurveyPart(folder, survey), now_ms, survey
        self._room: KeyRoom | None = None  # None before the first append with a key, and after a failed one

    def append(self, db: Connection, envelopes: Sequence[bytes], key: bytes) -> int:
        """Appends the envelopes of a request, in the caller's transaction.

        Call `log_id` first: a new survey gets its number in a transaction of its own.

        Args:
            envelopes: 1 or more. A single envelope may be empty, for a marker.
            key: for a single envelope its report key, for several the hash of the request; empty without an idempotency key.

        Returns:
            The envelopes' append time, in Unix milliseconds.

        Raises:
            NoRoom: if there is no room for the keys; nothing is appended, and the transaction can go on.
        """
        me = self._part.id
        end, newest_ms = db.execute("SELECT end, newest_ms FROM survey WHERE id = ?", (me,)).fetchone()
        appended_ms = max(newest_ms, self._now_ms())
        n = len(envelopes)
        if key and not self._take_room(db, n, appended_ms):
            raise NoRoom
        row = (me, end, appended_ms, envelopes[0] if n == 1 else _pack(envelopes), key, n)
        db.execute("INSERT INTO record (survey, place, appended_ms, value, key, n) VALUES (?, ?, ?, ?, ?, ?)", row)
        db.execute("UPDATE survey SET end = ?, newest_ms = ? WHERE id = ?", (end + n, appended_ms, me))
        return int(appended_ms)

    def _take_room(self, db: Connection, count: int, appended_ms: int) -> bool:
        step = self._survey.step_at(appended_ms)
        if self._room is None:
            self._room = KeyRoom(step, self._keys_of(db, step))
        return self._room.take(step, count)

    def _keys_of(self, db: Connection, step: int) -> int:
        """Returns the number of keys appended in a step: those that are remembered, and those of records not counted yet."""
        me = self._part.id
        found = db.execute("SELECT next_offset, keys FROM checkpoint WHERE survey = ? AND part = ?", (me, PARTITION)).fetchone()
        counted, keys = (0, {}) if found is None else (found[0], msgspec.json.decode(found[1]))
        (waiting,) = db.execute(
            "SELECT coalesce(sum(n), 0) FROM record WHERE survey = ? AND place >= ? AND appended_ms >= ? AND key <> x''",
            (me, counted, self._survey.opens_ms(step)),
        ).fetchone()
        return int(keys.get(str(step), 0)) + int(waiting)

    def count_keys_again(self) -> None:
        """Counts the keys again at the next append: call it after a failed transaction."""
        self._room = None

    def read(self, offset: int, limit: int) -> StoredRecords:
        """Returns the first records from an offset on.

        Args:
            offset: the end of an earlier read, or 0.
            limit: number of records after which the reading ends; the result may have more.
        """
        found, n_bytes = StoredRecords([], [], [], []), 0
        query = "SELECT place, appended_ms, value, key, n FROM record WHERE survey = ? AND place >= ? ORDER BY place"
        with self._part.read() as db, closing(db.execute(query, (self._part.id, offset))) as rows:
            while len(found.offsets) < limit and n_bytes < READ_BYTES and (some := rows.fetchmany(CHUNK)):
                for place, appended_ms, value, key, n in some:
                    found.offsets.extend(range(place, place + n))
                    found.appended_ms.extend([appended_ms] * n)
                    found.values.extend([value] if n == 1 else _unpack(value))
                    found.keys.extend(batch_keys(key, n) if key and n > 1 else [key] * n)
                    n_bytes += len(value)
        return found

    def newest_ms(self) -> int:
        """Returns the last append time, in Unix milliseconds; 0 before the first record."""
        with self._part.read() as db:
            return int(db.execute("SELECT newest_ms FROM survey WHERE id = ?", (self._part.id,)).fetchone()[0])

    def log_id(self) -> str:
        return self._part.log_id

    # ---- the methods of publishing.schedule.LogPosition

    def described(self) -> tuple[str, tuple[int]]:
        return self._part.log_id, (PARTITION,)

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
            return {partition: self.append(db, [b""], b"") for partition in partitions}


def expire(folder: DataFolder, before_ms: int, limit: int) -> int:
    """Deletes counted records that were appended before a time, of all surveys in the folder.

    Keeps the records of a survey that has no stored progress.

    Args:
        limit: number of records of each survey to examine, the oldest first. The last request is examined whole, so the
            number can be larger.

    Returns:
        The number of deleted records.
    """
    with folder.write() as db:
        surveys = db.execute("SELECT survey, next_offset FROM checkpoint NATURAL JOIN progress WHERE part = ?", (PARTITION,))
        deleted = sum(
            int(n)
            for survey, counted in surveys.fetchall()
            for (n,) in db.execute(
                "DELETE FROM record WHERE survey = :survey AND place < :counted AND appended_ms < :before_ms AND "
                "place < :limit + (SELECT min(place) FROM record WHERE survey = :survey) RETURNING n",
                {"survey": survey, "counted": counted, "before_ms": before_ms, "limit": limit},
            ).fetchall()
        )
    if deleted:
        folder.shrink()
    return deleted
