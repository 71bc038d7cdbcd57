"""A sink for envelopes: a Kafka topic."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kafka.errors import KafkaError

from ldpstream.engines.kafka.clients import Producer, hearing
from ldpstream.engines.kafka.topics import ensure_topics
from ldpstream.producers.sinks import SinkError
from ldpstream.runtime.errors import Stopped, wait_for
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey
from ldpstream.surveys.envelope import MAX_ENVELOPE_BYTES
from ldpstream.surveys.errors import Unreachable

CONNECT_MS = 5_000
REQUEST_MS = 10_000
DELIVERY_MS = 30_000  # a shorter outage of the broker only causes a delay
CLOSE_S = 5.0
PATIENCE_S = 60.0  # longest wait for the first answer
BATCH_BYTES = 256 * 1024  # of a partition; only one batch of a partition is in flight, so small batches are slow
LINGER_MS = 5
MOST_WAITING = 4096  # envelopes; the library's buffer has no limit


class KafkaSink:
    """Sends each envelope as a record of a Kafka topic, without a key, to a partition that the library draws.

    The producer is idempotent: its own retries add no second record. After a `SinkError` the topic may have some of the
    envelopes, and the sink accepts no further envelopes.

    Raises:
        SinkError: if the broker is unreachable, refuses our credentials or has no such topic.
    """

    def __init__(self, settings: Settings, topic: str) -> None:
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        self._topic, self._place = topic, f"Kafka at {settings.kafka}"
        self._waiting: list[Any] = []  # futures of envelopes not yet known to be acknowledged
        with hearing(settings) as heard:
            try:
                self._producer = Producer(
                    settings,
                    CONNECT_MS,
                    REQUEST_MS,
                    DELIVERY_MS,
                    batch_size=BATCH_BYTES,
                    linger_ms=LINGER_MS,
                    max_request_size=2 * MAX_ENVELOPE_BYTES,
                )
            except KafkaError as error:
                raise SinkError(f"{self._place} cannot be reached: {heard.why(error)}") from error
        try:
            self._producer.partitions_for(topic)
        except KafkaError as error:
            self.close()
            raise SinkError(f"{self._place} has no topic {topic}: {error}") from error

    def send(self, envelope: bytes) -> None:
        if len(self._waiting) == MOST_WAITING:
            self.flush()
        with self._reporting_failure():
            self._waiting.append(self._producer.send(self._topic, envelope))

    def flush(self) -> None:
        with self._reporting_failure():
            self._producer.flush(timeout=(DELIVERY_MS + REQUEST_MS) / 1000)
            for future in self._waiting:
                future.get(timeout=0)
            self._waiting = []

    def close(self) -> None:
        self._producer.close(timeout=CLOSE_S)

    @contextmanager
    def _reporting_failure(self) -> Iterator[None]:
        try:
            yield
        except KafkaError as error:
            self._producer.close(timeout=0)
            message = f"{self._place} did not acknowledge all envelopes sent to {self._topic}: {error}"
            raise SinkError(message) from error


def await_kafka_sink(
    survey: Survey, settings: Settings, wait: Callable[[float], bool], say: Callable[[str], None]
) -> KafkaSink:
    """Returns a sink to the survey's topic as soon as Kafka answers. Creates the topic if it is missing.

    Raises:
        SinkError: if Kafka does not answer within a minute, or before `wait` returns True.
        TopicError: if Kafka refuses our requests, or the topic is unsuitable.
    """

    def ask() -> KafkaSink:
        ensure_topics(settings, survey, "producer")
        return KafkaSink(settings, survey.reports_topic)

    def unreachable(error: Exception) -> bool:
        return isinstance(error, Unreachable | SinkError)  # a refusal is a TopicError, raised by the check of the topics

    place, end_s = f"Kafka at {settings.kafka}", time.monotonic() + PATIENCE_S
    try:
        return wait_for(place, ask, lambda seconds: wait(seconds) or time.monotonic() > end_s, say, unreachable)
    except Stopped:
        raise SinkError(f"{place} did not answer, and no report was sent") from None
