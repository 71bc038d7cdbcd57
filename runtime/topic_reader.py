"""Reads a topic with one partition, from an offset to its end."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaTimeoutError

from ldpstream.runtime.settings import Settings

POLL_MS = 200


class TopicReader:
    """Reads the committed records of partition 0, without a consumer group.

    Args:
        answer_ms: longest wait for an answer of the broker and for the next record, in ms.

    Raises (all methods except `close`):
        KafkaError: if the broker does not answer or refuses the request.
    """

    def __init__(self, settings: Settings, topic: str, answer_ms: int) -> None:
        self._where, self._answer_ms = TopicPartition(topic, 0), answer_ms
        self._consumer = KafkaConsumer(
            **settings.kafka_options(),
            bootstrap_timeout_ms=answer_ms,
            request_timeout_ms=answer_ms,
            isolation_level="read_committed",
            group_id=None,
            enable_auto_commit=False,
        )
        self._consumer.assign([self._where])

    def begin(self) -> int:
        """Returns the offset of the first record that the log still has."""
        return int(self._consumer.beginning_offsets([self._where])[self._where])

    def end(self) -> int:
        """Returns the last stable offset."""
        return int(self._consumer.end_offsets([self._where])[self._where])

    def records(self, start: int, end: int, check: Callable[[], None] = lambda: None) -> Iterator[Any]:
        """Yields the records in [start, end).

        Args:
            check: called before each poll; an exception ends the reading.

        Raises:
            KafkaTimeoutError: if records remain but none arrive in time.
        """
        self._consumer.seek(self._where, start)
        position, moved_s = start, time.monotonic()
        while position < end:
            check()
            for records in self._consumer.poll(timeout_ms=POLL_MS).values():
                yield from (record for record in records if record.offset < end)
            before, position = position, self._consumer.position(self._where)
            if position != before:
                moved_s = time.monotonic()
            elif time.monotonic() - moved_s > self._answer_ms / 1000:
                raise KafkaTimeoutError(f"no records of {self._where.topic} arrive")

    def close(self) -> None:
        self._consumer.close()
