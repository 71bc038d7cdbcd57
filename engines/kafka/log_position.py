"""The schedule's view of Kafka's log: offsets, append times and markers."""

from collections.abc import Collection
from typing import Any

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import KafkaError, UnknownTopicOrPartitionError, for_code
from kafka.structs import OffsetAndTimestamp

from ldpstream.engines.kafka.clients import Producer, hearing
from ldpstream.runtime.errors import LogUnavailable
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey

ANSWER_MS = 5_000
CLOSE_S = 2


def connect_admin(settings: Settings, timeout_ms: int = 10_000) -> KafkaAdminClient:
    """Returns a client for `KafkaLogPosition`.

    Raises:
        LogUnavailable: if no broker answers.
    """
    with hearing(settings) as heard:
        try:
            return KafkaAdminClient(**settings.kafka_options(), bootstrap_timeout_ms=timeout_ms, request_timeout_ms=timeout_ms)
        except KafkaError as error:
            raise LogUnavailable(f"no Kafka broker answers at {settings.kafka}: {heard.why(error)}") from None


class MarkerProducer:
    """A producer of markers, which connects at first use.

    An abandoned marker may still reach the log.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._producer: Producer | None = None

    def append(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """Appends a marker to each partition, and returns the markers' append times in Unix milliseconds.

        Raises:
            KafkaError: if a broker refuses a marker or does not acknowledge it in time.
        """
        if self._producer is None:
            self._producer = Producer(self._settings, ANSWER_MS, ANSWER_MS // 2, ANSWER_MS)
        try:
            sent = {partition: self._producer.send(topic, b"", partition=partition) for partition in partitions}
            return {partition: int(future.get(timeout=2 * ANSWER_MS / 1000).timestamp) for partition, future in sent.items()}
        except KafkaError:
            self.close()
            raise

    def close(self) -> None:
        """Closes the connections. A further `append` connects again."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout=CLOSE_S)


class KafkaLogPosition:
    """The survey's reports topic.

    Raises (all methods):
        LogUnavailable: if the brokers do not answer in time or have no such topic; the error names the brokers.
    """

    def __init__(self, survey: Survey, settings: Settings, admin: KafkaAdminClient, markers: MarkerProducer) -> None:
        self._topic, self._bootstrap, self._admin, self._markers = survey.reports_topic, settings.kafka, admin, markers

    def _about(self) -> dict[str, Any]:
        try:
            [about] = self._admin.describe_topics([self._topic])
            if about["error_code"]:
                raise for_code(about["error_code"])(self._topic)
        except UnknownTopicOrPartitionError:
            raise LogUnavailable(f"Kafka at {self._bootstrap} has no topic {self._topic}") from None
        except KafkaError as error:
            raise self._unavailable(error) from error
        return dict(about)

    def _partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self._topic, number) for number in self.described()[1]]

    def described(self) -> tuple[str, list[int]]:
        about = self._about()
        return str(about.get("topic_id") or ""), sorted(p["partition_index"] for p in about["partitions"])

    def ends(self) -> dict[int, int]:
        return {tp.partition: found.offset for tp, found in self._offsets(self._partitions(), OffsetSpec.LATEST).items()}

    def mark(self, partitions: Collection[int]) -> dict[int, int]:
        try:
            return self._markers.append(self._topic, partitions)
        except KafkaError as error:
            raise LogUnavailable(f"Kafka at {self._bootstrap} does not accept markers for {self._topic}: {error}") from error

    def earliest_ms(self) -> int | None:
        found = self._offsets(self._partitions(), 0)
        return min((entry.timestamp for entry in found.values() if entry.offset >= 0), default=None)

    def _offsets(self, partitions: list[TopicPartition], at: OffsetSpec | int) -> dict[TopicPartition, OffsetAndTimestamp]:
        try:
            found: dict[TopicPartition, OffsetAndTimestamp] = self._admin.list_partition_offsets(dict.fromkeys(partitions, at))
        except KafkaError as error:
            raise self._unavailable(error) from error
        return found

    def _unavailable(self, error: KafkaError) -> LogUnavailable:
        return LogUnavailable(f"Kafka at {self._bootstrap} does not answer requests for {self._topic}: {error}")
