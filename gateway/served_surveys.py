"""Keeps the surveys of a gateway equal to the survey files, while the gateway runs."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import structlog

from ldpstream.engines.gateway_log import GatewayLog
from ldpstream.gateway.served_signatures import ServedSignatures
from ldpstream.gateway.surveys import GatewaySurveys
from ldpstream.surveys import Survey
from ldpstream.surveys.errors import UserError
from ldpstream.surveys.life.checks import RETRY_S, SurveyChecks
from ldpstream.surveys.life.folder import Changes, SurveyText
from ldpstream.surveys.life.keeper import NotCounted
from ldpstream.surveys.life.watch import LOOK_S, SurveyWatch

log = structlog.get_logger("ldpstream.gateway")


class SurveyLog(GatewayLog, Protocol):
    """The log of one survey, which can end."""

    def close(self) -> None:
        """Takes no further append; continues the appends so far."""


class Logs(Protocol):
    """The logs of all surveys."""

    @property
    def reachable(self) -> bool:
        """True if the broker answers, or the data folder accepts appends, whatever the state of single surveys."""

    def add(self, survey: Survey) -> SurveyLog:
        """Returns the log of a survey whose topic exists."""


class ServedSurveys:
    """The surveys of the files, as surveys of a gateway.

    Args:
        check: checks that a survey's topic is usable; runs in a thread.
        counted: raises NotCounted if agents no longer count a survey that is served; runs in a thread.
    """

    def __init__(
        self,
        watch: SurveyWatch,
        surveys: GatewaySurveys,
        logs: Logs,
        check: Callable[[Survey], None],
        counted: Callable[[Survey], None] | None = None,
    ) -> None:
        self._watch, self._surveys, self._logs, self._counted = watch, surveys, logs, counted
        self._checks = SurveyChecks(watch, check, log, "survey not served")
        self._open: dict[bytes, SurveyLog] = {}
        self._looked_s: dict[bytes, float] = {}  # time of the last `counted`, by fingerprint
        self._signatures = ServedSignatures()
        self._signatures.look(watch.surveys.values())
        for text in watch.surveys.values():
            self._put(text)
        surveys.incomplete = watch.incomplete

    def check(self) -> list[Survey]:
        """Checks all surveys. Returns the usable surveys.

        Raises:
            Unreachable: if the server of the check is unreachable.
            UserError: if no survey is usable: the first survey's error.
        """
        return self._checks.check_all()

    def begin(self, usable: list[Survey]) -> None:
        for fingerprint in self._surveys.by_fingerprint.keys() - self._watch.surveys.keys():
            self._surveys.remove(fingerprint)
        for text in self._watch.surveys.values():
            self._put(text)
        self._surveys.incomplete = self._watch.incomplete
        for survey in usable:
            self._begin(survey)

    async def follow(self) -> None:
        """Follows the survey files and the agents' surveys until it is cancelled. A single file is read only at the start."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.look()
            except Exception:  # without this task the gateway would follow no further change
                log.exception("internal error")

    async def look(self) -> None:
        if self._watch.only_file is None:
            await self._follow_files()
        for survey in list(self._surveys.by_fingerprint.values()):
            if survey.fingerprint in self._open or not self._checks.due(survey):
                continue
            if not self._logs.reachable:
                return  # the check would wait for the broker
            if await asyncio.to_thread(self._checks.usable, survey):
                self._begin(survey)
        await self._look_at_agents()

    async def _look_at_agents(self) -> None:
        """Looks for one survey at a time whether agents still count it. Otherwise its reports get 503."""
        if self._counted is None or not self._open or not self._logs.reachable:
            return
        survey = self._surveys.by_fingerprint[min(self._open, key=self._looked_s.__getitem__)]
        if time.monotonic() - self._looked_s[survey.fingerprint] < RETRY_S:
            return
        self._looked_s[survey.fingerprint] = time.monotonic()
        try:
            await asyncio.to_thread(self._counted, survey)
        except NotCounted as error:
            log.error("survey not served", survey=survey.name, error=str(error))
            self._checks.postpone(survey)
            self._surveys.detach(survey)
            self._open.pop(survey.fingerprint).close()
        except UserError as error:
            log.warning("the agents' survey is unknown", survey=survey.name, error=str(error))

    async def _follow_files(self) -> None:
        changes, renewed = await asyncio.to_thread(self._look_at_files)
        for text in changes.removed:
            self._surveys.remove(text.survey.fingerprint)
            if (ended := self._open.pop(text.survey.fingerprint, None)) is not None:
                ended.close()
        for text in renewed:  # a new survey has no log yet: its reports get 503
            self._put(text)
        self._surveys.incomplete = self._watch.incomplete
        self._checks.forget_others(self._surveys.by_fingerprint)

    def _look_at_files(self) -> tuple[Changes, list[SurveyText]]:
        changes = self._watch.look()
        renewed = [*changes.added, *changes.updated]
        for text in renewed:
            _ = text.survey.device_survey  # takes long for some mechanisms; the survey keeps the result
        signed = self._signatures.look(self._watch.surveys.values())
        return changes, list(self._watch.surveys.values()) if signed else renewed

    def _put(self, text: SurveyText) -> None:
        self._surveys.put(text.survey, text.text, self._signatures.of(text))

    def _begin(self, survey: Survey) -> None:
        opened = self._open[survey.fingerprint] = self._logs.add(survey)
        self._looked_s[survey.fingerprint] = time.monotonic()
        self._surveys.attach(survey, opened)
