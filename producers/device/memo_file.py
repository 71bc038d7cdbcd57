"""A device's memory: one SQLite file, safe against restarts, crashes and parallel processes.

Each operation on the file is one immediate transaction, so processes take turns. A transaction's writes are on the disk before
the transaction ends: SQLite uses a rollback journal, ``synchronous=EXTRA`` and, where the system has it, ``fullfsync``. The
removal of the journal is the commit. EXTRA also syncs this removal; FULL does not. A write-ahead log would sync less often, but
the log's two extra files are easily lost or left out of a copy.

    survey       the fingerprint of the survey that the device answers
    enrolment    for every attribute: the level, whether the device answers, the hash function, the fake value, the phase; the
                 number of distinct steps reported (`reports`) and the latest step whose envelope was dropped (`forgotten`)
    memo         for every attribute and memo key: the memo, never changed, and the number of steps reported from it
    sent         the envelopes of the last steps, each with its idempotency key until the envelope is settled; every reported
                 step is in this table or is at most `forgotten`

A connection lasts for one transaction, so several threads may use a `Device` and a fork inherits no connection. Our code opens
an existing file only through SQLite: on POSIX, closing a second descriptor would drop SQLite's locks.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

FORMAT = 3  # format of the file (SQLite's user_version); 0: no enrolment
BUSY_S = 60.0  # longest wait for another process's transaction

_TABLES = (
    "CREATE TABLE survey (fingerprint BLOB NOT NULL)",
    "CREATE TABLE enrolment (attribute INTEGER PRIMARY KEY, level INTEGER NOT NULL, answers INTEGER NOT NULL,"
    " function INTEGER NOT NULL, fake INTEGER NOT NULL, phase INTEGER NOT NULL,"
    " reports INTEGER NOT NULL DEFAULT 0, forgotten INTEGER NOT NULL DEFAULT -1)",
    "CREATE TABLE memo (attribute INTEGER, key INTEGER, memo BLOB NOT NULL, reports INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY (attribute, key)) WITHOUT ROWID",
    "CREATE TABLE sent (attribute INTEGER, step INTEGER, envelope BLOB NOT NULL, key TEXT,"
    " PRIMARY KEY (attribute, step)) WITHOUT ROWID",
)


class DeviceError(Exception):
    """The device's file cannot be used. The message is one line with the file and the reason, never the file's contents."""


@dataclass(frozen=True, slots=True, repr=False)
class Enrolment:
    """A device's permanent choices for an attribute.

    Attributes:
        level: index of the level.
        answers: true if the device answers the attribute.
        function: number of the device's hash function, 0 for mechanisms without one.
        fake: the value that the device always reports in place of the person's value (rs+fd); -1 for none.
        phase: φ, in 0 … w-1: the device reports only at steps t with t mod w = φ (`OneTime.spaced`); 0 for w = 1.
    """

    level: int
    answers: bool
    function: int
    fake: int
    phase: int


class MemoFile:
    """A device's file, created if missing. Only the file's owner may read and write the file.

    Args:
        path: the file; its folder must exist.

    Raises:
        DeviceError: if the file cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        try:
            with suppress(FileExistsError):
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            self._path.chmod(0o600)
        except OSError as error:
            raise DeviceError(f"{self._path}: cannot be created: {error.strerror}") from None

    @contextmanager
    def transaction(self) -> Iterator["Transaction"]:
        """One immediate transaction. All its writes are on the disk when the transaction ends, or are undone if an exception
        occurs.

        Raises:
            DeviceError: if the file is missing, is no SQLite database, is of another format, or cannot be written.
        """
        connection = None
        try:
            connection = sqlite3.connect(f"{self._path.as_uri()}?mode=rw", uri=True, timeout=BUSY_S, isolation_level=None)
            for pragma in ("synchronous=EXTRA", "fullfsync=ON", "secure_delete=ON"):
                connection.execute(f"PRAGMA {pragma}")
            connection.execute("BEGIN IMMEDIATE")
            transaction = Transaction(connection)
            if transaction.format not in (0, FORMAT):
                raise DeviceError(f"{self._path}: has format {transaction.format}, this program needs format {FORMAT}")
            yield transaction
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise DeviceError(f"{self._path}: {error}") from None
        finally:
            if connection is not None:
                connection.close()  # rolls back if not committed


class Transaction:
    """The device's memory during one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self.format: int = connection.execute("PRAGMA user_version").fetchone()[0]

    # ---- enrolment

    def enroll(self, fingerprint: bytes, choices: list[Enrolment]) -> None:
        """Creates the tables and stores the device's choices, one per attribute."""
        for table in _TABLES:
            self._db.execute(table)
        self._db.execute("INSERT INTO survey VALUES (?)", (fingerprint,))
        self._db.executemany(
            "INSERT INTO enrolment (attribute, level, answers, function, fake, phase) VALUES (?, ?, ?, ?, ?, ?)",
            [(attribute, c.level, c.answers, c.function, c.fake, c.phase) for attribute, c in enumerate(choices)],
        )
        self._db.execute(f"PRAGMA user_version = {FORMAT}")

    def fingerprint(self) -> bytes | None:
        """Returns the survey's fingerprint, or None if the device has not enrolled."""
        if self.format == 0:
            return None
        return bytes(self._db.execute("SELECT fingerprint FROM survey").fetchone()[0])

    def enrolment(self, attribute: int) -> Enrolment:
        """Returns the device's choices for the attribute."""
        read = "SELECT level, answers, function, fake, phase FROM enrolment WHERE attribute = ?"
        level, answers, function, fake, phase = self._db.execute(read, (attribute,)).fetchone()
        return Enrolment(level, bool(answers), function, fake, phase)

    def forget(self) -> None:
        """Erases everything. SQLite overwrites the freed pages with zeros (``secure_delete``)."""
        for table in ("survey", "enrolment", "memo", "sent"):
            self._db.execute(f"DROP TABLE {table}")
        self._db.execute("PRAGMA user_version = 0")

    # ---- memos

    def memo(self, attribute: int, key: int, draw: Callable[[], bytes]) -> bytes:
        """Returns the memo of a key; draws and stores a memo if the key has none. The primary key forbids a second memo."""
        read = "SELECT memo FROM memo WHERE attribute = ? AND key = ?"
        if self._db.execute(read, (attribute, key)).fetchone() is None:
            insert = "INSERT INTO memo (attribute, key, memo) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
            self._db.execute(insert, (attribute, key, draw()))
        return bytes(self._db.execute(read, (attribute, key)).fetchone()[0])

    # ---- envelopes

    def sent(self, attribute: int, step: int) -> bytes | None:
        """Returns the step's envelope; None if the step has no envelope or the envelope was dropped."""
        row = self._db.execute("SELECT envelope FROM sent WHERE attribute = ? AND step = ?", (attribute, step)).fetchone()
        return None if row is None else bytes(row[0])

    def forgotten(self, attribute: int) -> int:
        """Returns the latest step whose envelope was dropped; -1 if there is none."""
        return int(self._db.execute("SELECT forgotten FROM enrolment WHERE attribute = ?", (attribute,)).fetchone()[0])

    def waiting(self) -> list[tuple[int, int, bytes, str]]:
        """Returns (attribute, step, envelope, idempotency key) of each envelope that may need another attempt, by step."""
        read = "SELECT attribute, step, envelope, key FROM sent WHERE key IS NOT NULL ORDER BY step, attribute"
        return [(attribute, step, bytes(envelope), key) for attribute, step, envelope, key in self._db.execute(read)]

    def settle(self, key: str) -> None:
        """Marks the envelope with this idempotency key as settled: no further attempt is needed."""
        self._db.execute("UPDATE sent SET key = NULL WHERE key = ?", (key,))

    def keep(self, attribute: int, step: int, envelope: bytes, key: int | None, n_kept: int, idempotency_key: str) -> None:
        """Counts a step's only report, stores its envelope, and drops the envelopes of all but the n_kept latest steps.

        Args:
            key: key of the memo behind the report; None for a one-time mechanism.
        """
        db = self._db
        db.execute("INSERT INTO sent VALUES (?, ?, ?, ?)", (attribute, step, envelope, idempotency_key))
        db.execute("UPDATE enrolment SET reports = reports + 1 WHERE attribute = ?", (attribute,))
        if key is not None:
            db.execute("UPDATE memo SET reports = reports + 1 WHERE attribute = ? AND key = ?", (attribute, key))
        surplus = "SELECT step FROM sent WHERE attribute = ? ORDER BY step DESC LIMIT -1 OFFSET ?"
        for (dropped,) in db.execute(surplus, (attribute, n_kept)).fetchall():
            db.execute("DELETE FROM sent WHERE attribute = ? AND step = ?", (attribute, dropped))
            db.execute("UPDATE enrolment SET forgotten = max(forgotten, ?) WHERE attribute = ?", (dropped, attribute))

    def counts(self, attribute: int) -> tuple[int, int]:
        """Returns the number of distinct steps reported, and the number of memos used."""
        reports = self._db.execute("SELECT reports FROM enrolment WHERE attribute = ?", (attribute,)).fetchone()[0]
        memos = self._db.execute("SELECT count(*) FROM memo WHERE attribute = ? AND reports > 0", (attribute,)).fetchone()[0]
        return reports, memos
