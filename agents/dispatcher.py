"""Dispatches the chunks of many surveys: each survey has a `Counting`, with its own tasks and its own waiting chunks.

The task that counts a survey's chunks lets the other tasks run after each chunk.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import structlog

from ldpstream.agents import metrics
from ldpstream.agents.counting import CLOSE_S, UNCOMMITTED, Counting
from ldpstream.agents.log import Chunk
from ldpstream.surveys import Survey

log = structlog.get_logger("ldpstream.agent")

HEALTH_S = 1.0
PROGRESS_S = 60.0  # a survey without a chunk for this long does not show that the consumer works

AssignedPartition = tuple[str, int]  # topic and number of a partition


class _Counted:
    def __init__(self, survey: Survey, counting: Counting) -> None:
        self.survey, self.counting = survey, counting
        self.waiting = asyncio.Queue[Chunk]()
        self.healthy = True
        self.took_s = -math.inf  # time of the last chunk
        self.n_partitions = 0
        self.tasks: list[asyncio.Task[None]] = []

    def own(self, partitions: Iterable[AssignedPartition]) -> set[int]:
        return {number for topic, number in partitions if topic == self.survey.reports_topic}

    def assign(self, partitions: Iterable[AssignedPartition]) -> None:
        own = self.own(partitions)
        self.n_partitions = len(own)
        self.counting.assign(own)

    def end(self) -> None:
        for task in self.tasks:
            if task is not asyncio.current_task():
                task.cancel()

    async def revoke(self, partitions: Iterable[AssignedPartition]) -> None:
        structlog.contextvars.bind_contextvars(survey=self.survey.name)
        await self.counting.revoke(self.own(partitions))

    async def close(self) -> None:
        try:
            await self.counting.close()
        except Exception:
            log.exception(UNCOMMITTED, survey=self.survey.name)


class Dispatcher:
    """Dispatches chunks to the countings of several surveys. Use this class in one event loop.

    Args:
        make: makes the counting of a survey.
        done: called with the reports topic and a chunk, after a counting has counted or ignored the chunk.
        failed: called with a survey whose counting raised an unexpected error, and the error, after the error was logged.
    """

    def __init__(
        self,
        make: Callable[[Survey], Counting],
        done: Callable[[str, Chunk], None],
        failed: Callable[[Survey, Exception], Awaitable[None]],
    ) -> None:
        self._make, self._done, self._failed = make, done, failed
        self._by_topic: dict[str, _Counted] = {}
        self._checked = False  # true if a health check has ended since `watch` last looked

    # ---- which surveys

    @property
    def topics(self) -> set[str]:
        return set(self._by_topic)

    def add(self, survey: Survey, assigned: Iterable[AssignedPartition]) -> None:
        """Starts to count a survey.

        Args:
            survey: a survey whose topics are usable; no other survey here has its name.
        """
        assert survey.reports_topic not in self._by_topic
        one = self._by_topic[survey.reports_topic] = _Counted(survey, self._make(survey))
        one.assign(assigned)
        for life in (one.counting.run, partial(self._count, one), partial(self._check_health, one)):
            one.tasks.append(asyncio.create_task(self._guard(one, life)))

    async def remove(self, survey: Survey) -> None:
        """Tries to commit a survey's counts a last time, then stops counting the survey."""
        one = self._by_topic.get(survey.reports_topic)
        if one is None or one.survey.fingerprint != survey.fingerprint:
            return
        await one.close()
        if self._by_topic.get(survey.reports_topic) is one:
            del self._by_topic[survey.reports_topic]
        one.end()

    async def close(self) -> None:
        counted = list(self._by_topic.values())
        await asyncio.gather(*(one.close() for one in counted))
        for one in counted:
            one.end()  # before the consumer's thread ends: the health check would need the thread

    async def _guard(self, one: _Counted, life: Callable[[], Awaitable[None]]) -> None:
        structlog.contextvars.bind_contextvars(survey=one.survey.name)
        try:
            await life()
        except Exception as error:
            log.exception("cannot count", survey=one.survey.name)
            await self._failed(one.survey, error)

    # ---- events from the consumer

    def assign(self, partitions: Iterable[AssignedPartition]) -> None:
        partitions = list(partitions)
        for one in self._by_topic.values():
            one.assign(partitions)

    async def revoke(self, partitions: Iterable[AssignedPartition]) -> None:
        """Tries to commit the partitions a last time, for at most `CLOSE_S` seconds."""
        partitions = list(partitions)
        revoking = [asyncio.create_task(one.revoke(partitions)) for one in self._by_topic.values()]
        if not revoking:
            return
        _, late = await asyncio.wait(revoking, timeout=CLOSE_S)
        for task in late:
            task.cancel()
        if late:
            log.warning(UNCOMMITTED, surveys=len(late))
        await asyncio.gather(*revoking, return_exceptions=True)

    def displace(self, partitions: Iterable[AssignedPartition]) -> None:
        for topic, number in partitions:
            if (one := self._by_topic.get(topic)) is not None:
                one.counting.displace([number])

    def take(self, topic: str, chunk: Chunk) -> None:
        """Accepts a chunk of a topic, to be counted later. Ignores a chunk of a survey that is no longer counted."""
        if (one := self._by_topic.get(topic)) is not None:
            one.took_s = time.monotonic()
            one.waiting.put_nowait(chunk)

    async def _count(self, one: _Counted) -> None:
        while True:
            chunk = await one.waiting.get()
            await one.counting.take(chunk)
            self._done(one.survey.reports_topic, chunk)
            await asyncio.sleep(0)  # a chunk of each other survey comes next

    # ---- health

    @property
    def unready(self) -> str | None:
        """None if the `Counting` of one survey is ready, or there is no survey; else the reason of the first survey."""
        reasons = [one.counting.unready for one in list(self._by_topic.values())]
        return None if not reasons or None in reasons else reasons[0]

    @property
    def store_answers(self) -> bool:
        return all(one.counting.store_refusal is None for one in list(self._by_topic.values()))

    @property
    def n_partitions(self) -> int:
        return sum(one.n_partitions for one in list(self._by_topic.values()))

    async def watch(self, alive: Callable[[], None]) -> None:
        """Calls `alive` every second, except while a restart of the process is the remedy.

        A stalled survey gets an error in the log, and the metric `ldpstream_agent_surveys` counts it as stalled. A restart is
        the remedy in two cases:

        - A survey has stalled, and no healthy survey has got a chunk for a minute.
        - There are surveys, but no health check has ended within the last second.
        """
        while True:
            await asyncio.sleep(HEALTH_S)
            counted, since_s = list(self._by_topic.values()), time.monotonic() - PROGRESS_S
            healthy = [one for one in counted if one.healthy]
            metrics.surveys.labels("counted").set(len(healthy))
            metrics.surveys.labels("stalled").set(len(counted) - len(healthy))
            progress = healthy == counted or any(one.took_s > since_s for one in healthy)
            if not counted or (self._checked and progress):
                alive()
            self._checked = False

    async def _check_health(self, one: _Counted) -> None:
        while True:
            await asyncio.sleep(HEALTH_S)
            before, one.healthy = one.healthy, await one.counting.healthy()
            self._checked = True
            if before and not one.healthy:
                log.error("the survey has stalled", survey=one.survey.name)
