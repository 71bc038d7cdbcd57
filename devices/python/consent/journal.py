"""The journal: the reports that left or may have left a device.

    python -m ldpstream.device journal FILE        shows the journal of a device's or wallet's file, without a network

A journal has the bytes that left, never a true value. It has at most `memo_file.MAX_JOURNAL` reports of a survey. A withdrawal
of the consent erases it.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from ldpstream.device.errors import DeviceError
from ldpstream.device.files.memo_file import Left, journal_of
from ldpstream.device.files.sqlite_file import DEVICE, WALLET, format_of


def read_journal(path: Path) -> list[Left]:
    """Returns the journal of a device's or wallet's file, without changing the file.

    Raises:
        DeviceError: if the file is missing, is of another kind or format, or cannot be read.
    """
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            if (found := format_of(connection)) not in (0, DEVICE, WALLET):
                raise DeviceError(f"{path}: has format {found}, this program needs format {DEVICE} or {WALLET}")
            return journal_of(connection) if found else []
    except sqlite3.Error as error:
        raise DeviceError(f"{path}: {error}") from None
