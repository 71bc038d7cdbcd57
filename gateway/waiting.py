"""Requests with reports on their way to their answers."""

import time
from collections.abc import Callable, Hashable
from typing import Final

from ldpstream.engines.gateway_log import Outcome
from ldpstream.gateway import metrics
from ldpstream.gateway.admission import Reservation
from ldpstream.gateway.budgets import Budgets
from ldpstream.gateway.http.bodies import Checks
from ldpstream.gateway.http.problems import MAX_RETRY_S, Problem
from ldpstream.surveys import Survey

WAITS_A_STEP: Final = 8  # a client that has used its share waits for this part of a step

Answer = Callable[[int | Problem], None]  # receives the number of reports that count, or the problem


class WaitingRequest:
    """A request on its way to its answer.

    Attributes:
        charged: the budgets, and the client that was charged.
        others: the requests that wait for the log, each with the monotonic time at which its wait ends.
    """

    __slots__ = (
        "answer", "batch", "begun_s", "charged", "checks", "key", "others", "relayed", "reservation",
    )  # fmt: skip

    def __init__(self, answer: Answer, relayed: bool = False) -> None:
        self.begun_s = time.monotonic()
        self.answer: Answer | None = answer
        self.relayed, self.batch = relayed, False
        self.key: bytes | None = None
        self.reservation: Reservation | None = None
        self.checks: Checks | None = None
        self.charged: tuple[Budgets, Hashable] | None = None
        self.others: dict[WaitingRequest, float] = {}

    def go_on(self, append: Callable[[], None]) -> None:
        self.begun_s = time.monotonic()  # the metric of durations must not tell when the request arrived
        try:
            append()
        except BaseException as error:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Answers with the problem. Raises any other error again."""
        self._release()
        self.give(error if isinstance(error, Problem) else Problem("internal error", "see the gateway's log"))
        if not isinstance(error, Problem):
            raise error

    def give(self, result: int | Problem) -> None:
        answer, self.answer = self.answer, None
        self.others.pop(self, None)
        if answer is not None:
            metrics.requests[result.cause if isinstance(result, Problem) else "accepted"].inc()
            metrics.request_seconds.observe(time.monotonic() - self.begun_s)
            answer(result)

    def wait(self, until_s: float, others: "dict[WaitingRequest, float]") -> None:
        """Waits for the log until this monotonic time, unless the log has already answered."""
        if self.answer is not None:
            self.others = others
            others[self] = until_s

    def done(self, outcome: Outcome, appended_ms: int | None) -> None:
        self._release()
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

    def _release(self) -> None:
        if self.reservation is not None:
            self.reservation.release()


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
