"""Checks whether a process can use its surveys, and plans the next checks."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog

from ldpstream.surveys import Survey
from ldpstream.surveys.errors import Unreachable, UserError
from ldpstream.surveys.life.keeper import OpenSurveyChanged
from ldpstream.surveys.life.watch import SurveyWatch

log = structlog.get_logger("ldpstream.surveys")

AT_ONCE = 8  # checks at the same time: each mostly waits for answers, and needs a connection to Redis
RETRY_S = 15.0  # time between two checks of a survey that cannot be used


class SurveyChecks:
    """The checks of a process's surveys, and the times of their next checks.

    Args:
        check: checks that the process can use a survey, for example its topics; may take seconds. Several threads call it.
        process_log, refusal: the process's logger, and the event that it logs for a survey that cannot be used.
    """

    def __init__(self, watch: SurveyWatch, check: Callable[[Survey], None], process_log: Any, refusal: str) -> None:
        self._watch, self._check, self._process_log, self._refusal = watch, check, process_log, refusal
        self._retry_s: dict[bytes, float] = {}  # time of the next check, by fingerprint

    def check_all(self) -> list[Survey]:
        """Checks all surveys, and returns the usable surveys.

        Raises:
            Unreachable: if the server of the check is unreachable.
            UserError: if no survey is usable: the first survey's error.
        """
        usable, errors = self._check_each()
        if self._watch.only_file is None and any(isinstance(error, OpenSurveyChanged) for _, error in errors):
            self._watch.look()  # the open surveys take the places of the changed surveys
            usable, errors = self._check_each()
        for _, error in errors:
            if isinstance(error, Unreachable):
                raise error
        if errors and not usable:
            raise errors[0][1]
        for survey, error in errors:
            self._log_refusal(survey, error)
        return usable

    def _check_each(self) -> tuple[list[Survey], list[tuple[Survey, UserError]]]:
        surveys = self._watch.listed()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = list(zip(surveys, pool.map(self._error, surveys), strict=True))
        return [survey for survey, error in found if error is None], [(survey, error) for survey, error in found if error]

    def usable(self, survey: Survey) -> bool:
        try:
            error = self._error(survey)
        except Exception:  # the service continues with the other surveys
            log.exception("internal error", survey=survey.name)
            self.postpone(survey)
            return False
        if error is not None:
            self._log_refusal(survey, error)
        return error is None

    def _log_refusal(self, survey: Survey, error: UserError) -> None:
        self._process_log.error(self._refusal, survey=survey.name, error=str(error))

    def _error(self, survey: Survey) -> UserError | None:
        try:
            self._check(survey)
        except UserError as error:
            self.postpone(survey)
            return error
        self._retry_s.pop(survey.fingerprint, None)
        return None

    def postpone(self, survey: Survey) -> None:
        self._retry_s[survey.fingerprint] = time.monotonic() + RETRY_S

    def postponed(self, survey: Survey) -> bool:
        return survey.fingerprint in self._retry_s

    def due(self, survey: Survey) -> bool:
        return time.monotonic() >= self._retry_s.get(survey.fingerprint, 0.0)

    def forget_others(self, fingerprints: Iterable[bytes]) -> None:
        kept = set(fingerprints)
        self._retry_s = {fingerprint: at for fingerprint, at in self._retry_s.items() if fingerprint in kept}
