"""The producer of kafka-python, without two faults of the library: in `close` and in `commit_transaction`."""

from contextlib import suppress
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError

from ldpstream.runtime.settings import Settings


class Producer(KafkaProducer):  # type: ignore[misc]  # kafka-python has no types
    """A producer whose flush raises no Kafka error. The future of each record has the result of its sending.

    The library's `close` begins with a flush. If the flush raises an error, `close` does not stop the library's thread. The
    thread then sends abandoned records once the broker is reachable again.

    Every producer is idempotent, waits for all in-sync replicas, and creates no topic.

    Args:
        settings: Kafka's address and our credentials.
        connect_ms: longest wait for a broker or for the topic's partitions, in ms.
        request_ms: longest wait for one answer, in ms.
        delivery_ms: longest time from `send` until a record is acknowledged or has failed, in ms.
        options: further options of kafka-python's producer.
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
        """Commits the transaction within a time limit. The library's `commit_transaction` has no limit.

        Raises:
            KafkaTimeoutError: if the time limit passes. The broker may have committed the transaction, or may still commit it.
                A later producer with the same transactional id ends this transaction before it starts its own.
            KafkaError: if the broker refuses the commit.
        """
        ending = self._transaction_manager.begin_commit()
        self._sender.wakeup()
        if not ending.wait(timeout_ms=timeout_s * 1000):
            raise KafkaTimeoutError(f"the transaction was not committed in {timeout_s:g} s")
