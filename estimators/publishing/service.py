"""The estimator process: the schedule on a real clock, with its publishers."""

from collections.abc import Callable
from contextlib import suppress
from threading import Event

import structlog
from prometheus_client import REGISTRY

from estimators.publishing.api import create_api
from estimators.publishing.log_position import KafkaLogPosition
from estimators.publishing.page_server import PageServer
from estimators.publishing.publication import Publication
from estimators.publishing.publishers import KafkaPublisher, PrometheusPublisher
from estimators.publishing.results import RedisResults
from estimators.publishing.schedule import Progress, Publisher, Schedule
from estimators.publishing.vitals import Vitals
from runtime.clock import now_ms
from runtime.errors import LogUnavailable
from runtime.malloc import keep_freed_memory
from runtime.monitoring import serve_monitoring
from runtime.settings import Settings, SettingsError, cannot_listen
from runtime.waiting import Unreachable, wait_for
from stores.count_store import StoreUnavailable
from stores.redis_connection import Client, StoreRefused, connect
from stores.redis_store import RedisCountStore
from surveys import Survey

log = structlog.get_logger("ldpstream.estimator")

MAX_PUBLISHED_K = 100_000
TICK_S, SHORTEST_TICK_S = 0.2, 0.02
RETRY_S = 2.0


def serve(
    survey: Survey,
    settings: Settings,
    stop: Event,
    seen: Callable[[Publication], None],
    check_topics: Callable[[], None],
    until: int | None = None,
) -> list[Publication]:
    """Estimates every step after its close, until `stop` is set or all steps through `until` are final.

    Several estimators may run at once: one works. If the working estimator ends, another estimator takes over within seconds.

    The estimator waits while Kafka or Redis is unreachable, also at start-up.

    Args:
        survey: the survey.
        settings: the addresses of Kafka and Redis.
        stop: an event; the caller sets the event to end the estimator.
        seen: called with every publication made.
        check_topics: checks the topics, and raises `Unreachable` while Kafka is unreachable.
        until: the last step wanted; None for no end.

    Returns:
        All publications kept in Redis, oldest step first.

    Raises:
        Stopped: if `stop` is set before Kafka and Redis have answered.
        StoreRefused: if Redis refuses a command that the service needs. `serve` also passes on every other error of
        `check_topics`.
        SettingsError: if an attribute has too many values to be published.
    """
    for attribute in survey.attributes:
        if attribute.k > MAX_PUBLISHED_K:
            raise SettingsError(
                f"attribute {attribute.name} has {attribute.k} values; at most {MAX_PUBLISHED_K} can be published"
            )
    keep_freed_memory()
    vitals: Vitals | None = None
    if settings.metrics_port:
        serve_monitoring(settings.metrics_host, settings.metrics_port, lambda: vitals is not None and vitals.well)

    def reach_redis() -> tuple[RedisCountStore, Client, RedisResults]:
        store, client = RedisCountStore(survey, settings), connect(settings, timeout_s=10)
        results = RedisResults(survey, client)
        store.check_estimating()
        results.check(settings)
        prometheus.show(results.history())
        return store, client, results

    def reach_kafka() -> tuple[KafkaLogPosition, KafkaPublisher]:
        check_topics()
        publisher = KafkaPublisher(survey, settings)  # created before the other clients; the publisher keeps no connection open
        return KafkaLogPosition(survey, settings), publisher

    prometheus = PrometheusPublisher(survey, REGISTRY)
    kafka_at, redis_at = f"Kafka at {settings.kafka}", f"Redis at {settings.redis_url()}"
    wait_for(kafka_at, check_topics, stop.wait, log.warning)  # reports Kafka's refusal even if Redis is unreachable
    store, client, results = wait_for(redis_at, reach_redis, stop.wait, log.warning, _redis_unreachable)
    position, kafka = wait_for(kafka_at, reach_kafka, stop.wait, log.warning, _kafka_unreachable)
    vitals = Vitals(survey, store, position, results, settings.margin_ms, prometheus, REGISTRY)
    publishers: list[Publisher] = [prometheus, _Watcher(seen)]
    schedule = Schedule(survey, store, position, results, publishers, settings.post, settings.margin_ms, kafka)
    page = _serve_page(survey, settings, results, store)
    try:
        while not stop.is_set():
            try:
                vitals.look(now_ms())
                schedule.run(now_ms(), stop.is_set)
                if until is not None and _reached(results.progress(), until):
                    break
            except (LogUnavailable, StoreUnavailable) as error:
                log.warning("estimate delayed", error=str(error))
                stop.wait(RETRY_S)
            if not schedule.prepare():
                stop.wait(_pause_s(schedule.due_ms(), now_ms()))
        return results.history()
    finally:
        if page is not None:
            page.close()
        with suppress(StoreUnavailable):
            results.resign()
        kafka.close()
        position.close()
        store.close()
        client.close()


def _redis_unreachable(error: Exception) -> bool:
    return isinstance(error, StoreUnavailable) and not isinstance(error, StoreRefused)


def _kafka_unreachable(error: Exception) -> bool:
    """True if Kafka is unreachable. `check_topics` reports what Kafka refuses."""
    return isinstance(error, Unreachable | LogUnavailable)


def _serve_page(survey: Survey, settings: Settings, results: RedisResults, store: RedisCountStore) -> PageServer | None:
    if not settings.page_port:
        return None
    try:
        page = PageServer(create_api(survey, results, store.rejected, settings.post), settings.page_host, settings.page_port)
    except OSError as error:
        raise cannot_listen("PAGE", settings.page_host, settings.page_port, error) from None
    log.info("serving the page", url=page.url)
    return page


class _Watcher:
    """Logs each publication and passes the publication to a function."""

    def __init__(self, seen: Callable[[Publication], None]) -> None:
        self._seen = seen

    def publish(self, publications: list[Publication]) -> None:
        for p in publications:
            if p.span == "step":
                log.info("published", attribute=p.attribute, step=p.step, reports=p.reports, complete=p.complete)
            self._seen(p)


def _pause_s(due_ms: int | None, now_ms: int) -> float:
    """Returns the pause until the next run, in seconds: short near the time when the next step is due, otherwise long."""
    return TICK_S if due_ms is None else min(max(abs(due_ms - now_ms) / 1000, SHORTEST_TICK_S), TICK_S)


def _reached(progress: Progress | None, until: int) -> bool:
    """True if all steps through `until` are final."""
    return progress is not None and progress.next_step > until and all(step > until for step in progress.incomplete)
