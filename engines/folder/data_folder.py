"""The state of the service on one machine: one SQLite file in a folder.

    survey        name, fingerprint and log of every survey that the folder has served
    kept          the last accepted survey file of every name (`ldpstream.engines.folder.survey_keeper`)
    record        the logs (`engines.folder.folder_log`)
    checkpoint, pane, report_key      the counts (`engines.folder.folder_store`)
    progress, estimate, filter        the estimates (`engines.folder.folder_results`)
    move          the Kafka topics of surveys that moved to Kafka and Redis (`ldpstream.services.move`)

A lock on the file ``lock`` ensures that only one process at a time opens a folder for writing.
"""

import fcntl
import os
import secrets
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

from ldpstream.engines.checkpoint import Missing, missing_to_json
from ldpstream.engines.count_store import StoreDamaged, StoreUnavailable
from ldpstream.engines.formats import check_format
from ldpstream.runtime.clock import now_ms
from ldpstream.surveys import Survey
from ldpstream.surveys.errors import UserError

FORMAT: Final = 3  # SQLite's user_version; raise it if a table, a column or the meaning of one of them changes
APPLICATION: Final = 0x4C445053  # SQLite's application_id of our files: "LDPS"
FILE, LOCK = "ldpstream.sqlite3", "lock"
PART: Final = f"{FILE}.part"  # the name of a new file until it is complete
_WRITES_LOG: Final = 18  # place of the byte in SQLite's header that is 2 if the file uses a write-ahead log, else 1
BUSY_S = 10.0  # longest wait for a program that locks the file, such as a backup

_SCHEMA = """
CREATE TABLE survey (id INTEGER PRIMARY KEY, fingerprint BLOB NOT NULL UNIQUE, name TEXT NOT NULL, log_id TEXT NOT NULL,
    end INTEGER NOT NULL, newest_ms INTEGER NOT NULL) STRICT;
CREATE TABLE kept (name TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, toml TEXT NOT NULL) STRICT;
CREATE TABLE record (survey INTEGER NOT NULL, place INTEGER NOT NULL, appended_ms INTEGER NOT NULL, value BLOB NOT NULL,
    key BLOB NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (survey, place)) STRICT, WITHOUT ROWID;
CREATE TABLE checkpoint (survey INTEGER NOT NULL, part INTEGER NOT NULL, next_offset INTEGER NOT NULL,
    newest_ms INTEGER NOT NULL, rejected TEXT NOT NULL, log_id TEXT NOT NULL, missing TEXT NOT NULL, writer TEXT NOT NULL,
    keys TEXT NOT NULL, pruned_below INTEGER NOT NULL, PRIMARY KEY (survey, part)) STRICT;
CREATE TABLE pane (survey INTEGER NOT NULL, part INTEGER NOT NULL, step INTEGER NOT NULL, attribute INTEGER NOT NULL,
    level INTEGER NOT NULL, cohort INTEGER NOT NULL, counts BLOB NOT NULL,
    PRIMARY KEY (survey, part, step, attribute, level, cohort)) STRICT;
CREATE TABLE report_key (id INTEGER PRIMARY KEY, survey INTEGER NOT NULL, part INTEGER NOT NULL, generation INTEGER NOT NULL,
    keys BLOB NOT NULL) STRICT;
CREATE INDEX report_key_of ON report_key (survey, part, generation);
CREATE TABLE progress (survey INTEGER PRIMARY KEY, progress BLOB NOT NULL) STRICT;
CREATE TABLE estimate (survey INTEGER NOT NULL, key TEXT NOT NULL, step INTEGER NOT NULL, publication BLOB NOT NULL,
    PRIMARY KEY (survey, key)) STRICT, WITHOUT ROWID;
CREATE INDEX estimate_of ON estimate (survey, step);
CREATE TABLE filter (survey INTEGER NOT NULL, attribute TEXT NOT NULL, state BLOB NOT NULL,
    PRIMARY KEY (survey, attribute)) STRICT;
CREATE TABLE move (survey INTEGER PRIMARY KEY, topic_id TEXT NOT NULL, done INTEGER NOT NULL) STRICT;
"""


COPY: Final = b""  # fingerprint in a row of every copy; the row's `newest_ms` is the time of the copy's first use in ms, else 0
PARTITION: Final = 0  # the only partition of a log in a folder


class FolderError(UserError):
    """The data folder cannot be used."""


class DataFolder:
    """An open data folder. Threads may share the object.

    Args:
        path: the folder; created if missing, for its owner only.
        now_ms: returns the machine's time, in Unix milliseconds.

    Raises:
        FolderError: if the folder cannot be used, another process uses it, or it holds other files and no data of ours.
        StoreDamaged: if the first write finds damage; OtherFormat: if the data have another format.
    """

    def __init__(self, path: Path, now_ms: Callable[[], int] = now_ms) -> None:
        self.path, self._now_ms = path.absolute(), now_ms
        self.file = self.path / FILE
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.file.exists() and (others := sorted(set(os.listdir(self.path)) - {LOCK, PART, f"{PART}-journal"})):
                raise FolderError(f"{self.path}: holds {others[0]} and no data of ldpstream; name a new or empty folder")
            self._lock_file = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise FolderError(f"{self.path}: cannot be used as data folder: {error.strerror}") from None
        try:
            self._take()
            self._writing = threading.Lock()
            self._known: dict[bytes, tuple[int, str]] = {}  # by fingerprint
            self._begin()
        except BaseException:
            os.close(self._lock_file)
            raise

    def _take(self) -> None:
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FolderError(f"{self.path}: another ldpstream process uses this data folder") from None

    def _begin(self) -> None:
        try:
            if self.file.exists():  # checked under the lock: another process may just have created the file
                self._refuse_other_log()
            else:
                self._create()
            with ExitStack() as opened:
                self._writer = opened.enter_context(closing(self._connect()))
                self._prepare()
                opened.pop_all()
        except sqlite3.Error as error:
            raise FolderError(f"{self.file}: {reason(error)}") from None
        except StoreUnavailable as error:
            raise FolderError(str(error)) from None

    def _refuse_other_log(self) -> None:
        """Refuses a restored copy beside the write-ahead log of other data: SQLite would apply this log to the copy."""
        log = Path(f"{self.file}-wal")
        try:
            with self.file.open("rb") as file:
                alone = file.read(_WRITES_LOG + 1)[_WRITES_LOG:] == b"\x01"  # without a write-ahead log, like every copy
            other = alone and log.exists() and log.stat().st_size > 0
        except OSError as error:
            raise FolderError(f"{self.path}: cannot be used as data folder: {error.strerror}") from None
        if other:
            raise FolderError(f"{log}: belongs to other data than {FILE}; put the copy into an empty folder")

    def _create(self) -> None:
        part = self.path / PART
        try:
            part.unlink(missing_ok=True)
            os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            with closing(sqlite3.connect(part, isolation_level=None)) as db:
                db.execute("PRAGMA auto_vacuum=INCREMENTAL")
                marks = f"PRAGMA application_id={APPLICATION}; PRAGMA user_version={FORMAT};"
                db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} {marks} COMMIT;")
            part.rename(self.file)
            sync(self.path)
        except OSError as error:
            raise FolderError(f"{self.path}: cannot be used as data folder: {error.strerror}") from None

    def _prepare(self) -> None:
        _check_marks(self.file, self._writer)
        self._writer.execute("PRAGMA journal_mode=WAL")
        with self.write() as db:
            self.probe(db)
            db.execute("UPDATE survey SET newest_ms = ? WHERE fingerprint = ? AND newest_ms = 0", (self._now_ms(), COPY))

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.file.as_uri()}?mode=rw", uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )  # fmt: skip
        with ExitStack() as opened:
            opened.enter_context(closing(connection))
            for pragma in ("synchronous=FULL", "fullfsync=ON", "secure_delete=ON"):
                connection.execute(f"PRAGMA {pragma}")
            opened.pop_all()
        return connection

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction that writes. At its end all writes are on the disk; an exception undoes them.

        Raises:
            StoreUnavailable: if the file cannot be written. If the end of the transaction fails, the writes may be on the disk.
            StoreDamaged: if the file is damaged.
        """
        with self._writing:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                yield self._writer
                self._writer.execute("COMMIT")
            except sqlite3.Error as error:
                raise self._explained(error) from None
            finally:
                with suppress(sqlite3.Error):
                    if self._writer.in_transaction:
                        self._writer.execute("ROLLBACK")

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """One transaction that reads, on a connection of its own: all reads see one state.

        Raises:
            StoreUnavailable, StoreDamaged: if the file cannot be read.
        """
        try:
            with closing(self._connect()) as connection:
                connection.execute("BEGIN")
                yield connection
        except sqlite3.Error as error:
            raise self._explained(error) from None

    def probe(self, db: sqlite3.Connection) -> None:
        db.execute(f"PRAGMA user_version={FORMAT}")

    def shrink(self) -> None:
        """Returns the file's free pages to the system."""
        with self._writing:
            try:
                self._writer.executescript("PRAGMA incremental_vacuum")  # `execute` would free only one page
            except sqlite3.Error as error:
                raise self._explained(error) from None

    def known(self, survey: Survey) -> tuple[int, str]:
        """Returns the survey's number in the tables, and the id of its log. Adds a new survey in a transaction of its own."""
        if (known := self._known.get(survey.fingerprint)) is not None:
            return known  # without the lock: the caller may be in a transaction
        with self.write() as db:
            query = "SELECT id, log_id FROM survey WHERE fingerprint = ?"
            row = db.execute(query, (survey.fingerprint,)).fetchone() or self._add(db, survey)
        known = self._known[survey.fingerprint] = (int(row[0]), str(row[1]))
        return known

    def _add(self, db: sqlite3.Connection, survey: Survey) -> tuple[int, str]:
        log_id = secrets.token_hex(8)
        row = "INSERT INTO survey (fingerprint, name, log_id, end, newest_ms) VALUES (?, ?, ?, 0, 0)"
        number = db.execute(row, (survey.fingerprint, survey.name, log_id)).lastrowid
        assert number is not None
        (restored_ms,) = db.execute("SELECT max(newest_ms) FROM survey WHERE fingerprint = ?", (COPY,)).fetchone()
        if restored_ms is not None and survey.opens_ms(0) - survey.skew_ms < restored_ms:
            values = (number, PARTITION, log_id, missing_to_json(Missing(0, restored_ms, 0)), secrets.token_hex(8))
            db.execute("INSERT INTO checkpoint VALUES (?, ?, 0, 0, '{}', ?, ?, ?, '{}', 0)", values)
        return number, log_id

    def moved(self) -> Literal["here", "moving", "moved"]:
        """Returns the state of the move to Kafka and Redis."""
        with self.read() as db:
            found = db.execute("SELECT min(done) FROM move").fetchone()[0]
        return "here" if found is None else "moved" if found else "moving"

    def close(self) -> None:
        with self._writing:
            self._writer.close()
        os.close(self._lock_file)

    def _explained(self, error: sqlite3.Error) -> StoreUnavailable | StoreDamaged:
        damaged = getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        return (StoreDamaged if damaged else StoreUnavailable)(f"{self.file}: {reason(error)}")


class MemoryFolder(DataFolder):
    """The tables of a data folder in this process's memory, for the demo."""

    def __init__(self) -> None:
        self.file = Path(":memory:")
        self._writing, self._known = threading.Lock(), {}
        self._writer = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._writer.executescript(_SCHEMA)
        weakref.finalize(self, self._writer.close)

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """See `DataFolder.read`; the only connection reads and writes."""
        with self.write() as db:
            yield db


class SurveyPart:
    """The folder's rows of one survey."""

    def __init__(self, folder: DataFolder, survey: Survey) -> None:
        self._folder, self._survey = folder, survey
        self.file = folder.file

    @property
    def id(self) -> int:
        return self._folder.known(self._survey)[0]

    @property
    def log_id(self) -> str:
        return self._folder.known(self._survey)[1]

    def write(self) -> AbstractContextManager[sqlite3.Connection]:
        """See `DataFolder.write`."""
        self._folder.known(self._survey)
        return self._folder.write()

    def read(self) -> AbstractContextManager[sqlite3.Connection]:
        """See `DataFolder.read`."""
        self._folder.known(self._survey)
        return self._folder.read()


@contextmanager
def looking(file: Path) -> Iterator[sqlite3.Connection]:
    """One transaction that reads the data, also while a process uses the folder.

    Raises:
        FolderError: if there are no data, or they cannot be read.
        OtherFormat: if the data have another format.
    """
    if not file.exists():
        raise FolderError(f"{file.parent}: holds no data of ldpstream")
    try:
        with closing(
            sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_S, isolation_level=None)
        ) as db:
            _check_marks(file, db)
            db.execute("BEGIN")
            yield db
    except sqlite3.Error as error:
        raise FolderError(f"{file}: cannot be read: {reason(error)}") from None


def sync(path: Path) -> None:
    """Waits until a file's contents or a folder's names are on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _check_marks(file: Path, db: sqlite3.Connection) -> None:
    application, found = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    if application != APPLICATION:
        raise FolderError(f"{file}: is not a data file of ldpstream")
    check_format(f"{file}", found, FORMAT, "run the version that wrote it")


def reason(error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the details of an extended code
    said = {
        sqlite3.SQLITE_FULL: "the disk is full",
        sqlite3.SQLITE_READONLY: "cannot be written",
        sqlite3.SQLITE_CANTOPEN: "cannot be opened",
        sqlite3.SQLITE_CORRUPT: "is damaged; restore a backup",
        sqlite3.SQLITE_NOTADB: "is not a data file of ldpstream",
    }
    return said.get(code, str(error))
