"""The clients of kafka-python: a producer, a reader of a topic with one partition, and the reasons of their failures.

The library logs the reason why a client cannot connect, but its exception does not contain it.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError

from ldpstream.runtime.settings import Settings

_TELLING = re.compile("Sasl|SSL")  # messages about authentication and certificates; later messages only say "unreachable"
_CUT_OFF = re.compile("disconnected|reset by peer|Broken pipe|Invalid frame", re.IGNORECASE)
_NAMES = re.compile(r"^(?:\[Error \d+\] )?(?:\w+: )*")


class Heard(logging.Handler):
    """Log handler that collects the exceptions that the library logs while it tries to connect."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(logging.WARNING)
        self._settings = settings
        self._complaints: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        for argument in record.args if isinstance(record.args, tuple) else ():
            if isinstance(argument, Exception):
                self._complaints.append(str(argument))

    def let_in(self) -> None:
        """Notes that a connection succeeded: what was logged before is no reason for a later failure."""
        self._complaints.clear()

    @property
    def turned_away(self) -> bool:
        return any(_TELLING.search(complaint) or _CUT_OFF.search(complaint) for complaint in self._complaints)

    def why(self, error: Exception) -> str:
        """Returns the reason in one line."""
        complaints = self._complaints if isinstance(error, KafkaTimeoutError | KafkaConnectionError) else []
        telling = [complaint for complaint in complaints if _TELLING.search(complaint)]
        reason = (telling + complaints + [str(error)])[0].partition("\n")[0]
        hint = "" if telling or not complaints else f" ({self._question()})"
        return (_NAMES.sub("", reason) or reason or type(error).__name__) + hint

    def _question(self) -> str:
        protocol = self._settings.kafka_security_protocol
        user = f", and are user {self._settings.kafka_user} and password right" if "SASL" in protocol else ""
        return f"does this listener speak {protocol}{user}?"


_hearing: list[Heard] = []
_changing = threading.Lock()  # for the handlers and `propagate` of the library's logger


@contextmanager
def hearing(settings: Settings) -> Iterator[Heard]:
    """Collects what the library logs, and hides it from our log. Several threads can hear at the same time."""
    library, heard = logging.getLogger("kafka"), Heard(settings)
    with _changing:
        _hearing.append(heard)
        library.addHandler(heard)
        library.setLevel(logging.WARNING)  # messages below this level show passwords
        library.propagate = False
    try:
        yield heard
    finally:
        with _changing:
            _hearing.remove(heard)
            library.removeHandler(heard)
            library.propagate = not _hearing


class Producer(KafkaProducer):  # type: ignore[misc]  # kafka-python has no types
    """A producer whose flush raises no Kafka error.

    If a flush raises an error, the library's `close` does not stop the library's thread.

    Every producer is idempotent, waits for all in-sync replicas, and creates no topic.

    Args:
        connect_ms: longest wait for a broker or for the topic's partitions, in ms.
        delivery_ms: longest time from `send` until a record is acknowledged or has failed, in ms.
    """

    def __init__(self, settings: Settings, connect_ms: int, request_ms: int, delivery_ms: int, **options: Any) -> None:
        super().__init__(
            **settings.kafka_options(),
            bootstrap_timeout_ms=connect_ms,
            max_block_ms=connect_ms,
            request_timeout_ms=request_ms,
            delivery_timeout_ms=delivery_ms,
            acks="all",
            enable_idempotence=True,
            allow_auto_create_topics=False,
            **options,
        )

    def flush(self, timeout: float | None = None) -> None:
        with suppress(KafkaError):
            super().flush(timeout)

    def commit_within(self, timeout_s: float) -> None:
        """Commits the transaction within a time limit.

        Raises:
            KafkaTimeoutError: if the time limit passes.
            KafkaError: if the broker refuses the commit.
        """
        ending = self._transaction_manager.begin_commit()
        self._sender.wakeup()
        if not ending.wait(timeout_ms=timeout_s * 1000):
            raise KafkaTimeoutError(f"the transaction was not committed in {timeout_s:g} s")


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
