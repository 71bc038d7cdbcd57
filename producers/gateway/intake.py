"""The gateway's handling of a request; `producers.gateway.app` explains the guarantees.

`Intake.take` handles a request that has arrived whole. `Intake.accept` reads the body of any other request with reports. Both
make the same checks and give the same answers.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import NamedTuple

from starlette.requests import ClientDisconnect, Request

from ldpstream.producers.gateway import metrics
from ldpstream.producers.gateway.admission import Busy, MemoryLimit, RateLimit, Reservation, Tokens, neighbourhood
from ldpstream.producers.gateway.bodies import (
    Checks,
    Headers,
    idempotency_key,
    is_batch,
    largest_body,
    oversized,
    read_headers,
    unpack,
)
from ldpstream.producers.gateway.gateway_log import GatewayLog, Keyed, NotAppended, Outcome
from ldpstream.producers.gateway.problems import MAX_RETRY_S, Problem
from ldpstream.producers.gateway.report_keys import request_hash
from ldpstream.producers.gateway.shuffle import Shuffle
from ldpstream.producers.gateway.surveys import GatewaySurveys
from ldpstream.producers.relay.relay_keys import RelayKeys
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.steady_clock import ClockJumped
from ldpstream.surveys import Survey

MEMORY_BYTES = 64 * 2**20  # limit on the bytes of bodies being read or not yet acknowledged
OVERHEAD_BYTES = 2048  # memory in bytes for a request, without its body
BODY_S, ACKNOWLEDGE_S = 10.0, 10.0
STOPPING_BODY_S, STOPPING_ACKNOWLEDGE_S = 0.5, 3.0  # time limits once the process is stopping
TIDY_S = 5.0
PATIENCE_MS = 5_000  # around a step's close, the log's clock decides: this long after the close by the gateway's clock
BREATH = 250  # number of envelopes checked before other tasks run

Client = tuple[int, str]  # number of the token, neighbourhood of the address
Answer = Callable[[int | Problem], None]  # receives the number of reports that count, or the problem
Pairs = Sequence[tuple[bytes, bytes]]  # headers: name in lower case, value
NO_TOKEN = -1  # in place of the number of a token


class Limits(NamedTuple):
    """Rates of one client, per second."""

    requests: float = 50.0
    body_bytes: float = 5e6
    reports: float = 100_000.0


DEFAULT_LIMITS = Limits()


class Intake:
    """Accepts requests with reports, and answers them.

    Args:
        limits: rates of one client, per second; a burst may be twice as large, plus one request.
        memory_bytes: limit on the bytes of bodies being read or not yet acknowledged.
        shuffle: holds the requests that come through a relay and pass the checks, and later their answers.
    """

    def __init__(
        self,
        surveys: GatewaySurveys,
        tokens: Iterable[str] = (),
        limits: Limits = DEFAULT_LIMITS,
        memory_bytes: int = MEMORY_BYTES,
        now_ms: Callable[[], int] = now_ms,
        shuffle: Shuffle | None = None,
    ) -> None:
        self.surveys, self.tokens = surveys, Tokens(tokens)
        self._requests, self._bytes, self._reports = (RateLimit(rate, 2 * rate) for rate in limits)
        self._memory = MemoryLimit(memory_bytes)
        self.relay_keys: RelayKeys | None = None
        self.works: Callable[[], bool] = lambda: True
        self.now_ms = now_ms
        self._shuffle = shuffle or Shuffle()
        self._waiting: deque[_Waiting] = deque()  # requests that wait for the log, oldest first
        self._timer: asyncio.TimerHandle | None = None
        self._reading: set[asyncio.Timeout] = set()
        self._stopping = False
        metrics.waiting_bytes.set_function(lambda: self._memory.taken_bytes)
        metrics.log_available.set_function(lambda: self.surveys.ready)
        metrics.survey_ready.states = lambda: ((name, ready and self._clock_agrees()) for name, ready in self.surveys.states())

    @property
    def ready(self) -> bool:
        """True if the gateway accepts reports of a survey, and the rest of the process works."""
        return self.surveys.ready and not self._stopping and self._clock_agrees() and self.works()

    def _clock_agrees(self) -> bool:
        with suppress(ClockJumped):
            self.now_ms()
            return True
        return False

    def stop(self) -> None:
        """Refuses further requests, and shortens the time limits of bodies and acknowledgements in progress."""
        self._stopping = True
        now = asyncio.get_running_loop().time()
        for reading in self._reading:
            if not reading.expired():
                reading.reschedule(min(reading.when() or now, now + STOPPING_BODY_S))
        if self._timer is not None:
            self._timer.cancel()
        self._expire_later()

    async def tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_S)
            now = time.monotonic()
            for limit in (self._requests, self._bytes, self._reports):
                limit.forget(now)

    # ---- a request

    def take(self, pairs: Pairs, host: str, body: bytes, answer: Answer, relayed: bool = False) -> None:
        """Handles a request that has arrived whole.

        Args:
            answer: called once, now or later, with the number of reports that count, or with the problem.
            relayed: True if the request came through a relay, inside another request.
        """
        begun_s, reservation = time.monotonic(), Reservation(self._memory)
        try:
            headers = read_headers(pairs)
            client = self._admit(headers, host, begun_s)
            batch, key = is_batch(headers), idempotency_key(headers)
            if len(body) > largest_body(batch):
                raise oversized(largest_body(batch))
            self._bytes.charge(client, len(body), begun_s)
            reservation.grow(OVERHEAD_BYTES + len(body))
            envelopes, checks = unpack(body, batch), self._checks()
            checks.check(envelopes)
            log = self._log(checks.require_countable(batch), relayed)
            later = partial(self._answer_later, answer) if relayed else answer
            waiting = _Waiting(begun_s, begun_s, reservation, later, batch)
            append = partial(self._append, log, envelopes, body, key, checks, client, waiting)
            if relayed:
                self._shuffle.hold(partial(waiting.go_on, append))
            else:
                append()
        except Busy:
            _answer(_busy(), begun_s, answer)
        except Problem as problem:
            reservation.release()
            _answer(problem, begun_s, answer)
        except BaseException:
            reservation.release()
            _answer(Problem("internal error", "see the gateway's log"), begun_s, answer)
            raise

    def _answer_later(self, answer: Answer, result: int | Problem) -> None:
        """Answers at the end of the present batch: the order of the answers must not show which record is whose."""
        self._shuffle.hold(partial(answer, result))

    async def accept(self, request: Request) -> int:
        """Admits a request, reads its body and appends its reports to the log.

        Raises:
            Problem: if the request is refused or its outcome is unknown.
        """
        begun_s, reservation = time.monotonic(), Reservation(self._memory)
        future = asyncio.get_running_loop().create_future()

        def answer(result: int | Problem) -> None:
            if not future.done():
                future.set_result(result)

        try:
            headers = read_headers(request.scope["headers"])
            client = self._admit(headers, _host(request), begun_s)
            batch, key = is_batch(headers), idempotency_key(headers)
            body = await self._read(request, headers, largest_body(batch), client, reservation)
            envelopes, checks = unpack(body, batch), self._checks()
            for first in range(0, len(envelopes), BREATH):
                if first:
                    await asyncio.sleep(0)  # let other tasks run
                checks.check(envelopes[first : first + BREATH], first)
            log = self._log(checks.require_countable(batch))
            waiting = _Waiting(begun_s, time.monotonic(), reservation, answer, batch)
            self._append(log, envelopes, body, key, checks, client, waiting)
        except Problem as problem:
            reservation.release()
            _answer(problem, begun_s, answer)
        except BaseException:
            reservation.release()
            metrics.counts.requests["internal error"] += 1
            raise
        result = await future
        if isinstance(result, Problem):
            raise result
        return int(result)

    @asynccontextmanager
    async def capsule(self, request: Request, limit: int) -> AsyncIterator[bytes]:
        headers, reservation = read_headers(request.scope["headers"]), Reservation(self._memory)
        client = self.admit_anybody(request)
        try:
            yield await self._read(request, headers, limit, client, reservation)
        finally:
            reservation.release()

    def admit_capsule(self, host: str, size: int) -> Reservation:
        now_s, client, reservation = time.monotonic(), (NO_TOKEN, neighbourhood(host)), Reservation(self._memory)
        self._charge(client, now_s)
        self._bytes.charge(client, size, now_s)
        try:
            reservation.grow(OVERHEAD_BYTES + size)
        except Busy:
            raise _busy() from None
        return reservation

    def admit(self, request: Request) -> None:
        headers = read_headers(request.scope["headers"])
        self._admit(headers, _host(request), time.monotonic())

    def admit_anybody(self, request: Request) -> Client:
        """Checks the client's rates for a request that needs no token, charges the client, and returns the client.

        Raises:
            Problem: if the client has exceeded a rate, or the process is stopping.
        """
        client = (NO_TOKEN, neighbourhood(_host(request)))
        self._charge(client, time.monotonic())
        return client

    def _admit(self, headers: Headers, host: str, now_s: float) -> Client:
        token = self.tokens.find(headers.get(b"authorization", b""))
        if token is None:
            raise Problem("unauthorized", "this gateway needs a bearer token", headers={"WWW-Authenticate": "Bearer"})
        client = (token, neighbourhood(host))
        self._charge(client, now_s)
        return client

    def _charge(self, client: Client, now_s: float) -> None:
        waits = (self._requests.wait_s(client, now_s), self._bytes.wait_s(client, now_s), self._reports.wait_s(client, now_s))
        if any(waits):
            kind = ("requests", "bytes", "reports")[waits.index(max(waits))]
            retry_s = min(int(max(waits)) + 1, MAX_RETRY_S)
            raise Problem("too many requests", f"this client has sent too many {kind} in a second", retry_s=retry_s)
        self._requests.charge(client, 1, now_s)
        if self._stopping:
            raise _stopping()

    async def _read(self, request: Request, headers: Headers, limit: int, client: Client, reservation: Reservation) -> bytes:
        declared, size, parts = headers.get(b"content-length", b""), 0, list[bytes]()
        if declared.isdigit() and (len(declared) > 12 or int(declared) > limit):
            raise oversized(limit)
        try:
            reservation.grow(OVERHEAD_BYTES)
            async with asyncio.timeout(STOPPING_BODY_S if self._stopping else BODY_S) as reading:
                self._reading.add(reading)
                try:
                    async for chunk in request.stream():
                        size += len(chunk)
                        self._bytes.charge(client, len(chunk), time.monotonic())
                        if size > limit:
                            raise oversized(limit)
                        reservation.grow(len(chunk))
                        parts.append(chunk)
                finally:
                    self._reading.discard(reading)
        except ClientDisconnect:
            raise Problem("malformed request", "the client disconnected before the end of the body") from None
        except Busy:
            raise _busy() from None
        except TimeoutError:
            if self._stopping:
                raise _stopping() from None
            # a body that stays unread would block the connection
            raise Problem("too slow", "the body did not arrive in time", headers={"Connection": "close"}) from None
        return b"".join(parts)

    def _checks(self) -> Checks:
        try:
            return Checks(self.surveys.by_fingerprint, self.now_ms(), self.surveys.incomplete, PATIENCE_MS)
        except ClockJumped:
            detail = "this gateway's clock has jumped; no report of this attempt is in the log"
            raise Problem("log unavailable", detail) from None

    # ---- to the log

    def _log(self, survey: Survey, relayed: bool = False) -> GatewayLog:
        if survey.relay is not None and not relayed:
            raise Problem("relay required", "this survey takes reports only through a relay, which hides who sent them")
        return self.surveys.log_of(survey)

    def _append(
        self,
        log: GatewayLog,
        envelopes: Sequence[bytes],
        body: bytes,
        key: bytes | None,
        checks: Checks,
        client: Client,
        waiting: "_Waiting",
    ) -> None:
        waiting.envelopes, waiting.checks, waiting.keyed = len(envelopes), checks, key is not None
        keyed = None if key is None else Keyed(request_hash(body, key), checks.earliest_step, checks.now_ms)
        self._reports.charge(client, checks.reports, waiting.since_s)
        try:
            log.append(envelopes, keyed, waiting.done)
        except NotAppended:
            raise _unavailable() from None
        while self._waiting and self._waiting[0].answer is None:
            self._waiting.popleft()
        self._waiting.append(waiting)
        if self._timer is None:
            self._expire_later()

    def _expire_later(self) -> None:
        self._timer = None
        while self._waiting and self._waiting[0].answer is None:
            self._waiting.popleft()
        if self._waiting:
            wait_s = max(0.0, self._waiting[0].since_s + self._limit_s - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._expire)

    @property
    def _limit_s(self) -> float:
        return STOPPING_ACKNOWLEDGE_S if self._stopping else ACKNOWLEDGE_S

    def _expire(self) -> None:
        latest_s = time.monotonic() - self._limit_s
        while self._waiting and (self._waiting[0].answer is None or self._waiting[0].since_s <= latest_s):
            self._waiting.popleft().give(_unacknowledged())
        self._expire_later()


class _Waiting:
    __slots__ = ("answer", "batch", "begun_s", "checks", "envelopes", "keyed", "reservation", "since_s")

    def __init__(self, begun_s: float, since_s: float, reservation: Reservation, answer: Answer, batch: bool) -> None:
        self.begun_s, self.since_s, self.reservation, self.batch = begun_s, since_s, reservation, batch
        self.answer: Answer | None = answer
        self.envelopes, self.keyed = 0, False
        self.checks: Checks | None = None

    def go_on(self, append: Callable[[], None]) -> None:
        self.begun_s = self.since_s = time.monotonic()  # the metric of durations must not tell when the request arrived
        try:
            append()
        except BaseException as error:
            self.reservation.release()
            self.give(error if isinstance(error, Problem) else Problem("internal error", "see the gateway's log"))
            if not isinstance(error, Problem):
                raise

    def give(self, result: int | Problem) -> None:
        answer, self.answer = self.answer, None
        if answer is not None:
            _answer(result, self.begun_s, answer)

    def done(self, outcome: Outcome, appended_ms: int | None) -> None:
        self.reservation.release()
        if outcome is Outcome.APPENDED and self.checks is not None:
            metrics.counts.envelopes += self.envelopes
            metrics.counts.reports += self.checks.reports
            self.give(self.checks.count(appended_ms, self.batch, self.keyed))
        else:
            self.give(_unavailable() if outcome is Outcome.NOT_APPENDED else _unacknowledged())


def _answer(result: int | Problem, begun_s: float, answer: Answer) -> None:
    metrics.counts.requests[result.cause if isinstance(result, Problem) else "accepted"] += 1
    metrics.request_seconds.observe(time.monotonic() - begun_s)
    answer(result)


def _host(request: Request) -> str:
    return request.client.host if request.client else ""


def _busy() -> Problem:
    return Problem("busy", "too many bytes wait for the log; no report of this attempt is in the log")


def _stopping() -> Problem:
    return Problem("stopping", "this gateway is shutting down; no report of this attempt is in the log")


def _unavailable() -> Problem:
    return Problem("log unavailable", "the log does not answer; no report of this attempt is in the log")


def _unacknowledged() -> Problem:
    return Problem("outcome unknown", "the log has not acknowledged in time; retry with the same Idempotency-Key")
