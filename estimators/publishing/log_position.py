"""Offsets and append times of Kafka's log, for the schedule."""

from typing import Any

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import KafkaError, UnknownTopicOrPartitionError, for_code
from kafka.structs import OffsetAndTimestamp

from runtime.errors import LogUnavailable
from runtime.kafka_errors import hearing
from runtime.settings import Settings
from surveys import Survey


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


class KafkaLogPosition:
    """Offsets and append times of the survey's reports topic.

    The topic's timestamps are append times (LogAppendTime), so `offsets_at` searches by append time.

    Args:
        survey: the survey.
        settings: Kafka's address, for messages.
        admin: a client of Kafka (`connect_admin`). Several surveys may share it.

    Raises (all methods):
        LogUnavailable: if the brokers do not answer in time; the error names the brokers.
    """

    def __init__(self, survey: Survey, settings: Settings, admin: KafkaAdminClient) -> None:
        self._topic, self._bootstrap, self._admin = survey.reports_topic, settings.kafka, admin

    def _about(self) -> dict[str, Any]:
        """Returns the broker's current description of the topic. The client's cache may not yet know a new partition."""
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
        return [
            TopicPartition(self._topic, number) for number in sorted(p["partition_index"] for p in self._about()["partitions"])
        ]

    def log_id(self) -> str:
        return str(self._about().get("topic_id") or "")

    def offsets_at(self, time_ms: int) -> dict[int, int]:
        partitions = self._partitions()
        # read the end offsets before the search; otherwise a record appended between the two reads would be missed
        ends = self._offsets(partitions, OffsetSpec.LATEST)
        found = self._offsets(partitions, time_ms)
        return {tp.partition: found[tp].offset if found[tp].offset >= 0 else ends[tp].offset for tp in partitions}

    def earliest_ms(self) -> int | None:
        found = self._offsets(self._partitions(), 0)
        return min((entry.timestamp for entry in found.values() if entry.offset >= 0), default=None)

    def _offsets(self, partitions: list[TopicPartition], at: OffsetSpec | int) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Returns the offsets of every partition. A consumer's own request would omit partitions whose leader is unknown."""
        try:
            found: dict[TopicPartition, OffsetAndTimestamp] = self._admin.list_partition_offsets(dict.fromkeys(partitions, at))
        except KafkaError as error:
            raise self._unavailable(error) from error
        return found

    def _unavailable(self, error: KafkaError) -> LogUnavailable:
        return LogUnavailable(f"Kafka at {self._bootstrap} does not answer requests for {self._topic}: {error}")
