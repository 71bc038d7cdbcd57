"""Requests with reports on their way to their answers."""

import time
from collections.abc import Callable, Hashable, Iterator
from typing import Final

import structlog
from starlette.responses import Response

from ldpstream.engines.gateway_log import Outcome
from ldpstream.gateway import metrics
from ldpstream.gateway.admission import Client, MemoryLimit
from ldpstream.gateway.budgets import Budgets
from ldpstream.gateway.http.bodies import Checks
from ldpstream.gateway.http.framing import Pairs
from ldpstream.gateway.http.problems import MAX_RETRY_S, Problem
from ldpstream.surveys import Survey

log = structlog.get_logger("ldpstream.gateway")

WAITS_A_STEP: Final = 8  # a client that has used its share waits for this part of a step

Result = int | Problem | Response  # the number of reports that count, a problem, or the response itself
Answer = Callable[[Result], None]


class Request:
    """A request.

    Args:
        headers: name in lower case and value of each header.
        address: the client's address.
        send: called once, as soon as the `result` is known.
        keep_alive: False to close the connection after the answer.

    Attributes:
        waiting: the request on its way to the log, if the answer depends on the body.
        result: the answer; None until it is known.
    """

    __slots__ = ("_send", "address", "headers", "keep_alive", "method", "path", "result", "waiting")

    def __init__(
        self, method: bytes, path: str, headers: Pairs, address: str, send: Callable[[], None], keep_alive: bool
    ) -> None:
        self.method, self.path, self.headers, self.address = method, path, headers, address
        self._send, self.keep_alive = send, keep_alive
        self.waiting: WaitingRequest | None = None
        self.result: Result | None = None

    def answer(self, result: Result) -> None:
        if self.result is None:
            self.result = result
            self._send()


class WaitingRequest:
    """A request with a body on its way to its answer.

    Attributes:
        answer: called once; None afterwards.
        handle: takes the whole body; yields where other tasks may run.
        limit: largest size of the body, in bytes.
        body: the parts of the body that have arrived, as one array: many short objects would take far more memory.
        held_bytes: the memory that the request has reserved.
        charged: the budgets, and the client that was charged.
        others: the requests that wait for the log, each with the monotonic time at which its wait ends.
    """

    __slots__ = (
        "answer", "batch", "begun_s", "body", "charged", "checks", "client", "handle", "held_bytes", "key", "limit", "memory",
        "others", "relayed",
    )  # fmt: skip

    client: Client
    handle: "Handle"
    limit: int

    def __init__(self, answer: Answer, memory: MemoryLimit, relayed: bool = False) -> None:
        self.begun_s = time.monotonic()
        self.answer: Answer | None = answer
        self.relayed, self.batch = relayed, False
        self.key: bytes | None = None
        self.memory, self.held_bytes, self.body = memory, 0, bytearray()
        self.checks: Checks | None = None
        self.charged: tuple[Budgets, Hashable] | None = None
        self.others: dict[WaitingRequest, float] = {}

    def go_on(self, append: Callable[[], None]) -> None:
        self.begun_s = time.monotonic()  # the metric of durations must not tell when the request arrived
        try:
            append()
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Answers with the problem."""
        self.release()
        self.give(problem_of(error))

    def give(self, result: int | Problem) -> None:
        if self.answer is not None:
            metrics.requests[result.cause if isinstance(result, Problem) else "accepted"].inc()
            metrics.request_seconds.observe(time.monotonic() - self.begun_s)
        self.close(result)

    def close(self, result: Result) -> None:
        """Answers, unless the request has its answer. The memory of the body stays reserved until `release`."""
        answer, self.answer = self.answer, None
        self.others.pop(self, None)
        if answer is not None:
            answer(result)

    def wait(self, until_s: float, others: "dict[WaitingRequest, float]") -> None:
        """Waits for the log until this monotonic time, unless the log has already answered."""
        if self.answer is not None:
            self.others = others
            others[self] = until_s

    def done(self, outcome: Outcome, appended_ms: int | None) -> None:
        self.release()
        checks = self.checks
        assert checks is not None
        assert checks.survey is not None
        if outcome is Outcome.APPENDED:
            metrics.reports.inc(checks.reports)
            self.give(checks.count(appended_ms, self.batch, self.key is not None))
        elif outcome is Outcome.UNKNOWN:
            self.give(unacknowledged())
        else:
            if self.charged is not None:
                budgets, client = self.charged
                budgets.take_back(client, checks.panes)
            self.give(_keys_full(checks.survey, checks.now_ms) if outcome is Outcome.KEYS_FULL else _unavailable())

    def release(self) -> None:
        """Releases the memory of the body."""
        if self.held_bytes:
            self.memory.give_back(self.client, self.held_bytes)
            self.held_bytes = 0


Handle = Callable[[WaitingRequest, bytes], Iterator[None]]


def problem_of(error: Exception) -> Problem:
    if isinstance(error, Problem):
        return error
    log.error("internal error", exc_info=error)
    return Problem("internal error", "see the gateway's log")


def share_used(survey: Survey) -> Problem:
    detail = "this client has sent its share of a step's reports; no report of this attempt is in the log"
    return Problem("share used", detail, retry_s=min(MAX_RETRY_S, -(-survey.step_seconds // WAITS_A_STEP)))


def _keys_full(survey: Survey, now_ms: int) -> Problem:
    wait_s = -(-(survey.opens_ms(survey.step_at(now_ms) + 1) - now_ms) // 1000)
    detail = "the log cannot remember more idempotency keys in this step; no report of this attempt is in the log"
    return Problem("keys full", detail, retry_s=min(MAX_RETRY_S, wait_s))


def _unavailable() -> Problem:
    return Problem("log unavailable", "the log does not answer; no report of this attempt is in the log")


def unacknowledged() -> Problem:
    return Problem("outcome unknown", "the log has not acknowledged in time; retry with the same Idempotency-Key")
