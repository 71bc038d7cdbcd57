"""Keeps the counted surveys equal to the usable files of a folder: checks, starts, stops and retries them.

A single survey file is read only at the start.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from ldpstream.agents import metrics
from ldpstream.agents.dispatcher import AssignedPartition, Dispatcher
from ldpstream.engines.count_store import StoreRefused, StoreUnavailable
from ldpstream.engines.kafka.redis_connection import Client
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.engines.kafka.topics import ensure_topics
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey
from ldpstream.surveys.life.checks import SurveyChecks
from ldpstream.surveys.life.keeper import SurveyKeeper
from ldpstream.surveys.life.watch import LOOK_S, SurveyWatch

log = structlog.get_logger("ldpstream.agent")


class CountedSurveys:
    """The surveys that an agent counts.

    Args:
        check: checks that a survey's topics and its part of the count store are usable; runs in a thread.
        assigned: returns all partitions that are assigned to this process.
        forget: called with each counted survey that is no longer in the files; runs in a thread.
    """

    def __init__(
        self,
        watch: SurveyWatch,
        dispatcher: Dispatcher,
        check: Callable[[Survey], None],
        assigned: Callable[[], Iterable[AssignedPartition]],
        subscribe: Callable[[set[str]], Awaitable[None]],
        forget: Callable[[Survey], None],
    ) -> None:
        self._watch, self._dispatcher, self._checks = watch, dispatcher, SurveyChecks(watch, check, log, "survey not counted")
        self._assigned, self._subscribe, self._forget = assigned, subscribe, forget
        self.started = False
        self._counted: dict[bytes, Survey] = {}

    def check(self) -> set[str]:
        """Checks all surveys. Returns the reports topics of the usable surveys.

        Raises:
            Unreachable: if the broker is unreachable.
            UserError: if no survey is usable: the first survey's error.
        """
        return {survey.reports_topic for survey in self._checks.check_all()}

    async def follow(self) -> None:
        """Starts the usable surveys, then follows the survey files. With a single file, ends after the start."""
        await self._reconcile(checked=True)
        self.started = True
        while self._watch.only_file is None:
            await asyncio.sleep(LOOK_S)
            await asyncio.to_thread(self._watch.look)
            await self._reconcile()

    async def _reconcile(self, checked: bool = False) -> None:
        wanted = {fingerprint: text.survey for fingerprint, text in self._watch.surveys.items()}
        for survey in [survey for fingerprint, survey in self._counted.items() if fingerprint not in wanted]:
            self._counted.pop(survey.fingerprint, None)  # `give_up` may have removed it during an earlier iteration
            await self._dispatcher.remove(survey)
            await asyncio.to_thread(self._forget, survey)
        self._checks.forget_others(wanted)
        for fingerprint, survey in wanted.items():
            waits = self._checks.postponed(survey) if checked else not self._checks.due(survey)
            if fingerprint in self._counted or waits:
                continue
            if survey.reports_topic in self._dispatcher.topics:
                continue  # another survey of this name is still being removed
            if not checked and not await asyncio.to_thread(self._checks.usable, survey):
                continue
            self._counted[fingerprint] = survey
            self._dispatcher.add(survey, self._assigned())
        metrics.surveys.labels("waiting").set(len(wanted.keys() - self._counted.keys()))
        await self._subscribe(self._dispatcher.topics)

    async def give_up(self, survey: Survey) -> None:
        """Stops counting a survey after an unexpected error; `follow` tries again later."""
        self._checks.postpone(survey)
        if self._counted.pop(survey.fingerprint, None) is not None:
            await self._dispatcher.remove(survey)


def check_survey(settings: Settings, survey: Survey, group: str, client: Client, keeper: SurveyKeeper) -> None:
    """Checks that a survey's topics and its part of Redis can be used. Creates missing topics.

    Raises:
        TopicError: if the broker or a topic cannot be used (the subclass BrokerUnreachable: if the broker is unreachable).
        StoreRefused: if Redis denies the login or the right to write. If Redis does not answer, only logs a warning.
        OpenSurveyChanged, KeptUnreadable: as for `SurveyKeeper.check`.
    """
    ensure_topics(settings, survey, "agent", group)
    try:
        RedisCountStore(survey, client).check_writes()
    except StoreRefused:
        raise
    except StoreUnavailable as error:
        log.warning("Redis does not answer; our login is not checked", error=str(error))
    keeper.check(survey, write=True)
