"""One SQLite file of a person, safe against restarts, crashes and parallel processes.

A transaction's writes are on the disk before the transaction ends.

A connection lasts for one transaction, so threads may share the object. Our code opens an existing file only through SQLite: on
POSIX, closing a second descriptor would drop SQLite's locks.
"""

import errno
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ldpstream.device.errors import DeviceError, StoreCleared, StoreFull, StoreHeld
from ldpstream.device.files.former_file import convert

DEVICE, WALLET, ACTIVITY = 6, 1004, 2001  # formats of the kinds of files (SQLite's user_version); 0: empty
FORMER = {DEVICE: 5, WALLET: 1003}  # the first transaction converts them
BUSY_S = 60.0  # longest wait for another process's transaction, unless the application gives another one
DAY_S = 86_400


class SQLiteFile:
    """A person's file, which only its owner may read and write.

    Args:
        path: the file; its folder must exist.
        file_format: `DEVICE`, `WALLET` or `ACTIVITY`.
        tables: the statements that make the tables of an empty file.
        wait_s: longest wait for another transaction, in seconds.
        lazy: true to create a missing or empty file only by `connection`. Until then, it keeps nothing.

    Raises:
        StoreCleared: if the file is missing, and `create` and `lazy` are false.
        StoreFull: if the disk is full.
        DeviceError: if the path is a folder, or the file cannot be created.
    """

    def __init__(
        self, path: Path, file_format: int, tables: Sequence[str], create: bool = True, wait_s: float = BUSY_S, *,
        lazy: bool = False,
    ) -> None:  # fmt: skip
        self.path, self.format, self._tables, self._wait_s, self._lazy = path.absolute(), file_format, tables, wait_s, lazy
        self._prepare(create and not lazy)

    def _prepare(self, create: bool) -> None:
        try:
            if self.path.is_dir():
                raise DeviceError(f"{self.path}: is a folder, not a file")
            if create:
                with suppress(FileExistsError):
                    os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            self.path.chmod(0o600)
        except OSError as error:
            if not create and isinstance(error, FileNotFoundError):
                if self._lazy:
                    return
                raise StoreCleared(f"{self.path}: the file is missing, but the device had enrolled") from None
            kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else DeviceError
            raise kind(f"{self.path}: cannot be created: {error.strerror}") from None

    @contextmanager
    def connection(self, create: bool = False) -> Iterator[sqlite3.Connection]:
        """Runs one immediate transaction. All its writes are on the disk when the transaction ends, or are undone if an
        exception occurs.

        Args:
            create: true to create a lazy file if it is missing.

        Raises:
            StoreHeld: if another transaction holds the file for longer than `wait_s`.
            StoreFull: if the disk is full.
            StoreCleared: if the file is missing.
            DeviceError: if the file is not an SQLite database, is of another format, or cannot be written for another reason.
        """
        if create and self._lazy:
            self._prepare(True)
        connection = None
        try:
            database = ":memory:" if self._lazy and not create and self._is_empty() else f"{self.path.as_uri()}?mode=rw"
            connection = sqlite3.connect(database, uri=True, timeout=self._wait_s, isolation_level=None)
            for pragma in ("synchronous=EXTRA", "fullfsync=ON", "secure_delete=ON"):
                connection.execute(f"PRAGMA {pragma}")
            connection.execute("BEGIN IMMEDIATE")
            if (found := format_of(connection)) == 0:
                for statement in (*self._tables, f"PRAGMA user_version = {self.format}"):
                    connection.execute(statement)
            elif found == FORMER.get(self.format):
                convert(connection, self._tables, self.format == WALLET)
                connection.execute(f"PRAGMA user_version = {self.format}")
            elif found != self.format:
                raise DeviceError(
                    f"{self.path}: has format {found}, this program needs format {self.format}; keep the file, and open it"
                    " with the version and class that wrote it"
                )
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._explained(error) from None
        finally:
            if connection is not None:
                connection.close()  # rolls back if not committed

    def _is_empty(self) -> bool:
        """True for a missing file, and for one without a byte: a first transaction that failed leaves it."""
        with suppress(FileNotFoundError):
            return self.path.stat().st_size == 0
        return True

    def _explained(self, error: sqlite3.Error) -> DeviceError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the details of an extended code
        if code == sqlite3.SQLITE_BUSY:
            return StoreHeld(f"{self.path}: another process holds the file for more than {self._wait_s:g} s")
        if code == sqlite3.SQLITE_FULL:
            return StoreFull(f"{self.path}: the disk is full")
        try:
            self.path.stat()
        except FileNotFoundError:
            new = {WALLET: "Wallet to enroll", ACTIVITY: "Activity to begin"}.get(self.format, "Device to enroll")
            return StoreCleared(f"{self.path}: the file is missing; make a new {new} again")
        except OSError:  # the folder is not readable, which SQLite's message says
            pass
        return DeviceError(f"{self.path}: {error}")


def format_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
