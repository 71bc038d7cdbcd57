"""Finds the reason why a client of kafka-python cannot connect.

The library logs the reason, but its exception does not contain it.
"""

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kafka.errors import KafkaConnectionError, KafkaTimeoutError

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


_changing = threading.Lock()  # for the handlers, the level and `propagate` of the library's logger, and for `_before`
_before = (logging.NOTSET, True)  # the logger's level and `propagate` while it has no `Heard`


@contextmanager
def hearing(settings: Settings) -> Iterator[Heard]:
    """Collects what the library logs, and hides it from our log. Several threads can hear at the same time."""
    global _before
    library, heard = logging.getLogger("kafka"), Heard(settings)
    with _changing:
        if not _heard(library):
            _before = library.level, library.propagate
        library.addHandler(heard)
        library.setLevel(logging.WARNING)  # messages below this level show passwords
        library.propagate = False
    try:
        yield heard
    finally:
        with _changing:
            library.removeHandler(heard)
            if not _heard(library):
                level, library.propagate = _before
                library.setLevel(level)


def _heard(library: logging.Logger) -> bool:
    return any(isinstance(handler, Heard) for handler in library.handlers)
