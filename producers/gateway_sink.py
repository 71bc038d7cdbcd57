"""A sink that posts simulated users' envelopes to the HTTP gateway."""

import http.client
import secrets
import time
from contextlib import suppress
from typing import Any

import msgspec

from ldpstream.device.answers import document, is_own, retry_after_s
from ldpstream.device.urls import split_url
from ldpstream.engines.gateway_log import MAX_BATCH, MAX_BATCH_BYTES
from ldpstream.gateway.http.bodies import BATCH, ENVELOPE
from ldpstream.gateway.http.problems import FINAL, MEND_FIRST
from ldpstream.mechanisms.wording import plural
from ldpstream.producers.sinks import SinkError, TooLateError

FRAME_BYTES = 8  # allowance for the msgpack header of an envelope, and of the batch
ANSWER_S = 15.0  # longer than each of the gateway's own time limits
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
        parts = split_url(url)
        if parts is None:
            raise SinkError(f"a gateway's URL must be http[s]://host[:port][/path], got {url.rpartition('@')[2]}")
        kinds = {"http": (http.client.HTTPConnection, 80), "https": (http.client.HTTPSConnection, 443)}
        kind, default_port = kinds[parts.scheme]
        self._connection = kind(parts.hostname or "", parts.port or default_port, timeout=ANSWER_S)
        self._path, self._place = (
            parts.path.rstrip("/") + "/v1/reports",
            f"gateway at {parts.scheme}://{parts.netloc.rpartition('@')[2]}",
        )
        self._token, self._patience_s = token, patience_s
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
        self._connection.close()

    def _post(self, kind: str, body: bytes) -> None:
        headers = {"Content-Type": kind, "Idempotency-Key": secrets.token_urlsafe(16)}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        end = time.monotonic() + self._patience_s
        while True:
            try:
                self._connection.request("POST", self._path, body, headers)
                answer = self._connection.getresponse()
                status, said = answer.status, answer.read()
                own = is_own(status, said)
                again = not own or status not in (FINAL, *MEND_FIRST)
                wait_s = retry_after_s(answer.headers.get("Retry-After", ""), answer.headers.get("Date", "")) or 1.0
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()  # the next attempt opens the connection again
                status, said, wait_s, own, again = 0, str(error).encode(), 1.0, False, True
            if own and status == http.HTTPStatus.ACCEPTED:
                return
            if not again or time.monotonic() + wait_s > end:
                problem = document(said)
                message = f"{self._place} did not accept the reports: {_reason(status, said, problem)}"
                if problem.get("title") == "collector required":
                    message += "; LDPSTREAM_GATEWAY_TOKENS_FILE must name a file with a collector's token, here and there"
                if problem.get("title") == "step too old":
                    raise TooLateError(message)
                self._failed = SinkError(message)
                raise self._failed
            time.sleep(wait_s)


def _reason(status: int, said: bytes, problem: dict[str, Any]) -> str:
    with suppress(KeyError, TypeError, IndexError):
        return f"{problem['title']} ({status}){_places(problem)}"
    return f"status {status}" if status else said.decode(errors="replace")


def _places(problem: dict[str, Any]) -> str:
    if "elements" not in problem:
        return ""
    first = problem["elements"][0]
    return f", {plural(problem['refused'], 'envelope')} of the batch, the first at {first['index']}: {first['reason']}"
