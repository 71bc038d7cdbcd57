"""A sink that sends simulated users' envelopes to the gateway, directly or through a relay: each in a request of its own."""

import random
import secrets
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Final

from ldpstream.device.reports import Waiting
from ldpstream.device.routes import ACCEPTED, Answer, Direct, ThroughRelay
from ldpstream.gateway.http.problems import FINAL, MEND_FIRST
from ldpstream.mechanisms.wording import plural
from ldpstream.producers.sinks import SinkError, TooLateError

CONNECTIONS: Final = 100  # requests at the same time: the gateway holds each for a part of a second
PATIENCE_S: Final = 30.0
LONGEST_PAUSE_S: Final = 1.0
TOO_LATE: Final = "step too old"


class GatewaySink:
    """Sends each envelope until the gateway accepts or refuses it, or until `patience_s` have passed.

    After a `SinkError` the log may have some of the envelopes. A `TooLateError` means that the gateway refused some envelopes
    for good because their step has closed, and accepted all others.

    Args:
        place: name of the way in errors, such as ``gateway at http://127.0.0.1:8080``.
        patience_s: how long the sink retries an envelope, in seconds.
    """

    def __init__(self, way: Direct | ThroughRelay, place: str, patience_s: float = PATIENCE_S) -> None:
        self._way, self._place, self._patience_s = way, place, patience_s
        self._waiting: list[Waiting] = []
        self._pool, self._closed = ThreadPoolExecutor(CONNECTIONS), Event()

    def send(self, envelope: bytes) -> None:
        self._waiting.append(Waiting("", 0, envelope, secrets.token_urlsafe(16), 0))

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        random.SystemRandom().shuffle(waiting)
        answers = self._pool.map(self._deliver, waiting)
        failed = [answer for answer in answers if not (answer.from_gateway and answer.status == ACCEPTED)]
        if failed:
            raise self._error(failed)

    def close(self) -> None:
        self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _deliver(self, report: Waiting) -> Answer:
        end = time.monotonic() + self._patience_s
        while True:
            answer = self._way.post(report)
            settled = answer.from_gateway and answer.status in (ACCEPTED, FINAL, *MEND_FIRST)
            pause_s = max(answer.retry_after_s, LONGEST_PAUSE_S * random.random())
            if settled or time.monotonic() + pause_s > end or self._closed.wait(pause_s):
                return answer

    def _error(self, failed: Sequence[Answer]) -> SinkError:
        others = [answer for answer in failed if answer.title != TOO_LATE]
        message = f"{self._place} did not accept {plural(len(failed), 'envelope')}"
        if not others:
            return TooLateError(f"{message}: {TOO_LATE} ({FINAL})")
        other = others[0]
        answered = f"an answer of the {'gateway' if other.from_gateway else 'relay'}"
        why = other.reason or f"{other.title or answered} ({other.status})"
        return SinkError(": ".join(filter(None, (message, why, other.detail))))
