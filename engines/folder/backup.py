"""Copies the data of a data folder to one file, also while a process uses the folder.

In the copy, the checkpoint of each log says that later records are missing (`Missing`).
"""

import os
import secrets
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from ldpstream.engines.checkpoint import MAX_MS, Missing, missing_from_json, missing_to_json
from ldpstream.engines.folder.data_folder import BUSY_S, COPY, PARTITION, FolderError, reason, sync


def backup(file: Path, to: Path) -> None:
    """Writes a copy of all data, as they are at one moment, to a new file that only its owner may read and write.

    Raises:
        FolderError: if `to` exists or cannot be written, or the data cannot be read.
        OSError: if the system cannot tell whether `to` exists, for example because its name is too long.
    """
    if to.exists():
        raise FolderError(f"{to}: cannot be written: File exists")
    to = to.resolve()  # a link stays, and the file that it names is written
    try:
        made, name = tempfile.mkstemp(prefix=f"{to.name}.", suffix=".part", dir=to.parent)  # readable by its owner only
    except OSError as error:
        raise FolderError(f"{to}: cannot be written: {error.strerror}") from None
    part = Path(name)
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_S)) as db:
            db.execute("VACUUM INTO ?", (name,))
        with closing(sqlite3.connect(name)) as copy, copy:
            _note_missing(copy)
        os.fsync(made)
        part.rename(to)
        sync(to.parent)
    except sqlite3.Error as error:
        raise FolderError(f"{file}: cannot be copied: {reason(error)}") from None
    except OSError as error:
        raise FolderError(f"{to}: cannot be written: {error.strerror}") from None
    finally:
        os.close(made)
        part.unlink(missing_ok=True)


def _note_missing(copy: sqlite3.Connection) -> None:
    copy.execute(
        "INSERT OR IGNORE INTO checkpoint SELECT id, ?, 0, 0, '{}', log_id, '', ?, '{}', 0 FROM survey WHERE fingerprint <> ?",
        (PARTITION, secrets.token_hex(8), COPY),
    )
    copy.execute("REPLACE INTO survey (fingerprint, name, log_id, end, newest_ms) VALUES (?, '', '', 0, 0)", (COPY,))
    rows = copy.execute(
        "SELECT survey.id, end, survey.newest_ms, missing FROM survey JOIN checkpoint ON survey.id = survey AND part = ?",
        (PARTITION,),
    ).fetchall()
    for survey, end, newest_ms, noted in rows:
        earlier = missing_from_json(noted)
        after_ms = newest_ms if earlier is None else min(newest_ms, earlier.after_ms)
        values = (missing_to_json(Missing(after_ms, MAX_MS, end)), survey, PARTITION)
        copy.execute("UPDATE checkpoint SET missing = ? WHERE survey = ? AND part = ?", values)
