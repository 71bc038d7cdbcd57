"""Keeps the last accepted survey of each name in the data folder."""

from ldpstream.runtime.survey_keeper import Kept, SurveyKeeper
from ldpstream.stores.data_folder import DataFolder
from ldpstream.surveys import Survey
from ldpstream.surveys.folder import SurveyFolder


class FolderKeeper(SurveyKeeper):
    def __init__(self, folder: DataFolder, watch: SurveyFolder) -> None:
        super().__init__(watch)
        self._folder = folder

    def _place(self, survey: Survey) -> str:
        return str(self._folder.file)

    def _read(self, survey: Survey) -> Kept | None:
        with self._folder.read() as db:
            found = db.execute("SELECT fingerprint, toml FROM kept WHERE name = ?", (survey.name,)).fetchone()
        return None if found is None else Kept(*found)

    def _write(self, survey: Survey, kept: Kept | None) -> None:
        with self._folder.write() as db:
            if kept is None:
                where = (survey.name, survey.fingerprint.hex())  # a new survey of this name may be kept already
                db.execute("DELETE FROM kept WHERE name = ? AND fingerprint = ?", where)
            else:
                db.execute("REPLACE INTO kept VALUES (?, ?, ?)", (survey.name, *kept))
