"""The Kafka client library's producer, without two of its faults: in `close`, and in `commit_transaction`."""

from contextlib import suppress

from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError


class Producer(KafkaProducer):  # type: ignore[misc]
    """A producer whose flush never raises: what became of a record is asked of its future.

    The library's `close`, which also runs when the program ends, flushes first. Where that raised, it would not close and
    its thread would go on: a broker that comes back would be sent what was given up, and one that is gone would leave
    tracebacks behind.
    """

    def flush(self, timeout: float | None = None) -> None:
        with suppress(KafkaError):
            super().flush(timeout)

    def commit_within(self, timeout_s: float) -> None:
        """Commit the transaction. The library's `commit_transaction` waits without a limit for a broker that is gone.

        Raises:
            KafkaTimeoutError: if that takes longer. Then the broker may have committed the transaction, or may still; a
                producer that takes over the transactional id ends it first.
            KafkaError: if the broker refuses.
        """
        ending = self._transaction_manager.begin_commit()
        self._sender.wakeup()
        if not ending.wait(timeout_ms=timeout_s * 1000):
            raise KafkaTimeoutError(f"the transaction was not committed in {timeout_s:g} s")
