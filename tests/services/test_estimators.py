"""Two estimators with a real Redis and a real topic. One estimator hangs, is replaced, and then continues."""

import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field

import pytest
import redis
from kafka import KafkaAdminClient
from msgspec.structs import replace

from ldpstream.engines.checkpoint import Checkpoint
from ldpstream.engines.kafka.redis_connection import connect
from ldpstream.engines.kafka.redis_results import RedisResults
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.engines.kafka.topics import ensure_topics
from ldpstream.publishing.copies import COMPARE_MS
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.publishing.results import KeptResults
from ldpstream.publishing.schedule import Schedule
from ldpstream.runtime.errors import LogUnavailable
from ldpstream.runtime.settings import Settings
from ldpstream.services.kafka_publisher import KafkaPublisher
from ldpstream.surveys import Survey
from tests.publishing.schedule_rig import MARGIN_MS, ScheduleLog, pane

from .rig import PATIENCE_S, RedisNode, wait_until
from .test_publisher import SURVEY, all_published

STEPS = SURVEY.window_steps + 3


@dataclass
class Hang:
    """A point where an estimator waits until the test releases the estimator."""

    there: threading.Event = field(default_factory=threading.Event)
    on: threading.Event = field(default_factory=threading.Event)

    def here(self) -> None:
        self.there.set()
        assert self.on.wait(PATIENCE_S)


class HangingStore(RedisCountStore):
    hang: Hang | None = None

    def prune(self, before_step: int, seen: Mapping[int, Checkpoint]) -> None:
        if self.hang is not None:
            self.hang.here()
        super().prune(before_step, seen)


class HangingTopic(KafkaPublisher):
    hang: Hang | None = None

    def publish(self, publications: list[Publication]) -> int:
        if self.hang is not None:
            self.hang.here()
        return super().publish(publications)


class Estimator:
    """A schedule with separate connections. The schedule ignores the lease in Redis: each estimator acts as the leader."""

    def __init__(self, survey: Survey, settings: Settings, log: ScheduleLog) -> None:
        self.client = connect(settings)
        self.store = HangingStore(survey, self.client)
        self.results, self.topic = KeptResults(survey, RedisResults(survey, self.client)), HangingTopic(survey, settings)
        vars(self.results)["lead"] = lambda for_ms=None: True
        self.schedule = Schedule(survey, self.store, log, self.results, [], self.topic)
        self.error: Exception | None = None

    def run(self, step: int) -> list[Publication]:
        return self.schedule.run(SURVEY.closes_ms(step) + MARGIN_MS)

    def run_apart(self, now_ms: int) -> threading.Thread:
        def work() -> None:
            try:
                self.schedule.run(now_ms)
            except LogUnavailable as error:
                self.error = error

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    def close(self) -> None:
        self.client.close()
        self.topic.close()


@dataclass
class Site:
    survey: Survey
    settings: Settings
    log: ScheduleLog
    one: Estimator
    two: Estimator

    def count(self, steps: int) -> None:
        """Writes the checkpoint that an agent writes after it has counted the log from the beginning."""
        panes = {key: table for step in range(steps) for key, table in pane(step).items()}
        with connect(self.settings) as client:
            store = RedisCountStore(self.survey, client)
            change = Checkpoint(steps, SURVEY.closes_ms(steps - 1), panes, writer=secrets.token_hex(8))
            assert store.commit(0, None, change)

    def check(self) -> None:
        """Checks that no publication is wrongly complete or replaces a more complete one. Redis and the topic must agree."""
        last: dict[str, Publication] = {}
        for p in all_published(self.settings, self.survey.estimates_topic):
            panes = min(p.step + 1, SURVEY.window_steps) if p.span == "window" else 1
            if p.complete:
                assert p.reports == (5 * panes if p.attribute == SURVEY.attributes[0].name else 0), p.key
            if p.key in last:
                assert (p.complete, p.reports) >= (last[p.key].complete, last[p.key].reports), p.key
            last[p.key] = p
        assert {p.key: p for p in self.one.results.history()} == last
        assert all(p.complete for p in last.values())


@pytest.fixture
def site(kafka: str, topic: str, redis_node: RedisNode) -> Iterator[Site]:
    survey = replace(SURVEY, name=topic[-40:])
    settings = Settings(kafka=kafka, redis=redis_node.url)
    ensure_topics(settings, survey)
    log = ScheduleLog([SURVEY.opens_ms(step) for step in range(STEPS)])
    with closing(Estimator(survey, settings, log)) as one, closing(Estimator(survey, settings, log)) as two:
        made = Site(survey, settings, log, one, two)
        made.count(STEPS)
        yield made


def flush(settings: Settings) -> None:
    with redis.Redis.from_url(settings.redis.get_secret_value()) as client:
        client.flushall()


def test_late_pruning_after_redis_lost_its_data_has_no_effect(site: Site) -> None:
    site.one.run(STEPS - 2)
    hang = site.one.store.hang = Hang()
    thread = site.one.run_apart(SURVEY.closes_ms(STEPS - 1) + MARGIN_MS)
    assert hang.there.wait(PATIENCE_S)
    flush(site.settings)
    site.count(STEPS)
    hang.on.set()
    thread.join(PATIENCE_S)
    with connect(site.settings) as client:
        store = RedisCountStore(site.survey, client)
        assert store.snapshot()[0].pruned_below == 0
    site.two.run(STEPS - 1)
    site.check()


def test_a_late_publication_of_a_replaced_estimator_is_refused(site: Site) -> None:
    """One estimator hangs before it publishes a step as incomplete. Meanwhile the other publishes this step as complete."""
    site.log.times[0].append(SURVEY.closes_ms(STEPS - 1) - 1)  # this record is not counted yet
    site.one.run(STEPS - 2)
    hang = site.one.topic.hang = Hang()
    thread = site.one.run_apart(site.one.schedule.deadline_ms(STEPS - 1))
    assert hang.there.wait(PATIENCE_S)
    site.log.times[0].pop()
    assert site.two.run(STEPS - 1)
    hang.on.set()
    thread.join(PATIENCE_S)
    assert isinstance(site.one.error, LogUnavailable)
    site.check()


def test_an_emptied_redis_gets_its_history_from_the_topic(site: Site) -> None:
    assert site.one.run(STEPS - 1)
    before = site.one.results.history()
    told = len(all_published(site.settings, site.survey.estimates_topic))
    flush(site.settings)
    assert site.one.schedule.run(site.one.schedule.deadline_ms(STEPS - 1)) == []  # no agent has recounted the log yet
    assert site.one.results.history() == before
    assert len(all_published(site.settings, site.survey.estimates_topic)) == told
    site.check()


def test_losing_the_progress_alone_does_no_harm(site: Site) -> None:
    """An operator who deletes the key of the progress causes this loss. The tables of the oldest steps are already pruned."""
    assert site.one.run(STEPS - 1)
    with redis.Redis.from_url(site.settings.redis.get_secret_value()) as client:
        client.delete(site.one.results.store.progress_name, site.one.results.store.where)
    site.two.run(STEPS - 1)
    site.check()


def test_estimates_deleted_alone_are_restored_from_the_topic(site: Site) -> None:
    assert site.one.run(STEPS - 1)
    before = site.one.results.history()
    for estimator in (site.one, site.two):  # a running estimator, then a started one
        with redis.Redis.from_url(site.settings.redis.get_secret_value()) as client:
            assert client.delete(site.one.results.store.where) == 1
        assert estimator.schedule.run(SURVEY.closes_ms(STEPS - 1) + MARGIN_MS + COMPARE_MS) == []
        assert site.one.results.history() == before
        site.check()


def test_a_deleted_topic_of_estimates_is_made_anew_and_filled(site: Site, kafka: str) -> None:
    site.one.run(STEPS - 2)
    before = site.one.results.history()
    with closing(KafkaAdminClient(bootstrap_servers=kafka)) as admin:
        admin.delete_topics([site.survey.estimates_topic])
        wait_until(lambda: site.survey.estimates_topic not in admin.list_topics(), lambda: "the topic is still there")
    ensure_topics(site.settings, site.survey)
    wait_until(lambda: goes_on(site), lambda: "no estimate")
    assert len(before) < len(site.one.results.history())
    site.check()


def goes_on(site: Site) -> bool:
    """Runs the schedule until it has nothing more to do. False if Kafka refuses."""
    try:
        while site.one.run(STEPS - 1):
            pass
    except LogUnavailable:
        return False
    return True
