"""Restores the results in Redis from the topic of estimates, and the topic from the results."""

from collections.abc import Callable, Iterable

import msgspec
import structlog

from ldpstream.publishing.estimates.publication import Publication, publication_keys
from ldpstream.publishing.progress import EstimatesTopic, Progress, PublicationSummary
from ldpstream.publishing.results import KeptResults
from ldpstream.surveys import Survey

log = structlog.get_logger("ldpstream.estimator")

COMPARE_MS = 10_000  # time between two comparisons of the results with the progress
REFILLING = -1  # value of `Progress.topic_end` until the topic has all publications of the results again


class Copies:
    """Compares the two copies of the publications. Only the leading estimator may call the methods.

    Args:
        leads: renews the lease, and returns False if another estimator leads.
    """

    def __init__(self, survey: Survey, results: KeptResults, topic: EstimatesTopic | None, leads: Callable[[], bool]) -> None:
        self._survey, self._results, self._topic, self._leads = survey, results, topic, leads
        self._compared_ms: int | None = None
        self._in_neither: set[str] = set()  # keys of publications that could not be restored

    def publish(self, publications: list[Publication], after: Progress, in_topic: Iterable[PublicationSummary]) -> Progress:
        """Publishes a step to the topic, and returns the progress `after` the step with its new `topic_end`."""
        if self._topic is None:
            return after
        end = self._topic.publish(publications)
        if after.topic_end == REFILLING or end <= after.topic_end:
            return msgspec.structs.replace(after, topic_end=REFILLING)  # the topic is another one than before
        made = {p.key for p in publications}
        if any(found.step >= after.first_open and found.key not in made for found in in_topic):
            return after
        return msgspec.structs.replace(after, topic_end=end)

    def compare(self, saved: Progress, now_ms: int, taken_over: bool) -> Progress | None:
        """Restores lost copies.

        Returns:
            The progress that is saved now; None if another estimator has continued.
        """
        if self._topic is None:
            return saved
        if saved.topic_end == REFILLING or (taken_over and self._topic.end() < saved.topic_end):
            if (refilled := self._refill(self._topic, saved)) is None:
                return None
            saved = refilled
        if taken_over or self._compared_ms is None or not 0 <= now_ms - self._compared_ms < COMPARE_MS:
            if not self._restore(self._topic, saved):
                return None
            self._compared_ms = now_ms
        return saved

    def _kept(self, saved: Progress) -> range:
        return range(max(saved.first_step, saved.next_step - self._survey.retention_steps), saved.next_step)

    def _refill(self, topic: EstimatesTopic, saved: Progress) -> Progress | None:
        marked = msgspec.structs.replace(saved, topic_end=REFILLING)
        if not self._results.save([], saved, marked):
            return None
        told, n = topic.take_over(0, self._leads), 0
        for step in self._kept(saved):
            found = self._results.get([key for key in publication_keys(self._survey, step) if key not in told])
            if lost := [p for p in found if p is not None]:
                topic.publish(lost)
                n += len(lost)
        after = msgspec.structs.replace(saved, topic_end=topic.end())
        log.warning("the topic of estimates was filled again", survey=self._survey.name, publications=n)
        return after if self._results.save([], marked, after) else None

    def _restore(self, topic: EstimatesTopic, saved: Progress) -> bool:
        steps = self._kept(saved)
        if not any(self._lacking(step) for step in {*steps[:1], *steps[-1:]}):
            return True
        told, n = topic.take_over(0, self._leads), 0
        for step in steps:
            lacking = self._lacking(step)
            found = topic.read([key for key in lacking if key in told])
            self._in_neither.update(set(lacking) - {p.key for p in found})
            if found and not self._results.save(found, saved, saved):
                return False
            n += len(found)
        log.warning("estimates were restored from the topic", survey=self._survey.name, publications=n)
        return True

    def _lacking(self, step: int) -> list[str]:
        keys = [key for key in publication_keys(self._survey, step) if key not in self._in_neither]
        return [key for key, found in zip(keys, self._results.get(keys), strict=True) if found is None]
