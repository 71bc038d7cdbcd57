"""Sinks for envelopes."""

from collections.abc import Callable
from typing import Protocol

from ldpstream.surveys.errors import UserError


class SinkError(UserError, RuntimeError):
    """Envelopes cannot be sent, or some envelopes may not have arrived."""


class TooLateError(SinkError):
    """The gateway refused some envelopes for good. The sink accepts further envelopes."""


class Sink(Protocol):
    """A destination for envelopes."""

    def send(self, envelope: bytes) -> None:
        """Accepts an envelope, and may send the envelope later.

        Raises:
            SinkError: if this or an earlier envelope cannot be sent.
        """

    def flush(self) -> None:
        """Sends all envelopes accepted so far; returns when all of them are acknowledged.

        Raises:
            SinkError: if any envelope was not acknowledged.
        """

    def close(self) -> None:
        """Disconnects. Envelopes that were not flushed may be lost. Never raises, and may be called again."""


class MemorySink:
    """Passes each envelope to a function at once."""

    def __init__(self, append: Callable[[bytes], None]) -> None:
        self._append = append

    def send(self, envelope: bytes) -> None:
        self._append(envelope)

    def flush(self) -> None:
        """Does nothing: no envelope waits."""

    def close(self) -> None:
        """Does nothing."""
