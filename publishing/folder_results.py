"""The results in a data folder: publications, progress and states of the filters."""

import sqlite3
from collections.abc import Sequence

import msgspec

from ldpstream.engines.folder.data_folder import DataFolder, SurveyPart
from ldpstream.engines.formats import check_format
from ldpstream.estimators.filter.local_level import FORMAT as FILTER_FORMAT
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.publishing.progress import Filters, Progress
from ldpstream.publishing.results import KeptResults, decode_progress, in_order, state_format
from ldpstream.publishing.stored import StoredReader
from ldpstream.surveys import Survey

_OTHER = "run the version that wrote it"


class FolderResults(KeptResults):
    """The folder has one process, so there is no lease."""

    def __init__(self, folder: DataFolder, survey: Survey, reader: StoredReader | None = None) -> None:
        super().__init__(survey, reader or StoredReader(survey), "folder", str(folder.file))
        self._part = SurveyPart(folder, survey)

    def progress(self) -> Progress | None:
        with self._part.read() as db:
            return self._progress(db)

    def _progress(self, db: sqlite3.Connection) -> Progress | None:
        row = db.execute("SELECT progress FROM progress WHERE survey = ?", (self._part.id,)).fetchone()
        what = f"{self._part.file}: the progress of survey {self._survey.name}"
        return None if row is None else decode_progress(row[0], what, _OTHER, "restore a backup")

    def filters(self) -> dict[str, bytes]:
        with self._part.read() as db:
            states = dict(db.execute("SELECT attribute, state FROM filter WHERE survey = ?", (self._part.id,)).fetchall())
        for state in states.values():
            what = f"{self._part.file}: a filter of survey {self._survey.name}"
            check_format(what, state_format(state), FILTER_FORMAT, _OTHER)
        return states

    def save(
        self, publications: list[Publication], before: Progress | None, progress: Progress, filters: Filters | None = None
    ) -> bool:
        with self._part.write() as db:
            if self._progress(db) != before:
                return False
            db.execute("REPLACE INTO progress VALUES (?, ?)", (self._part.id, msgspec.json.encode(progress)))
            states = ((self._part.id, attribute, state) for attribute, state in (filters or {}).items())
            db.executemany("REPLACE INTO filter VALUES (?, ?, ?)", states)
            rows = ((self._part.id, p.key, p.step, msgspec.json.encode(p)) for p in publications)
            db.executemany("REPLACE INTO estimate VALUES (?, ?, ?, ?)", rows)
            kept_from = progress.next_step - self._survey.retention_steps
            db.execute("DELETE FROM estimate WHERE survey = ? AND step < ?", (self._part.id, kept_from))
        return True

    def history(self) -> list[Publication]:
        with self._part.read() as db:
            found = db.execute("SELECT key, publication FROM estimate WHERE survey = ?", (self._part.id,)).fetchall()
        return in_order([p for row in found if (p := self._decoded(*row)) is not None])

    def _raw(self, keys: Sequence[str]) -> list[bytes | None]:
        with self._part.read() as db:
            wanted = msgspec.json.encode(list(keys)).decode()
            found = dict(
                db.execute(
                    "SELECT key, publication FROM estimate WHERE survey = ? AND key IN (SELECT value FROM json_each(?))",
                    (self._part.id, wanted),
                ).fetchall()
            )
        return [found.get(key) for key in keys]
