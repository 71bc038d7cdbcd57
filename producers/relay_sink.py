"""A sink that sends simulated users' envelopes through a relay, as devices do: each alone, in a request of its own."""

import random
import secrets
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from threading import Event
from typing import Final

from ldpstream.device.answers import ACCEPTED, NEVER_COUNTS
from ldpstream.device.device import Waiting
from ldpstream.device.routes import Answer, Relay, ThroughRelay
from ldpstream.mechanisms.wording import plural
from ldpstream.producers.sinks import SinkError, TooLateError
from ldpstream.surveys import Survey

CONNECTIONS: Final = 100  # requests at the same time: the gateway holds each for a part of a second
PATIENCE_S: Final = 30.0
LONGEST_PAUSE_S: Final = 1.0
REFUSED: Final = (NEVER_COUNTS, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)


class RelaySink:
    """Sends each envelope until the gateway accepts or refuses it, or until `patience_s` have passed.

    After a `SinkError` the log may have some of the envelopes. A `TooLateError` means that the gateway refused some envelopes
    for good, and accepted all others.

    Args:
        patience_s: how long the sink retries an envelope, in seconds.
    """

    def __init__(self, survey: Survey, relay: Relay, token: str | None = None, patience_s: float = PATIENCE_S) -> None:
        self._way, self._place, self._patience_s = ThroughRelay(relay, survey, token), relay.url, patience_s
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
            settled = answer.from_gateway and answer.status in (ACCEPTED, *REFUSED)
            pause_s = max(answer.retry_after_s, LONGEST_PAUSE_S * random.random())
            if settled or time.monotonic() + pause_s > end or self._closed.wait(pause_s):
                return answer

    def _error(self, failed: Sequence[Answer]) -> SinkError:
        late = [answer for answer in failed if answer.from_gateway and answer.status == NEVER_COUNTS]
        if len(late) == len(failed):
            return TooLateError(f"relay at {self._place}: the gateway refused {plural(len(late), 'report')} for good (422)")
        other = next(answer for answer in failed if answer not in late)
        why = other.reason or f"status {other.status} of the {'gateway' if other.from_gateway else 'relay'}"
        return SinkError(f"relay at {self._place} did not deliver {plural(len(failed), 'report')}: {why}")
