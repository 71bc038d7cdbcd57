"""Why a client of kafka-python cannot connect: the library tells its log alone; its exception only says that it could not."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from kafka.errors import KafkaConnectionError, KafkaTimeoutError

from runtime.settings import Settings

_TELLING = re.compile("Sasl|SSL")  # a password or a certificate; what comes after is but that nobody answers any more
_CUT_OFF = re.compile("disconnected|reset by peer|Broken pipe|Invalid frame", re.IGNORECASE)
_NAMES = re.compile(r"^(?:\[Error \d+\] )?(?:\w+: )*")


class Heard(logging.Handler):
    """Keeps what the library complained of while it tried to connect."""

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
        """Whether a broker that could be reached did not let us in.

        A listener that speaks another protocol cuts us off, and so may one that does not accept our password.
        """
        return any(_TELLING.search(complaint) or _CUT_OFF.search(complaint) for complaint in self._complaints)

    def why(self, error: Exception) -> str:
        """One line: what was complained of, if the error is that nobody could be reached; else the error's own text."""
        complaints = self._complaints if isinstance(error, KafkaTimeoutError | KafkaConnectionError) else []
        telling = [complaint for complaint in complaints if _TELLING.search(complaint)]
        reason = (telling + complaints + [str(error)])[0].partition("\n")[0]
        hint = "" if telling or not complaints else f" ({self._question()})"
        return (_NAMES.sub("", reason) or reason or type(error).__name__) + hint

    def _question(self) -> str:
        """The library often loses why it was cut off: it drops an answer after which the broker hangs up at once."""
        protocol = self._settings.kafka_security_protocol
        user = f", and are user {self._settings.kafka_user} and password right" if "SASL" in protocol else ""
        return f"does this listener speak {protocol}{user}?"


@contextmanager
def hearing(settings: Settings) -> Iterator[Heard]:
    """Listen to the library's log while a client is made with these settings; meanwhile it goes nowhere else."""
    library = logging.getLogger("kafka")
    level, propagate = library.level, library.propagate
    heard = Heard(settings)
    library.addHandler(heard)
    library.setLevel(logging.WARNING)  # below it, it shows passwords
    library.propagate = False
    try:
        yield heard
    finally:
        library.removeHandler(heard)
        library.setLevel(level)
        library.propagate = propagate
