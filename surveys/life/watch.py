"""Watches the survey files of a service: one log line for each change, and a metric of their states."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog
from prometheus_client import Gauge

from ldpstream.surveys.life.folder import Changes, SurveyFolder

log = structlog.get_logger("ldpstream.surveys")

LOOK_S = 1.0  # time between two looks

survey_files = Gauge(
    "ldpstream_survey_files",
    "Surveys served, survey files and folders that are broken, and files that changed an open survey",
    ["state"],
)


class SurveyWatch(SurveyFolder):
    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(paths)
        self._tell(self.broken)
        self._count()

    def look(self) -> Changes:
        changes = super().look()
        self._tell(changes.broken)
        for path in changes.mended:
            log.info("survey file no longer broken", file=str(path))
        for what in ("added", "removed", "updated"):
            for text in getattr(changes, what):
                survey = text.survey
                log.info(f"survey {what}", survey=survey.name, fingerprint=survey.fingerprint.hex(), file=str(text.path))
        self._count()
        return changes

    def _tell(self, broken: Mapping[Path, str]) -> None:
        for path, why in broken.items():
            event = "the file of an open survey was changed" if path in self.changed else "survey file broken"
            log.error(event, file=str(path), error=why)

    def _count(self) -> None:
        survey_files.labels("served").set(len(self.surveys))
        survey_files.labels("broken").set(len(self.broken.keys() - self.changed))
        survey_files.labels("changed").set(len(self.changed))
