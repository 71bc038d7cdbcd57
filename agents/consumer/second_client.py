"""A second connection to the broker, through another library, for requests that must not depend on the consumer."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import KafkaError, for_code

from ldpstream.agents.log import Found
from ldpstream.runtime.errors import LogUnavailable
from ldpstream.runtime.settings import Settings

T = TypeVar("T")

ANSWER_MS = 3_000


class SecondClient:
    """A client for requests about topics.

    Raises (all methods except `close`):
        LogUnavailable: if the broker does not answer or does not serve the topic.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: KafkaAdminClient | None = None
        self._lock = threading.Lock()

    def topic_id(self, topic: str) -> str:
        """Returns the topic id, which the broker sets at creation; "" from a broker without topic ids (before Kafka 2.8)."""
        return str(self._describe(topic).get("topic_id") or "")

    def partitions(self, topic: str) -> set[int]:
        return {int(partition["partition_index"]) for partition in self._describe(topic)["partitions"]}

    def _describe(self, topic: str) -> dict[str, Any]:
        def ask(client: KafkaAdminClient) -> dict[str, Any]:
            [about] = client.describe_topics([topic])
            if about["error_code"]:
                raise for_code(about["error_code"])(topic)
            return dict(about)

        return self._ask(topic, ask)

    def check(self, topic: str, partitions: Sequence[int]) -> None:
        """Checks that the broker returns the end offsets of these partitions (of partition 0 if the list is empty)."""
        wanted = {TopicPartition(topic, partition): OffsetSpec.LATEST for partition in partitions or [0]}
        self._ask(topic, lambda client: client.list_partition_offsets(wanted, timeout_ms=ANSWER_MS))

    def later(self, topic: str, times_ms: Mapping[int, int]) -> dict[int, Found | None]:
        """Like `agents.log.CountedLog.later`, but raises LogUnavailable if the broker of any partition does not answer."""
        wanted = {TopicPartition(topic, partition): time_ms for partition, time_ms in times_ms.items()}
        answer = self._ask(topic, lambda client: client.list_partition_offsets(wanted, timeout_ms=ANSWER_MS))
        return {at.partition: Found(it.offset, it.timestamp) if it.offset >= 0 else None for at, it in answer.items()}

    def close(self) -> None:
        """Closes the connection."""
        with self._lock:
            self._drop()

    def _ask(self, topic: str, question: Callable[[KafkaAdminClient], T]) -> T:
        with self._lock:
            try:
                if self._client is None:
                    limits = {"bootstrap_timeout_ms": ANSWER_MS, "request_timeout_ms": ANSWER_MS}
                    self._client = KafkaAdminClient(**self._settings.kafka_options(), **limits)
                return question(self._client)
            except KafkaError as error:
                self._drop()
                raise LogUnavailable(f"{topic}: {type(error).__name__}: {error}") from None

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(KafkaError):
                client.close()
