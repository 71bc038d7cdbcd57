"""The copies of the estimates in Redis and in the topic, each of which may be lost alone."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from ldpstream.engines.checkpoint import Checkpoint
from ldpstream.publishing.copies import COMPARE_MS
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.publishing.schedule import Schedule
from ldpstream.services.kafka_publisher import record_key
from tests.faults.memory_store import MemoryCountStore, MemoryResults
from tests.faults.memory_topic import MemoryTopic, TopicClient

from .schedule_rig import MARGIN_MS, SURVEY, ScheduleLog, pane

STEPS = 4


class Site:
    """An estimator that has published the first steps of a survey."""

    def __init__(self, steps: int = STEPS - 1) -> None:
        self.store, self.results, self.topic = MemoryCountStore(SURVEY), MemoryResults(), MemoryTopic(lambda: 0)
        panes = {key: table for step in range(STEPS) for key, table in pane(step).items()}
        self.store.commit(0, None, Checkpoint(STEPS, SURVEY.closes_ms(STEPS - 1), panes))
        self.log = ScheduleLog([SURVEY.opens_ms(step) for step in range(STEPS)])
        self.schedule = self.start()
        self.now_ms = SURVEY.closes_ms(steps - 1) + MARGIN_MS
        self.run()
        self.before = self.results.history()
        assert self.topic.last == {p.key: p for p in self.before}

    def start(self) -> Schedule:
        return Schedule(SURVEY, self.store, self.log, self.results, [], topic=TopicClient(self.topic))

    def run(self) -> list[Publication]:
        return self.schedule.run(self.now_ms)


def test_lost_results_are_restored_from_the_topic_at_the_start() -> None:
    site = Site()
    site.results._publications.clear()
    site.results._filters.clear()
    site.schedule = site.start()
    records = len(site.topic.records)
    assert site.run() == []
    assert site.results.history() == site.before
    assert len(site.topic.records) == records


def test_results_are_compared_at_intervals() -> None:
    site = Site()
    site.run()
    site.results._publications.clear()
    site.run()
    assert site.results.history() == []
    site.now_ms += COMPARE_MS
    site.run()
    assert site.results.history() == site.before


def test_what_neither_has_is_not_sought_again() -> None:
    site = Site()
    site.results._publications.clear()
    site.topic.records.clear()
    taken = 0

    class Counting(TopicClient):
        def take_over(self, since: int, still: Callable[[], bool]) -> dict[str, Any]:
            nonlocal taken
            taken += 1
            return super().take_over(since, still)

    site.schedule = Schedule(SURVEY, site.store, site.log, site.results, [], topic=Counting(site.topic))
    for _ in range(3):
        site.run()
        site.now_ms += COMPARE_MS
    before = taken
    for _ in range(3):
        site.run()
        site.now_ms += COMPARE_MS // 2
    assert taken == before


def test_a_topic_that_was_made_anew_is_filled_from_the_results() -> None:
    site = Site()
    site.topic.records.clear()
    site.schedule = site.start()
    site.run()
    assert site.topic.last == {p.key: p for p in site.before}


@pytest.mark.parametrize("steps", [1, STEPS - 1])
def test_a_topic_that_was_made_anew_between_two_steps_is_filled_from_the_results(steps: int) -> None:
    """The estimator still owns the topic, and publishes the next step first. After one step, both topics have the same end."""
    site = Site(steps)
    site.topic.records.clear()
    site.now_ms = SURVEY.closes_ms(steps) + MARGIN_MS
    assert site.run()
    site.run()
    assert site.topic.last == {p.key: p for p in site.results.history()}
    assert len(site.topic.last) > len(site.before)


def test_an_interrupted_refill_is_continued() -> None:
    site = Site()
    site.topic.records.clear()

    class Failing(TopicClient):
        left = 1

        def publish(self, publications: list[Publication]) -> int:
            self.left -= 1
            if self.left < 0:
                raise InterruptedError
            return super().publish(publications)

    site.schedule = Schedule(SURVEY, site.store, site.log, site.results, [], topic=Failing(site.topic))
    with pytest.raises(InterruptedError):
        site.run()
    assert 0 < len(site.topic.last) < len(site.before)
    site.schedule = site.start()
    site.run()
    assert site.topic.last == {p.key: p for p in site.before}


def test_a_take_over_reads_only_what_the_results_may_lack() -> None:
    """The estimator reads from an offset, because the topic's time stamps come from the estimators' clocks."""
    site = Site()
    seen = list[int]()

    class Noting(TopicClient):
        def take_over(self, since: int, still: Callable[[], bool]) -> dict[str, Any]:
            seen.append(since)
            return super().take_over(since, still)

    site.schedule = Schedule(SURVEY, site.store, site.log, site.results, [], topic=Noting(site.topic))
    site.run()
    assert seen == [len(site.topic.records)]


def test_two_surveys_of_one_name_have_different_record_keys() -> None:
    """Otherwise compaction removes the history of a survey that was replaced under its name."""

    p = Site().before[0]
    assert record_key(p) != record_key(replace(p, fingerprint="0" * 16))
    assert record_key(p).decode() == f"{p.fingerprint}|{p.key}"
