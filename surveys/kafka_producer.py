"""The Kafka client library's producer, without a fault of its `close`."""

from contextlib import suppress

from kafka import KafkaProducer
from kafka.errors import KafkaError


class Producer(KafkaProducer):  # type: ignore[misc]
    """A producer whose flush never raises: what became of a record is asked of its future.

    The library's `close`, which also runs when the program ends, flushes first. Where that raised, it would not close and
    its thread would go on: a broker that comes back would be sent what was given up, and one that is gone would leave
    tracebacks behind.
    """

    def flush(self, timeout: float | None = None) -> None:
        with suppress(KafkaError):
            super().flush(timeout)
