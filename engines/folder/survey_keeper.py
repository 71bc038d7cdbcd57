"""Keeps the last accepted survey of each name in the data folder, and checks the machine's clock before a survey is served."""

from collections.abc import Callable

from ldpstream.engines.folder.data_folder import DataFolder
from ldpstream.runtime.clock import now_ms, shown
from ldpstream.runtime.errors import Passing
from ldpstream.surveys import Survey
from ldpstream.surveys.life.folder import SurveyFolder
from ldpstream.surveys.life.keeper import Kept, SurveyKeeper

AHEAD_MS = 1000  # a newest record that is ahead of the clock by at most this time is accepted


class ClockBehind(Passing):
    """The machine's clock is behind a survey's newest record. New reports would count at the time of this record."""


class FolderKeeper(SurveyKeeper):
    def __init__(self, folder: DataFolder, watch: SurveyFolder, clock: Callable[[], int] = now_ms) -> None:
        super().__init__(watch)
        self._folder, self._clock = folder, clock

    def check(self, survey: Survey, write: bool = False) -> None:
        """Like `SurveyKeeper.check`, and raises ClockBehind."""
        with self._folder.read() as db:
            found = db.execute("SELECT newest_ms FROM survey WHERE fingerprint = ?", (survey.fingerprint,)).fetchone()
        newest_ms, clock_ms = 0 if found is None else int(found[0]), self._clock()
        if newest_ms - clock_ms > AHEAD_MS:
            raise ClockBehind(
                f"survey {survey.name}: this machine's clock shows {shown(clock_ms)}, but the survey's newest record is from "
                f"{shown(newest_ms)}: set the clock right; if the clock was wrong then, see docs/howto/serve.md, The clock"
            )
        super().check(survey, write)

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
