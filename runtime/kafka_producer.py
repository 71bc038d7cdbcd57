"""The producer of kafka-python, without two faults of the library: in `close` and in `commit_transaction`."""

from contextlib import suppress
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError

from ldpstream.runtime.settings import Settings


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
