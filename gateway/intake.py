"""The gateway's handling of a request with reports; `gateway.http.app` explains the guarantees."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from ldpstream.engines.gateway_log import GatewayLog, Keyed
from ldpstream.gateway import metrics
from ldpstream.gateway.admission import NOT_ASKED, Client, MemoryLimit, Networks, RateLimit, Tokens, neighbourhood
from ldpstream.gateway.budgets import KEYS, Budgets
from ldpstream.gateway.http.bodies import (
    Checks,
    Headers,
    announced,
    idempotency_key,
    is_batch,
    largest_body,
    oversized,
    read_headers,
    unpack,
)
from ldpstream.gateway.http.problems import MAX_RETRY_S, Problem
from ldpstream.gateway.relay_keys import RelayKeys
from ldpstream.gateway.shuffle import Shuffle
from ldpstream.gateway.surveys import GatewaySurveys
from ldpstream.gateway.waiting import Answer, Handle, Request, WaitingRequest, share_used, unacknowledged
from ldpstream.runtime.clock import ClockJumped, now_ms
from ldpstream.surveys import Survey
from ldpstream.surveys.report_key import request_hash

MEMORY_BYTES = 64 * 2**20  # limit on the bytes of bodies being read or not yet acknowledged
OVERHEAD_BYTES = 2048  # memory in bytes for a request, without its body
ACKNOWLEDGE_S = 10.0
STOPPING_ACKNOWLEDGE_S = 3.0  # time limit once the process is stopping
TIDY_S = 5.0
PATIENCE_MS = 5_000  # around a step's close, the log's clock decides: this long after the close by the gateway's clock
BREATH = 250  # number of envelopes checked before other tasks run
DEVICE_BATCH: Final = 100  # largest number of envelopes in a request of a device
RATE: Final = 50.0
BURST_S: Final = 2.0  # size of a burst, in seconds at the rate
BODY_BYTES: Final = 100_000  # a body counts as one request more for so many bytes

Pairs = Sequence[tuple[bytes, bytes]]  # headers: name in lower case, value


class Intake:
    """Accepts requests with reports, and answers them.

    Args:
        tokens, collectors: the tokens of devices and of collectors, as in `Tokens`.
        rate: requests of one client per second, with their bodies. Relays have no limit.
        memory_bytes: limit on the bytes of bodies being read or not yet acknowledged.
        shuffle: holds the requests that come through a relay and pass the checks, and later their answers.
        relays: addresses and networks of relays, as in `Settings.gateway_relays`.
    """

    def __init__(
        self,
        surveys: GatewaySurveys,
        tokens: Iterable[str] = (),
        rate: float = RATE,
        memory_bytes: int = MEMORY_BYTES,
        now_ms: Callable[[], int] = now_ms,
        shuffle: Shuffle | None = None,
        collectors: Iterable[str] = (),
        relays: str = "",
    ) -> None:
        self.surveys, self.tokens = surveys, Tokens(tokens, collectors)
        self._rate = RateLimit(rate, BURST_S * rate)
        self._budgets: dict[bytes, Budgets] = {}  # by fingerprint of the survey
        self._memory, self._relays = MemoryLimit(memory_bytes), Networks(relays)
        self.relay_keys: RelayKeys | None = None
        self.works: Callable[[], bool] = lambda: True
        self.now_ms = now_ms
        self._shuffle = shuffle or Shuffle()
        self._waiting: dict[WaitingRequest, float] = {}  # those that wait for the log, with the end of the wait
        self._timer: asyncio.TimerHandle | None = None  # one for all requests: a timer of each would take longer
        self._stopping = False
        metrics.waiting_bytes.set_function(lambda: self._memory.taken_bytes)
        metrics.survey_ready.values = lambda: {name: ready and self._clock_agrees() for name, ready in self.surveys.states()}
        metrics.largest_client.values = self.largest_shares

    @property
    def ready(self) -> bool:
        """True if the gateway accepts reports of a survey, and the rest of the process works."""
        return self.surveys.ready and not self._stopping and self._clock_agrees() and self.works()

    def unready(self) -> str | None:
        """Returns the reason if the gateway is not ready, else None. Any thread may call it."""
        return None if self.ready else "no survey's reports can be taken at present"

    def _clock_agrees(self) -> bool:
        with suppress(ClockJumped):
            self.now_ms()
            return True
        return False

    def largest_shares(self) -> dict[str, float]:
        """Returns for each survey the `Budgets.largest_share`, 0 before the first report. Any thread may call it."""
        return {
            survey.name: 0.0 if (budgets := self._budgets.get(fingerprint)) is None else budgets.largest_share()
            for fingerprint, survey in list(self.surveys.by_fingerprint.items())
        }

    def stop(self) -> None:
        """Refuses further requests, and shortens the time limits of acknowledgements in progress."""
        self._stopping = True
        for waiting, until_s in self._waiting.items():
            self._waiting[waiting] = min(until_s, time.monotonic() + STOPPING_ACKNOWLEDGE_S)
        if self._timer is not None:
            self._timer.cancel()
        self._expire()

    def _expire(self) -> None:
        """Answers the requests that have waited too long for the log, and sets the timer for the next one."""
        self._timer, now_s = None, time.monotonic()
        for waiting in [one for one, until_s in self._waiting.items() if until_s <= now_s]:
            waiting.give(unacknowledged())
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(min(self._waiting.values()) - now_s, self._expire)

    async def tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_S)
            self._rate.forget(time.monotonic())
            self._budgets = {one: of for one, of in self._budgets.items() if one in self.surveys.by_fingerprint}
            with suppress(ClockJumped):
                for budgets in self._budgets.values():
                    budgets.forget(self.now_ms() - PATIENCE_MS)

    # ---- a request

    def take(self, pairs: Pairs, host: str, body: bytes, answer: Answer, relayed: bool = False) -> None:
        """Handles a request that has arrived whole.

        Args:
            answer: called once, now or later, with the number of reports that count, or with the problem.
            relayed: True if the request came through a relay, inside another request.
        """
        waiting = self.begin(pairs, host, answer, relayed)
        self.receive(waiting, body)
        self.end(waiting)

    def begin(self, pairs: Pairs, host: str, answer: Answer, relayed: bool = False) -> WaitingRequest:
        """Admits a request with reports. `receive` then takes the parts of its body, and `end` begins its checks."""
        waiting = WaitingRequest(answer, self._memory, relayed)
        try:
            headers = read_headers(pairs)
            client = self._client(headers, host, waiting.begun_s, relayed)
            waiting.batch, waiting.key, waiting.handle = is_batch(headers), idempotency_key(headers), self._checked
            self._expect_body(waiting, client, headers, largest_body(waiting.batch))
        except Exception as error:
            waiting.fail(error)
        return waiting

    def begin_capsule(self, request: Request, limit: int, handle: Handle) -> WaitingRequest:
        """Admits a request that a relay may send, with a body of at most this number of bytes."""
        waiting = WaitingRequest(request.answer, self._memory)
        try:
            waiting.handle, client = handle, self.admit_anybody(request.address, relay=True)
            self._expect_body(waiting, client, read_headers(request.headers), limit)
        except Exception as error:
            waiting.fail(error)
        return waiting

    def _expect_body(self, waiting: WaitingRequest, client: Client, headers: Headers, limit: int) -> None:
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and (len(declared) > 12 or int(declared) > limit):
            raise oversized(limit)
        waiting.client, waiting.limit = client, limit
        self._memory.take(client, OVERHEAD_BYTES)
        waiting.held_bytes = OVERHEAD_BYTES

    def receive(self, waiting: WaitingRequest, part: bytes) -> None:
        """Takes a part of the body, and charges the client. Does nothing if the request has its answer."""
        if waiting.answer is None:
            return
        client, size = waiting.client, len(part)
        try:
            if not client.relay:
                self._rate.charge(client, size / BODY_BYTES, time.monotonic())
            if waiting.held_bytes + size > OVERHEAD_BYTES + waiting.limit:
                raise oversized(waiting.limit)
            self._memory.take(client, size)
            waiting.held_bytes += size
            waiting.body += part
        except Problem as problem:
            waiting.fail(problem)

    def end(self, waiting: WaitingRequest) -> None:
        """Handles the body, which has arrived whole."""
        if waiting.answer is not None:
            body = bytes(waiting.body)
            waiting.body.clear()
            self._go_on(waiting, waiting.handle(waiting, body))

    def _answer_later(self, answer: Answer, result: int | Problem) -> None:
        """Answers at the end of the present batch: the order of the answers must not show which record is whose."""
        self._shuffle.hold(partial(answer, result))

    def late(self) -> Problem:
        """Returns the problem of a body that did not arrive in time."""
        return _stopping() if self._stopping else Problem("too slow", "the body did not arrive in time")

    def admit(self, pairs: Pairs, host: str) -> None:
        """Checks the token and the rates for a request without a body, and charges the client.

        Raises:
            Problem: if the token is not accepted, the client has exceeded a rate, or the process is stopping.
        """
        self._client(read_headers(pairs), host, time.monotonic())

    def admit_anybody(self, host: str, relay: bool = False) -> Client:
        """Checks the client's rates for a request that needs no token, charges the client, and returns the client.

        Args:
            relay: True for a request that a relay may send.

        Raises:
            Problem: if the client has exceeded a rate, or the process is stopping.
        """
        client = Client(NOT_ASKED, neighbourhood(host), relay=relay and host in self._relays)
        self._charge(client, time.monotonic())
        return client

    def _client(self, headers: Headers, host: str, now_s: float, relayed: bool = False) -> Client:
        found = self.tokens.find(headers.get(b"authorization", b""))
        if found is None:
            raise Problem("unauthorized", "this gateway needs a bearer token", headers={"WWW-Authenticate": "Bearer"})
        token, collector = found
        client = Client(token, neighbourhood(host), collector, relayed and host in self._relays)
        self._charge(client, now_s)
        return client

    def _charge(self, client: Client, now_s: float) -> None:
        if not client.relay:
            if wait_s := self._rate.wait_s(client, now_s):
                detail = "this client has sent too many requests, or too many bytes, in a second"
                raise Problem("too many requests", detail, retry_s=min(int(wait_s) + 1, MAX_RETRY_S))
            self._rate.charge(client, 1, now_s)
        if self._stopping:
            raise _stopping()

    def _go_on(self, waiting: WaitingRequest, handling: Iterator[None]) -> None:
        try:
            for _ in handling:
                asyncio.get_running_loop().call_soon(self._go_on, waiting, handling)
                return
        except Exception as error:
            waiting.fail(error)

    def _checked(self, waiting: WaitingRequest, body: bytes) -> Iterator[None]:
        """Checks a body and starts its append. Yields after every `BREATH` envelopes."""
        batch, client = waiting.batch, waiting.client
        if batch and announced(body) > DEVICE_BATCH and not client.collector:  # first: to decode a long batch takes a second
            raise _collector_required()
        envelopes = unpack(body, batch)
        checks = Checks(self.surveys.by_fingerprint, self.time_ms(), self.surveys.incomplete, PATIENCE_MS)
        for first in range(0, len(envelopes), BREATH):
            if first:
                yield
            checks.check(envelopes[first : first + BREATH], first)
        survey = checks.require_countable(batch)
        if checks.reports > len(envelopes) and not client.collector:
            raise _collector_required()
        if survey.relay is not None and not waiting.relayed:
            raise Problem("relay required", "this survey takes reports only through a relay, which hides who sent them")
        waiting.checks, keyed = checks, None
        if waiting.key is not None:
            keyed = Keyed(request_hash(body, waiting.key), checks.earliest_step, checks.now_ms)
            checks.panes[KEYS, survey.step_at(checks.now_ms)] = len(envelopes)
        append = partial(self._append, waiting, self.surveys.log_of(survey), survey, envelopes, keyed)
        if waiting.relayed and (answer := waiting.answer) is not None:
            waiting.answer = partial(self._answer_later, answer)  # a refusal before this moment is answered at once
            self._shuffle.hold(partial(waiting.go_on, append))
        else:
            append()

    def time_ms(self) -> int:
        """Returns the present time in Unix ms; raises Problem while the clock has jumped."""
        try:
            return self.now_ms()
        except ClockJumped:
            detail = "this gateway's clock has jumped; no report of this attempt is in the log"
            raise Problem("log unavailable", detail) from None

    # ---- to the log

    def _append(
        self, waiting: WaitingRequest, log: GatewayLog, survey: Survey, envelopes: Sequence[bytes], keyed: Keyed | None
    ) -> None:
        if (budgets := self._budgets.get(survey.fingerprint)) is None:
            budgets = self._budgets[survey.fingerprint] = Budgets(survey)
        client = waiting.client
        budgeted = None if client.collector or client.relay else client.near
        assert waiting.checks is not None
        if not budgets.charge(budgeted, waiting.checks.panes):
            raise share_used(survey)
        waiting.charged = budgets, budgeted
        log.append(envelopes, keyed, waiting.done)
        waiting.wait(time.monotonic() + (STOPPING_ACKNOWLEDGE_S if self._stopping else ACKNOWLEDGE_S), self._waiting)
        if self._timer is None:
            self._expire()


def _collector_required() -> Problem:
    detail = f"several reports in an envelope, or more than {DEVICE_BATCH} envelopes in a batch, need a collector's token"
    return Problem("collector required", detail)


def _stopping() -> Problem:
    return Problem("stopping", "this gateway is shutting down; no report of this attempt is in the log")
