"""The engine of the services (`publishing.engine`): counts and results in Redis, log and estimates in Kafka."""

from collections.abc import Callable
from typing import Final

from ldpstream.engines.kafka.log_position import KafkaLogPosition, LogClient
from ldpstream.engines.kafka.redis_connection import Client
from ldpstream.engines.kafka.redis_results import RedisResults
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.publishing.results import KeptResults
from ldpstream.publishing.schedule import LogPosition
from ldpstream.runtime.settings import Settings
from ldpstream.services.kafka_publisher import KafkaPublisher
from ldpstream.surveys import Survey


class Cluster:
    """Gives each survey its parts in Kafka and Redis."""

    deadline_steps: Final = 1  # the agents of a partition may be away

    def __init__(
        self, settings: Settings, client: Client, log_client: LogClient, check_topics: Callable[[Survey], None]
    ) -> None:
        self._settings, self._redis, self._log_client = settings, client, log_client
        self.check = check_topics

    def count_store(self, survey: Survey) -> RedisCountStore:
        return RedisCountStore(survey, self._redis)

    def results(self, survey: Survey) -> KeptResults:
        return KeptResults(survey, RedisResults(survey, self._redis))

    def open(self, survey: Survey) -> tuple[LogPosition, KafkaPublisher | None]:
        self.check(survey)
        self.count_store(survey).heads()  # raises StoreRefused if Redis denies our login
        position = KafkaLogPosition(survey, self._log_client)
        return position, KafkaPublisher(survey, self._settings)

    def close(self) -> None:
        self._log_client.close()
        self._redis.close()
