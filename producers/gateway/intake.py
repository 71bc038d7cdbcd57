"""The gateway's handling of a request; `producers.gateway.app` explains the guarantees.

This module does not depend on Kafka: the log is an argument.
"""

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec
from starlette.requests import ClientDisconnect, Request

from producers.gateway import metrics
from producers.gateway.admission import Acknowledged, Busy, MemoryLimit, RateLimit, Reservation, Tokens, neighbourhood
from producers.gateway.kafka_log import MAX_BATCH, MAX_BATCH_BYTES, GatewayLog, NotAppended, Unacknowledged
from producers.gateway.problems import FINAL, MAX_RETRY_S, STATUS, Element, Problem
from runtime.clock import now_ms
from surveys import Rejected, Survey, check_envelope
from surveys.envelope import MAX_ENVELOPE_BYTES

ENVELOPE, BATCH = "application/vnd.ldpstream.envelope", "application/vnd.ldpstream.envelopes"
ENVELOPES = (ENVELOPE, "application/octet-stream")
KEY = r"[A-Za-z0-9_-]{16,64}"
MEMORY_BYTES = 64 * 2**20  # limit on the bytes of bodies being read or not yet acknowledged
OVERHEAD_BYTES = 2048  # memory in bytes for a request, without its body
BODY_S, ACKNOWLEDGE_S = 10.0, 10.0
STOPPING_BODY_S, STOPPING_ACKNOWLEDGE_S = 0.5, 3.0  # time limits once the process is stopping
TIDY_S = 5.0
UNKNOWN = -1  # in place of a number of reports: the log may have the reports but will never acknowledge them
BREATH = 250  # number of envelopes checked before other tasks run; takes about 0.01 s

_BIN = (0xC4, 0xC5, 0xC6)

_decode_batch = msgspec.msgpack.Decoder(list[bytes]).decode
_key = re.compile(KEY)


Client = tuple[int, str]  # number of the token, neighbourhood of the address


class Limits(NamedTuple):
    """Rates of one client, per second."""

    requests: float = 50.0
    body_bytes: float = 5e6
    reports: float = 100_000.0


class Intake:
    """Accepts requests with reports, and answers them.

    Args:
        survey: the survey whose reports are accepted.
        log: the log that receives the reports.
        tokens: accepted bearer tokens; if the list is empty, requests need no token.
        limits: rates of one client (one token and one address), per second; a burst may be twice as large.
        memory_bytes: limit on the bytes of bodies being read or not yet acknowledged.
        now_ms: the time, in milliseconds since 1970 UTC.
    """

    def __init__(
        self,
        survey: Survey,
        log: GatewayLog,
        tokens: Iterable[str] = (),
        limits: Limits = Limits(),  # noqa: B008  # it is immutable
        memory_bytes: int = MEMORY_BYTES,
        now_ms: Callable[[], int] = now_ms,
    ) -> None:
        self.survey, self.log, self.tokens = survey, log, Tokens(tokens)
        self._requests, self._bytes, self._reports = (RateLimit(rate, 2 * rate) for rate in limits)
        self._memory = MemoryLimit(memory_bytes)
        self._now_ms = now_ms
        self._acknowledged = Acknowledged()
        self._deliveries: set[asyncio.Task[int]] = set()
        self._by_key: dict[bytes, asyncio.Task[int]] = {}
        self._waits: dict[asyncio.Timeout, float] = {}  # time limit -> seconds left once the gateway stops
        self._stopping = False
        metrics.waiting_bytes.set_function(lambda: self._memory.taken_bytes)
        metrics.log_available.set_function(lambda: self.log.ready)

    @property
    def ready(self) -> bool:
        """True if the gateway accepts reports."""
        return self.log.ready and not self._stopping

    def stop(self) -> None:
        """Accepts no further reports, and shortens all time limits: to 0.5 s for a body, to 3 s for an acknowledgement."""
        self._stopping = True
        now = asyncio.get_running_loop().time()
        for wait, grace_s in self._waits.items():
            if not wait.expired():
                wait.reschedule(min(wait.when() or now, now + grace_s))

    async def tidy(self) -> None:
        """Drops expired entries every few seconds, until cancelled."""
        while True:
            await asyncio.sleep(TIDY_S)
            now, before = time.monotonic(), self._acknowledged.forgotten_early
            for limit in (self._requests, self._bytes, self._reports):
                limit.forget(now)
            self._acknowledged.forget(now)
            metrics.keys_forgotten.inc(self._acknowledged.forgotten_early - before)

    # ---- a request

    async def accept(self, request: Request) -> int:
        """Admits a request and appends its reports to the log.

        Returns:
            Number of reports acknowledged.

        Raises:
            Problem: if the request is refused or its outcome is unknown.
        """
        begun = time.perf_counter()
        outcome = "internal error"
        try:
            reports = await self._take(request, self.admit(request))
            outcome = "accepted"
            return reports
        except Problem as problem:
            outcome = problem.cause
            raise
        finally:
            metrics.requests.labels(outcome).inc()
            metrics.request_seconds.observe(time.perf_counter() - begun)

    def admit(self, request: Request) -> Client:
        """Checks a request's token and the client's rates, and charges the client for one request.

        Returns:
            The client, to charge for the request's bytes and reports.

        Raises:
            Problem: unauthorized, too many requests, stopping.
        """
        token = self.tokens.find(request.headers.get("authorization", ""))
        if token is None:
            raise Problem("unauthorized", "this gateway needs a bearer token", headers={"WWW-Authenticate": "Bearer"})
        host = "" if request.client is None else neighbourhood(request.client.host)
        client, now = (token, host), time.monotonic()
        limits = {"requests": self._requests, "bytes": self._bytes, "reports": self._reports}
        wait_s, kind = max((limit.wait_s(client, now), kind) for kind, limit in limits.items())
        if wait_s:
            retry_s = min(int(wait_s) + 1, MAX_RETRY_S)
            raise Problem("too many requests", f"this client has sent too many {kind} in a second", retry_s=retry_s)
        self._requests.charge(client, 1, now)
        if self._stopping:
            raise Problem("stopping", "this gateway is shutting down; no report of this attempt is in the log")
        return client

    async def _take(self, request: Request, client: Client) -> int:
        kind, key = self._kind(request), self._given_key(request)
        reservation = Reservation(self._memory)
        try:
            body = await self._read(request, MAX_BATCH_BYTES if kind == BATCH else MAX_ENVELOPE_BYTES, reservation, client)
            if key is not None:
                key = hashlib.blake2b(body, key=key, digest_size=16).digest()
            known = self._known(key)
            if known is None:
                envelopes = _unpack(body) if kind == BATCH else [body]
                reports = await self._check(envelopes, in_batch=kind == BATCH)
                known = self._known(key)  # another attempt may have run meanwhile
            if known is None:
                self._reports.charge(client, reports, time.monotonic())
                known = self._deliver(envelopes, reports, key, reservation)
                reservation = Reservation(self._memory)  # the delivery releases the first reservation
        finally:
            reservation.release()
        if known == UNKNOWN:
            raise Problem(
                "outcome unknown", "the log never acknowledged an attempt with this key; the gateway makes no other attempt"
            )
        return known if isinstance(known, int) else await self._outcome(known)

    def _known(self, key: bytes | None) -> asyncio.Task[int] | int | None:
        """Returns what is known of an earlier attempt: its acknowledged reports, `UNKNOWN`, its running delivery, or None."""
        if key is None:
            return None
        reports = self._acknowledged.find(key)
        return self._by_key.get(key) if reports is None else reports

    def _kind(self, request: Request) -> str:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != BATCH and kind not in ENVELOPES:
            raise Problem("unsupported content type", f"the content type must be {', '.join(ENVELOPES)} or {BATCH}")
        if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise Problem("unsupported content type", "a body must not be compressed: random data does not shrink")
        return kind

    def _given_key(self, request: Request) -> bytes | None:
        given = request.headers.get("idempotency-key")
        if given is None:
            return None
        if not _key.fullmatch(given):
            raise Problem("malformed idempotency key", f"an idempotency key must match {KEY}")
        return given.encode()

    async def _read(self, request: Request, limit: int, reservation: Reservation, client: Client) -> bytes:
        declared = request.headers.get("content-length", "")
        size, parts = 0, []
        if declared.isdecimal() and (len(declared) > 12 or int(declared) > limit):
            raise Problem("too large", f"a body of this kind takes at most {limit} bytes")
        try:
            reservation.grow(OVERHEAD_BYTES)
            async with self._within(BODY_S, STOPPING_BODY_S):
                async for chunk in request.stream():
                    size += len(chunk)
                    self._bytes.charge(client, len(chunk), time.monotonic())
                    if size > limit:
                        raise Problem("too large", f"a body of this kind takes at most {limit} bytes")
                    reservation.grow(len(chunk))
                    parts.append(chunk)
        except ClientDisconnect:
            raise Problem("undecodable", "the client disconnected before the end of the body") from None
        except Busy:
            raise Problem("busy", "too many bytes wait for the log; no report of this attempt is in the log") from None
        except TimeoutError:
            if self._stopping:
                raise Problem("stopping", "this gateway is shutting down; no report of this attempt is in the log") from None
            closing = {"Connection": "close"}
            raise Problem("too slow", f"the body did not arrive within {BODY_S:.0f} s", headers=closing) from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _check(self, envelopes: list[bytes], in_batch: bool) -> int:
        """Checks the envelopes and returns their number of reports."""
        reports, now_ms, refused = 0, self._now_ms(), list[Element]()
        for index, envelope in enumerate(envelopes):
            if index % BREATH == BREATH - 1:
                await asyncio.sleep(0)  # let other tasks run
            try:
                reports += check_envelope(self.survey, envelope, now_ms).n
            except Rejected as rejected:
                refused.append({"index": index, "reason": rejected.reason})
                if rejected.reason == "step in the future":
                    refused[-1]["retry_after"] = self._opens_in_s(envelope, now_ms)
        if refused:
            raise _refusal(refused, in_batch)
        return reports

    def _opens_in_s(self, envelope: bytes, now_ms: int) -> int:
        """Returns the seconds until a report of the envelope's step may count, at most a day."""
        step = msgspec.msgpack.decode(envelope)[4]
        wait_ms = self.survey.opens_ms(step) - self.survey.skew_ms - now_ms
        return min(-(-wait_ms // 1000) + 1, MAX_RETRY_S)  # 1 s more: the brokers' clocks may be behind the gateway's clock

    # ---- to the log

    def _deliver(self, envelopes: list[bytes], reports: int, key: bytes | None, reservation: Reservation) -> asyncio.Task[int]:
        """Starts to append the envelopes. The delivery continues even if the request is cancelled."""

        async def deliver() -> int:
            became: int | None = None  # None: the reports are not in the log, and the client can retry
            try:
                await self.log.append(envelopes)
                became = reports
            except NotAppended:
                raise
            except BaseException:
                became = UNKNOWN
                raise
            finally:
                if key is not None and became is not None:
                    self._acknowledged.put(key, became, time.monotonic())
                reservation.release()
                if key is not None:
                    del self._by_key[key]
            metrics.envelopes.inc(len(envelopes))
            metrics.reports.inc(reports)
            return reports

        delivery = asyncio.create_task(deliver())
        self._deliveries.add(delivery)
        delivery.add_done_callback(self._delivered)
        if key is not None:
            self._by_key[key] = delivery
        return delivery

    def _delivered(self, delivery: asyncio.Task[int]) -> None:
        self._deliveries.discard(delivery)
        if not delivery.cancelled():
            delivery.exception()  # marks the exception as retrieved, even if no caller awaits the task

    async def _outcome(self, delivery: asyncio.Task[int]) -> int:
        unknown = "the log has not acknowledged in time; retry with the same Idempotency-Key to learn the outcome"
        try:
            async with self._within(ACKNOWLEDGE_S, STOPPING_ACKNOWLEDGE_S):
                return await asyncio.shield(delivery)
        except NotAppended:
            raise Problem("log unavailable", "the log does not answer; no report of this attempt is in the log") from None
        except (Unacknowledged, TimeoutError):
            raise Problem("outcome unknown", unknown) from None

    @asynccontextmanager
    async def _within(self, limit_s: float, stopping_s: float) -> AsyncIterator[None]:
        """A time limit that `stop` shortens."""
        async with asyncio.timeout(stopping_s if self._stopping else limit_s) as wait:
            self._waits[wait] = stopping_s
            try:
                yield
            finally:
                del self._waits[wait]


def _unpack(body: bytes) -> list[bytes]:
    """Returns the envelopes of a batch."""
    try:
        envelopes = _decode_batch(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Problem("undecodable", "a batch must be one msgpack array of binaries", elements=_no_binaries(body)) from None
    if not envelopes:
        raise Problem("undecodable", "a batch must hold at least one envelope")
    if len(envelopes) > MAX_BATCH:
        raise Problem("too large", f"a batch takes at most {MAX_BATCH} envelopes")
    return envelopes


def _no_binaries(body: bytes) -> list[Element]:
    """Returns the elements of a batch that are not binaries; none if the batch is not an array."""
    try:
        parts = msgspec.msgpack.decode(body, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
    # the first byte of a msgpack binary: bin 8, bin 16 or bin 32
    return [{"index": index, "reason": "undecodable"} for index, part in enumerate(parts) if bytes(part)[0] not in _BIN]


def _refusal(refused: list[Element], in_batch: bool) -> Problem:
    """Returns the problem for refused envelopes: the first final reason, or "step in the future" if no reason is final."""
    final = next((element for element in refused if STATUS[element["reason"]] in FINAL), None)
    elements = refused if in_batch else []
    if final is not None:
        detail = "the service would never count it" if not in_batch else "the service would never count some of these envelopes"
        return Problem(final["reason"], detail, elements=elements)
    retry_s = max(element["retry_after"] for element in refused)
    return Problem(
        "step in the future", "the same body may count after Retry-After seconds", elements=elements, retry_s=retry_s
    )
