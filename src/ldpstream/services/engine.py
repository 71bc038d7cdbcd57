"""The engine of one machine: counts, log and results of each survey in one data folder."""

from collections.abc import Callable
from typing import Final

from ldpstream.engines.folder.data_folder import DataFolder
from ldpstream.engines.folder.folder_log import FolderLog
from ldpstream.engines.folder.folder_results import FolderResults
from ldpstream.engines.folder.folder_store import FolderCountStore
from ldpstream.publishing.results import KeptResults
from ldpstream.publishing.schedule import LogPosition
from ldpstream.runtime.clock import now_ms
from ldpstream.surveys import Survey


class FolderEngine:
    """The engine of `publishing.engine.Engine` on one machine.

    Args:
        check: checks that a survey does not change an open survey.
    """

    deadline_steps: Final = 10**9  # never: a step waits for the counting, which runs in the same process

    def __init__(self, folder: DataFolder, check: Callable[[Survey], None], clock: Callable[[], int] = now_ms) -> None:
        self._folder, self.check, self._clock = folder, check, clock

    def count_store(self, survey: Survey) -> FolderCountStore:
        return FolderCountStore(self._folder, survey)

    def results(self, survey: Survey) -> KeptResults:
        return KeptResults(survey, FolderResults(self._folder, survey))

    def open(self, survey: Survey) -> tuple[LogPosition, None]:
        self.check(survey)
        return FolderLog(self._folder, survey, self._clock), None

    def close(self) -> None:
        """Has no effect: the process closes the folder."""
