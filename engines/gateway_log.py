"""The log that the gateway appends to: Kafka (`engines.kafka.gateway_topic`), or the data folder of `ldpstream serve`."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

MAX_BATCH: Final = 10_000  # largest number of envelopes in one request
MAX_BATCH_BYTES: Final = 650_000  # largest size of a request with a batch: its records fit one record batch


class Outcome(Enum):
    """The outcome of a request's envelopes."""

    APPENDED = "appended"  # they are stored in the log: in Kafka, every in-sync replica has them
    NOT_APPENDED = "not appended"  # they are not in the log and never will be
    KEYS_FULL = "keys full"  # as NOT_APPENDED: the log cannot remember their report keys
    UNKNOWN = "unknown"  # they may be in the log, or may reach the log later


Done = Callable[[Outcome, int | None], None]  # with the append time in ms since 1970, if the log told it


class Keyed(NamedTuple):
    """A request with an idempotency key.

    Attributes:
        hashed: H, the hash of body and key (`surveys.report_key`).
        step: the earliest step in the body.
        now_ms: the gateway's time, at which no step in the body was too early.
    """

    hashed: bytes
    step: int
    now_ms: int


class GatewayLog(Protocol):
    """The log of a survey that the gateway appends to."""

    @property
    def ready(self) -> bool:
        """True if the log is ready for appends."""

    def append(self, envelopes: Sequence[bytes], keyed: Keyed | None, done: Done) -> None:
        """Starts to append 1 to `MAX_BATCH` envelopes of a request, all or none.

        Args:
            keyed: hash, step and time of a request with an idempotency key; None without a key.
            done: called once, now or later, with the outcome and the append time.
        """

    def close(self) -> None:
        """Takes no further append; continues the appends so far."""
