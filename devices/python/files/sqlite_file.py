"""One SQLite file of a person, safe against restarts, crashes and parallel processes.

A transaction's writes are on the disk before the transaction ends.

A connection lasts for one transaction, so threads may share the object. Our code opens an existing file only through SQLite: on
POSIX, closing a second descriptor would drop SQLite's locks.
"""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ldpstream.device.errors import DeviceError, StoreCleared, StoreFull, StoreHeld

DEVICE, WALLET, ACTIVITY = 5, 1003, 2001  # formats of the kinds of files (SQLite's user_version); 0: empty
FORMER = {DEVICE: 4, WALLET: 1002}  # without consent and journal; the first transaction raises the number
BUSY_S = 60.0  # longest wait for another process's transaction, unless the application gives another one
DAY_S = 86_400


class SQLiteFile:
    """A person's file, which only its owner may read and write.

    Args:
        path: the file; its folder must exist.
        file_format: `DEVICE`, `WALLET` or `ACTIVITY`.
        wait_s: longest wait for another transaction, in seconds.
        lazy: true to create a missing file only by `prepare`. Until then, the file is empty, and keeps nothing.

    Raises:
        StoreCleared: if the file is missing, and `create` and `lazy` are false.
        StoreFull: if the disk is full.
        DeviceError: if the path is a folder, or the file cannot be created.
    """

    def __init__(
        self, path: Path, file_format: int, create: bool = True, wait_s: float = BUSY_S, *, lazy: bool = False
    ) -> None:
        self.path, self.format, self.wait_s, self.lazy = path.absolute(), file_format, wait_s, lazy
        self.prepare(create and not lazy)

    def prepare(self, create: bool) -> None:
        """Creates a missing file if `create` is true, and lets only its owner read and write it. Raises as the constructor."""
        try:
            if self.path.is_dir():
                raise DeviceError(f"{self.path}: is a folder, not a file")
            if create:
                with suppress(FileExistsError):
                    os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            self.path.chmod(0o600)
        except OSError as error:
            if not create and isinstance(error, FileNotFoundError):
                if self.lazy:
                    return
                raise StoreCleared(f"{self.path}: the file is missing, but the device had enrolled") from None
            kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else DeviceError
            raise kind(f"{self.path}: cannot be created: {error.strerror}") from None

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Runs one immediate transaction. All its writes are on the disk when the transaction ends, or are undone if an
        exception occurs.

        Raises:
            StoreHeld: if another transaction holds the file for longer than `wait_s`.
            StoreFull: if the disk is full.
            StoreCleared: if the file is missing.
            DeviceError: if the file is not an SQLite database, is of another format, or cannot be written for another reason.
        """
        connection = None
        try:
            database = ":memory:" if self.lazy and not self.path.exists() else f"{self.path.as_uri()}?mode=rw"
            connection = sqlite3.connect(database, uri=True, timeout=self.wait_s, isolation_level=None)
            for pragma in ("synchronous=EXTRA", "fullfsync=ON", "secure_delete=ON"):
                connection.execute(f"PRAGMA {pragma}")
            connection.execute("BEGIN IMMEDIATE")
            found = format_of(connection)
            if found == FORMER.get(self.format):
                connection.execute(f"PRAGMA user_version = {self.format}")
            elif found not in (0, self.format):
                raise DeviceError(f"{self.path}: has format {found}, this program needs format {self.format}")
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._explained(error) from None
        finally:
            if connection is not None:
                connection.close()  # rolls back if not committed

    def _explained(self, error: sqlite3.Error) -> DeviceError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the details of an extended code
        if code == sqlite3.SQLITE_BUSY:
            return StoreHeld(f"{self.path}: another process holds the file for more than {self.wait_s:g} s")
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
