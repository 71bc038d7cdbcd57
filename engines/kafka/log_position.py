"""Kafka's log as the schedule and the agents see it: topics, offsets, append times and markers."""

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import KafkaError, UnknownTopicOrPartitionError, for_code
from kafka.structs import OffsetAndTimestamp

from ldpstream.engines.kafka.clients import Producer, hearing
from ldpstream.runtime.errors import LogUnavailable
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey

T = TypeVar("T")

ANSWER_MS = 5_000
CLOSE_S = 2


class LogClient:
    """Requests about topics, and appends of markers. Threads may share the client.

    The client connects at the first request, and again after an error. An abandoned marker may still reach the log.

    Raises (all methods except `close`):
        LogUnavailable: if the brokers do not answer in time, refuse the request, or have no such topic.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._admin: KafkaAdminClient | None = None
        self._producer: Producer | None = None
        self._lock = threading.Lock()

    def described(self, topic: str) -> tuple[str, list[int]]:
        """Returns the topic's id, which the broker sets at creation, and its partitions.

        The id is "" from a broker without topic ids (before Kafka 2.8).
        """

        def ask() -> dict[str, Any]:
            [about] = self._connected().describe_topics([topic])
            if about["error_code"]:
                kind = for_code(about["error_code"])
                raise kind("it does not exist" if kind is UnknownTopicOrPartitionError else kind.description)
            return dict(about)

        about = self._ask(topic, ask)
        return str(about.get("topic_id") or ""), sorted(partition["partition_index"] for partition in about["partitions"])

    def offsets(self, topic: str, at: Mapping[int, OffsetSpec | int]) -> dict[int, OffsetAndTimestamp]:
        """Returns for each partition an end, or the first record appended at or after a time in Unix milliseconds.

        The offset of a record is -1 if there is none.
        """
        wanted = {TopicPartition(topic, partition): place for partition, place in at.items()}
        found = self._ask(topic, lambda: self._connected().list_partition_offsets(wanted, timeout_ms=ANSWER_MS))
        return {place.partition: offset for place, offset in found.items()}

    def mark(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """Appends a marker to each partition, and returns the markers' append times in Unix milliseconds."""

        def append() -> dict[int, int]:
            if self._producer is None:
                self._producer = Producer(self._settings, ANSWER_MS, ANSWER_MS // 2, ANSWER_MS)
            sent = {partition: self._producer.send(topic, b"", partition=partition) for partition in partitions}
            return {partition: int(future.get(timeout=2 * ANSWER_MS / 1000).timestamp) for partition, future in sent.items()}

        return self._ask(topic, append)

    def delete_records(self, topic: str, partition: int, below: int) -> None:
        """Deletes the records of a partition below an offset."""
        self._ask(topic, lambda: self._connected().delete_records({TopicPartition(topic, partition): below}))

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _connected(self) -> KafkaAdminClient:
        if self._admin is None:
            limits = {"bootstrap_timeout_ms": ANSWER_MS, "request_timeout_ms": ANSWER_MS}
            self._admin = KafkaAdminClient(**self._settings.kafka_options(), **limits)
        return self._admin

    def _ask(self, topic: str, question: Callable[[], T]) -> T:
        with self._lock, hearing(self._settings) as heard:
            try:
                return question()
            except KafkaError as error:
                self._drop()
                raise LogUnavailable(f"Kafka at {self._settings.kafka}: topic {topic}: {heard.why(error)}") from None

    def _drop(self) -> None:
        admin, self._admin, producer, self._producer = self._admin, None, self._producer, None
        with suppress(KafkaError):
            if admin is not None:
                admin.close()
        if producer is not None:
            producer.close(timeout=CLOSE_S)


class KafkaLogPosition:
    """The survey's reports topic (`publishing.schedule.LogPosition`). All methods raise LogUnavailable, as in `LogClient`."""

    def __init__(self, survey: Survey, client: LogClient) -> None:
        self._topic, self._client = survey.reports_topic, client

    def described(self) -> tuple[str, list[int]]:
        return self._client.described(self._topic)

    def ends(self) -> dict[int, int]:
        return {partition: found.offset for partition, found in self._offsets(OffsetSpec.LATEST).items()}

    def mark(self, partitions: Collection[int]) -> dict[int, int]:
        return self._client.mark(self._topic, partitions)

    def earliest_ms(self) -> int | None:
        return min((found.timestamp for found in self._offsets(0).values() if found.offset >= 0), default=None)

    def _offsets(self, at: OffsetSpec | int) -> dict[int, OffsetAndTimestamp]:
        return self._client.offsets(self._topic, dict.fromkeys(self.described()[1], at))
