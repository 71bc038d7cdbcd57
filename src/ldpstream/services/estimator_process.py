"""The estimator process: connects to Kafka and Redis, serves metrics, and runs the loop of the estimates."""

from collections.abc import Callable
from contextlib import closing
from threading import Event

import structlog

from ldpstream.engines.count_store import StoreRefused, StoreUnavailable
from ldpstream.engines.kafka.log_position import LogClient
from ldpstream.engines.kafka.redis_connection import Client, connect
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.engines.kafka.topics import check_broker
from ldpstream.estimators import compiled
from ldpstream.publishing.process.estimator_loop import EstimatorLoop
from ldpstream.runtime.clock import SteadyClock
from ldpstream.runtime.descriptors import raise_limit
from ldpstream.runtime.errors import wait_for
from ldpstream.runtime.monitoring import serve_monitoring
from ldpstream.runtime.process import keep_freed_memory
from ldpstream.runtime.settings import Settings
from ldpstream.services.cluster import Cluster
from ldpstream.surveys import Survey
from ldpstream.surveys.life.watch import SurveyWatch

log = structlog.get_logger("ldpstream.estimator")


def serve(watch: SurveyWatch, settings: Settings, stop: Event, check_topics: Callable[[Survey], None]) -> None:
    """Estimates the steps of the surveys after their close, until `stop` is set.

    Several estimators may run at once: they share the surveys, and one works on each survey. If an estimator ends, the others
    take its surveys over.

    The estimator waits while Kafka or Redis is unreachable, also at start-up. With several surveys, a refused survey is
    reported and tried again.

    Args:
        watch: the survey files.
        stop: ends the estimates when it is set.

    Raises:
        UserError: if Kafka or Redis refuses our login, or something that a single survey needs.
    """
    keep_freed_memory()
    raise_limit()
    compiled.load()
    loop: EstimatorLoop | None = None
    if settings.metrics_port:
        serve_monitoring(settings.metrics_host, settings.metrics_port, lambda: "starting" if loop is None else loop.unready)
    with closing(_connect(watch, settings, stop, check_topics)) as cluster:
        loop = EstimatorLoop(watch, cluster, stop, settings, SteadyClock(watch.listed))
        loop.run()


def _connect(watch: SurveyWatch, settings: Settings, stop: Event, check_topics: Callable[[Survey], None]) -> Cluster:
    def check() -> None:
        if watch.only_file is None:
            check_broker(settings)
        else:
            check_topics(*watch.listed())

    def reach_redis() -> Client:
        client = connect(settings, timeout_s=10)
        if watch.only_file is not None:
            (survey,) = watch.listed()
            RedisCountStore(survey, client).heads()
        return client

    # reports Kafka's refusal even if Redis is unreachable
    wait_for(f"Kafka at {settings.kafka}", check, stop.wait, log.warning)
    client = wait_for(f"Redis at {settings.redis_url()}", reach_redis, stop.wait, log.warning, _redis_unreachable)
    return Cluster(settings, client, LogClient(settings), check_topics)


def _redis_unreachable(error: Exception) -> bool:
    return isinstance(error, StoreUnavailable) and not isinstance(error, StoreRefused)
