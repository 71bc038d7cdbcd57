"""Keeps the counted surveys equal to the survey files: starts, stops and retries surveys while the agent runs."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

import structlog

from agents import metrics
from agents.countings import AssignedPartition, Countings
from runtime.survey_watch import LOOK_S, SurveyWatch
from runtime.waiting import Unreachable
from surveys import Survey
from surveys.errors import UserError

log = structlog.get_logger("ldpstream.agent")

RETRY_S = 15.0  # time between two checks of a survey whose topics cannot be used


class ServedSurveys:
    """The surveys that an agent counts. `check` runs before the event loop needs the surveys, `follow` afterwards.

    Args:
        watch: the survey files.
        countings: counts the surveys.
        check: checks that a survey's topics and its part of the count store are usable; runs in a thread.
        assigned: returns all partitions that are assigned to this process.
        subscribe: called with the reports topics of all counted surveys after a change.

    Attributes:
        started: True once `follow` has started the surveys.
    """

    def __init__(
        self,
        watch: SurveyWatch,
        countings: Countings,
        check: Callable[[Survey], None],
        assigned: Callable[[], Iterable[AssignedPartition]],
        subscribe: Callable[[set[str]], Awaitable[None]],
    ) -> None:
        self._watch, self._countings, self._check = watch, countings, check
        self._assigned, self._subscribe = assigned, subscribe
        self.started = False
        self._counted: dict[bytes, Survey] = {}
        self._retry_s: dict[bytes, float] = {}  # by fingerprint: time of the next check

    def check(self) -> set[str]:
        """Checks all surveys. Returns the reports topics of the usable surveys; `follow` retries the other surveys.

        Raises:
            Unreachable: if the broker is unreachable.
            UserError: if no survey is usable: the first survey's error.
        """
        usable, errors = set[str](), list[tuple[Survey, UserError]]()
        for text in self._watch.surveys.values():
            if (error := self._error(text.survey)) is None:
                usable.add(text.survey.reports_topic)
            else:
                errors.append((text.survey, error))
        for _, error in errors:
            if isinstance(error, Unreachable) or not usable:
                raise error
        for survey, error in errors:
            _report(survey, error)
        return usable

    def _error(self, survey: Survey) -> UserError | None:
        """Checks a survey. Returns the error and plans the next check if the survey is not usable."""
        try:
            self._check(survey)
        except UserError as error:
            self._retry_s[survey.fingerprint] = time.monotonic() + RETRY_S
            return error
        self._retry_s.pop(survey.fingerprint, None)
        return None

    async def follow(self) -> None:
        """Starts the usable surveys, then follows the survey files. Ends at once if there is only one file and no folder."""
        await self._reconcile(checked=True)
        self.started = True
        while self._watch.only_file is None:
            await asyncio.sleep(LOOK_S)
            await asyncio.to_thread(self._watch.look)
            await self._reconcile()

    async def _reconcile(self, checked: bool = False) -> None:
        """Stops and starts surveys.

        Args:
            checked: True if `check` has just checked all surveys.
        """
        wanted = {fingerprint: text.survey for fingerprint, text in self._watch.surveys.items()}
        for fingerprint in self._counted.keys() - wanted.keys():
            await self._countings.remove(self._counted.pop(fingerprint))
        self._retry_s = {fingerprint: at for fingerprint, at in self._retry_s.items() if fingerprint in wanted}
        for fingerprint, survey in wanted.items():
            retry_s = self._retry_s.get(fingerprint)
            if fingerprint in self._counted or (retry_s is not None and (checked or time.monotonic() < retry_s)):
                continue
            if survey.reports_topic in self._countings.topics:
                continue  # another survey of this name is still being removed
            if not checked and (error := await asyncio.to_thread(self._error, survey)) is not None:
                _report(survey, error)
                continue
            self._counted[fingerprint] = survey
            self._countings.add(survey, self._assigned())
        metrics.surveys.labels("waiting").set(len(wanted.keys() - self._counted.keys()))
        await self._subscribe(self._countings.topics)

    async def give_up(self, survey: Survey) -> None:
        """Stops counting a survey after an unexpected error. `follow` tries again later."""
        self._retry_s[survey.fingerprint] = time.monotonic() + RETRY_S
        if self._counted.pop(survey.fingerprint, None) is not None:
            await self._countings.remove(survey)


def _report(survey: Survey, error: UserError) -> None:
    log.error("survey not counted", survey=survey.name, error=str(error))
