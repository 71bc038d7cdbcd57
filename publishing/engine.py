"""The engine of a process gives each survey its counts, log and results. `Cluster` has them in Redis and Kafka."""

from collections.abc import Callable
from typing import Protocol

from kafka import KafkaAdminClient

from ldpstream.publishing.kafka_publisher import KafkaPublisher
from ldpstream.publishing.log_position import KafkaLogPosition, MarkerProducer
from ldpstream.publishing.results import KeptResults, RedisResults
from ldpstream.publishing.schedule import LogPosition
from ldpstream.publishing.stored import StoredReader
from ldpstream.runtime.settings import Settings
from ldpstream.stores.count_store import CountStore
from ldpstream.stores.redis_connection import Client
from ldpstream.stores.redis_store import RedisCountStore
from ldpstream.surveys import Survey


class Engine(Protocol):
    """Gives each survey its parts. All surveys of a process share one engine."""

    def count_store(self, survey: Survey) -> CountStore:
        """Returns the survey's counts. Asks nothing yet."""

    def results(self, survey: Survey, reader: StoredReader) -> KeptResults:
        """Returns the survey's results. Asks nothing yet."""

    def check(self, survey: Survey) -> None:
        """Checks that the survey can be estimated, and creates its missing topics.

        Raises:
            Unreachable: if a server is unreachable.
            UserError: if the survey is refused.
        """

    def open(self, survey: Survey, reader: StoredReader) -> tuple[LogPosition, KafkaPublisher | None]:
        """Checks the survey and our rights. Returns the survey's log, and its topic of estimates if there is one.

        Raises:
            Unreachable, LogUnavailable, StoreUnavailable: if a server is unreachable.
            UserError: if the survey, or one of our rights, is refused.
        """

    def count(self, survey: Survey, now_ms: int) -> None:
        """Counts the new reports of an open survey. Has no effect if agents count them.

        Raises:
            StoreUnavailable: if the reports or the counts are unreachable.
        """

    def close(self) -> None:
        """Closes the shared clients."""


class Cluster:
    """Kafka and Redis. Each survey has a producer of its own: its transactions fence this survey's topic.

    Args:
        settings: the addresses of Kafka and Redis.
        redis, admin, markers: the clients that all surveys share.
        check_topics: checks a survey's topics; see `Engine.check`.
    """

    def __init__(
        self,
        settings: Settings,
        redis: Client,
        admin: KafkaAdminClient,
        markers: MarkerProducer,
        check_topics: Callable[[Survey], None],
    ) -> None:
        self._settings, self._redis, self._admin, self._markers = settings, redis, admin, markers
        self._check_topics = check_topics

    def count_store(self, survey: Survey) -> RedisCountStore:
        return RedisCountStore(survey, self._settings, client=self._redis)

    def results(self, survey: Survey, reader: StoredReader) -> RedisResults:
        return RedisResults(survey, self._redis, reader)

    def check(self, survey: Survey) -> None:
        self._check_topics(survey)

    def open(self, survey: Survey, reader: StoredReader) -> tuple[LogPosition, KafkaPublisher | None]:
        self._check_topics(survey)
        self.count_store(survey).check_estimating()
        self.results(survey, reader).check(self._settings)
        position = KafkaLogPosition(survey, self._settings, self._admin, self._markers)
        return position, KafkaPublisher(survey, self._settings, reader)

    def count(self, survey: Survey, now_ms: int) -> None:
        """Has no effect: agents count."""

    def close(self) -> None:
        self._markers.close()
        self._admin.close()
        self._redis.close()
