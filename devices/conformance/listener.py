"""A small gateway that checks how a device sends: `python -m devices.conformance SURVEY --listen PORT`.

It listens on loopback, writes no file, and checks bodies and envelopes as the gateway does, by the clock of this machine. The
first attempt of a request that passes these checks gets the next one of these answers, in turn. Every further attempt that
passes is accepted:

    202, 503, no answer (the request was accepted), 409, 429, 504 (the request was accepted)
"""

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal

import msgspec
from starlette.responses import Response

from devices.conformance.calls import ConformanceError
from devices.conformance.rules import IDEMPOTENCY_KEY_BYTES, LINKED_BYTES, Fault, Faults, read_key
from ldpstream.gateway.http.app import PREFLIGHT
from ldpstream.gateway.http.bodies import (
    Checks,
    Headers,
    idempotency_key,
    is_batch,
    largest_body,
    oversized,
    read_headers,
    unpack,
)
from ldpstream.gateway.http.problems import Cause, Problem
from ldpstream.gateway.surveys import ServedSurvey
from ldpstream.runtime.clock import now_ms
from ldpstream.surveys import Survey

LOOPBACK = "127.0.0.1"
Answer = Cause | Literal["accepted", "no answer"]
ANSWERS: Final[tuple[Answer, ...]] = (
    "accepted", "busy", "no answer", "step in the future", "too many requests", "outcome unknown"
)  # fmt: skip
RETRY_S = 1
READ_S = 10.0
LEAST = 2 * len(ANSWERS)  # requests for a verdict


class Sending:
    """Checks the requests of devices. Thread-safe."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._lock = threading.Lock()
        self._faults = Faults()
        self._bodies: dict[bytes, bytes] = {}  # by key
        self._linked: set[bytes] = set()
        self._not_before: dict[bytes, float] = {}  # the earliest time of the next attempt, by key
        self._unfinished: dict[bytes, str] = {}  # the answer to the latest attempt, by key, until a final answer
        self.attempts = 0

    @property
    def requests(self) -> int:
        return len(self._bodies)

    def take(self, pairs: Sequence[tuple[bytes, bytes]], body: bytes) -> int | Problem | None:
        """Checks one attempt.

        Returns:
            The number of reports accepted, the problem to answer, or None to close the connection without an answer.
        """
        with self._lock:
            self.attempts += 1
            place = f"request {self.attempts}"
            try:
                key, reports = self._checked(read_headers(pairs), body)
            except Problem as problem:
                key = dict(pairs).get(b"idempotency-key", b"")
                if problem.cause == "step too old" and self._bodies.get(key) == body:  # the step has closed in the meantime
                    self._unfinished.pop(key, None)
                elif problem.cause != "step in the future":
                    self._faults.add(f"the gateway would refuse the request: {problem.cause}", place)
                return problem
            first = key not in self._bodies
            self._check_key(key, body, first, place)
            if not first:
                if self._bodies[key] == body:
                    self._unfinished.pop(key, None)
                return reports
            self._bodies[key] = body
            answer = ANSWERS[(len(self._bodies) - 1) % len(ANSWERS)]
            if answer == "accepted":
                return reports
            self._unfinished[key] = answer
            if answer == "no answer":
                return None
            self._not_before[key] = time.monotonic() + RETRY_S
            return Problem(answer, "an answer of the conformance check: send the same again", retry_s=RETRY_S)

    def _checked(self, headers: Headers, body: bytes) -> tuple[bytes, int]:
        batch = is_batch(headers)
        key = idempotency_key(headers)
        if key is None or read_key(key.decode()) is None:
            detail = f"a device's key has {IDEMPOTENCY_KEY_BYTES} bytes, as 22 letters of base64url"
            raise Problem("malformed idempotency key", detail)
        if len(body) > largest_body(batch):
            raise oversized(largest_body(batch))
        envelopes = unpack(body, batch)
        checks = Checks({self._survey.fingerprint: self._survey}, now_ms())
        checks.check(envelopes)
        checks.require_countable(batch)
        return key, checks.reports

    def _check_key(self, key: bytes, body: bytes, first: bool, place: str) -> None:
        if first:
            linked = (read_key(key.decode()) or key)[:LINKED_BYTES]
            if linked in self._linked:
                self._faults.add("the first 8 bytes of a key belong to another request", place)
            self._linked.add(linked)
        elif self._bodies[key] != body:
            self._faults.add("a key must never be used for another body", place)
        elif time.monotonic() < self._not_before.get(key, 0.0):
            self._faults.add("an attempt came before Retry-After had passed", place)

    def verdict(self) -> list[Fault]:
        """Raises ConformanceError if there are too few requests for a verdict, and no fault is visible."""
        with self._lock:
            faults = self._faults.all()
            open_ends = Faults()
            for answer in self._unfinished.values():
                open_ends.add(f"no further attempt with the same key and body came after the answer: {answer}", "the end")
            faults += open_ends.all()
        if not faults and self.requests < LEAST:
            raise ConformanceError(f"no fault found, but too few requests for a verdict: {self.requests}, needs {LEAST}")
        return faults


class _CallServer(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


@contextmanager
def listening(survey: Survey, toml: str, port: int) -> Iterator[tuple[Sending, str]]:
    """Serves on loopback; yields the checks and the URL.

    Args:
        port: the port; 0 for any free port.

    Raises:
        ConformanceError: if the port cannot be used.
    """
    sending = Sending(survey)
    served = ("/v1/survey", f"/v1/surveys/{survey.fingerprint.hex()}")
    definition = ServedSurvey(**msgspec.structs.asdict(survey.device_survey), toml=toml, signature=None, signatures=[])

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = READ_S

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

        def do_GET(self) -> None:
            self._answer(_json(definition) if self.path in served else _unknown())

        def do_OPTIONS(self) -> None:
            self._answer(Response(headers=PREFLIGHT))

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            refusal = None
            if self.path != "/v1/reports":
                refusal = _unknown()
            elif not length.isdecimal():
                refusal = Problem("malformed request", "the check needs a Content-Length").response()
            elif int(length) > largest_body(batch=False):
                refusal = oversized(largest_body(batch=False)).response()
            if refusal is not None:
                self.close_connection = True
                self._answer(refusal)
                return
            body = self.rfile.read(int(length))
            if len(body) < int(length):
                self.close_connection = True
                return
            given = [(name.lower().encode(), value.strip(" \t").encode("latin-1")) for name, value in self.headers.items()]
            result = sending.take(given, body)
            if result is None:
                self.close_connection = True
            elif isinstance(result, Problem):
                self._answer(result.response())
            else:
                self._answer(_json({"accepted": result}, 202))

        def _answer(self, response: Response) -> None:
            self.send_response(response.status_code)
            for name, value in response.raw_headers:
                self.send_header(name.decode("latin-1"), value.decode("latin-1"))
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Access-Control-Expose-Headers", "Retry-After")
            self.end_headers()
            self.wfile.write(response.body)

    try:
        server = _CallServer((LOOPBACK, port), Handler)
    except OSError as error:
        raise ConformanceError(f"--listen: {LOOPBACK}:{port}: {error.strerror or error}; choose a free port") from None
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield sending, f"http://{LOOPBACK}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _json(document: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(document), status, media_type="application/json")


def _unknown() -> Response:
    return Problem("not found", "the check serves POST /v1/reports, GET /v1/survey and GET /v1/surveys/FINGERPRINT").response()
