"""The results in a data folder: publications, progress and states of the filters."""

import json
import sqlite3
from collections.abc import Mapping, Sequence

from ldpstream.engines.folder.data_folder import DataFolder, SurveyPart
from ldpstream.engines.results import ResultStore, Row
from ldpstream.surveys import Survey


class FolderResults(ResultStore):
    """The folder has one process, so there is no lease."""

    kind = "folder"
    remedy = filters_remedy = "run the version that wrote it, or restore a backup"

    def __init__(self, folder: DataFolder, survey: Survey) -> None:
        self._part, self.where = SurveyPart(folder, survey), str(folder.file)
        self.progress_name = f"{folder.file}: the progress of survey {survey.name}"
        self.filters_name = f"{folder.file}: a filter of survey {survey.name}"

    def progress(self) -> bytes | None:
        with self._part.read() as db:
            return self._progress(db)

    def _progress(self, db: sqlite3.Connection) -> bytes | None:
        row = db.execute("SELECT progress FROM progress WHERE survey = ?", (self._part.id,)).fetchone()
        return None if row is None else bytes(row[0])

    def filters(self) -> dict[str, bytes]:
        with self._part.read() as db:
            return dict(db.execute("SELECT attribute, state FROM filter WHERE survey = ?", (self._part.id,)).fetchall())

    def save(
        self, rows: Sequence[Row], before: bytes | None, progress: bytes, filters: Mapping[str, bytes], kept_from: int
    ) -> bool:
        """See `ResultStore`. Deletes all steps before `kept_from`."""
        part = self._part.id
        with self._part.write() as db:
            if self._progress(db) != before:
                return False
            db.execute("REPLACE INTO progress VALUES (?, ?)", (part, progress))
            db.executemany("REPLACE INTO filter VALUES (?, ?, ?)", ((part, name, state) for name, state in filters.items()))
            db.executemany("REPLACE INTO estimate VALUES (?, ?, ?, ?)", ((part, row.key, row.step, row.value) for row in rows))
            db.execute("DELETE FROM estimate WHERE survey = ? AND step < ?", (part, kept_from))
        return True

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        wanted = "SELECT key, publication FROM estimate WHERE survey = ? AND key IN (SELECT value FROM json_each(?))"
        with self._part.read() as db:
            found = dict(db.execute(wanted, (self._part.id, json.dumps(list(keys)))).fetchall())
        return [found.get(key) for key in keys]

    def history(self) -> list[tuple[str, bytes]]:
        with self._part.read() as db:
            return db.execute("SELECT key, publication FROM estimate WHERE survey = ?", (self._part.id,)).fetchall()
