"""A sink that posts simulated users' envelopes to the HTTP gateway."""

import secrets
import time
from typing import Any

import msgspec

from ldpstream.device.answers import ACCEPTED, document
from ldpstream.device.routes import Answer, Direct
from ldpstream.engines.gateway_log import MAX_BATCH, MAX_BATCH_BYTES
from ldpstream.gateway.http.bodies import BATCH, ENVELOPE
from ldpstream.gateway.http.problems import FINAL, MEND_FIRST
from ldpstream.producers.sinks import SinkError, TooLateError

FRAME_BYTES = 8  # allowance for the msgpack header of an envelope, and of the batch
PATIENCE_S = 30.0


class GatewaySink:
    """Collects envelopes and posts them to the gateway in batches. All attempts for a batch carry one idempotency key.

    After a `SinkError` the log may have some of the envelopes. The sink then accepts no further envelopes, except after a
    `TooLateError`.

    Args:
        url: the gateway's URL, ``http[s]://host[:port][/path]``.
        patience_s: how long the sink retries a batch, in seconds.

    Raises:
        SinkError: if the URL is malformed.
    """

    def __init__(self, url: str, token: str | None = None, patience_s: float = PATIENCE_S) -> None:
        try:
            self._way = Direct(url, token)
        except ValueError as error:
            raise SinkError(str(error)) from None
        self._place, self._patience_s = f"gateway at {url}", patience_s
        self._failed: SinkError | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def send(self, envelope: bytes) -> None:
        if self._failed is not None:
            raise self._failed
        size = len(envelope) + FRAME_BYTES
        if len(self._waiting) == MAX_BATCH or self._waiting_bytes + size > MAX_BATCH_BYTES - FRAME_BYTES:
            self.flush()
        self._waiting.append(envelope)
        self._waiting_bytes += size

    def flush(self) -> None:
        if self._failed is not None:
            raise self._failed
        if not self._waiting:
            return
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if len(waiting) == 1:
            self._post(ENVELOPE, waiting[0])
        else:
            self._post(BATCH, msgspec.msgpack.encode(waiting))

    def close(self) -> None:
        """Does nothing: no connection stays open."""

    def _post(self, kind: str, body: bytes) -> None:
        key, end = secrets.token_urlsafe(16), time.monotonic() + self._patience_s
        while True:
            answer, said = self._way.send(body, key, kind)
            if answer.from_gateway and answer.status == ACCEPTED:
                return
            wait_s = answer.retry_after_s or 1.0
            if time.monotonic() + wait_s > end or (answer.from_gateway and answer.status in (FINAL, *MEND_FIRST)):
                raise self._error(answer, document(said))
            time.sleep(wait_s)

    def _error(self, answer: Answer, problem: dict[str, Any]) -> SinkError:
        why = answer.reason or f"status {answer.status}"
        if "title" in problem:
            why = f"{problem['title']} ({answer.status}): {problem.get('detail')}"
        message = f"{self._place} did not accept the reports: {why}"
        if problem.get("title") == "step too old":
            return TooLateError(message)
        self._failed = SinkError(message)
        return self._failed
