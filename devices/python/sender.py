"""Sends a device's reports to a gateway, directly or through a relay, and decides when.

Before each attempt for a report, the device looks for the person's consent, and writes the report into its journal.

If the survey requires a relay, an attempt sends at most one report, not before the report's random moment. Each other report
that is due when the attempt ends gets a new random moment, so that the end of an attempt starts no other one.
"""

import random
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from ldpstream.device.device import Device
from ldpstream.device.errors import RelayRequired
from ldpstream.device.reports import Waiting
from ldpstream.device.routes import (
    ACCEPTED,
    ANSWER_S,
    DAY_S,
    LOCAL,
    NEVER_COUNTS,
    TIMEOUT,
    Answer,
    Direct,
    Local,
    Relay,
    ThroughRelay,
)
from ldpstream.mechanisms.arguments import real

LONGEST_PAUSE_S: Final = 300.0
SHORTEST_RANGE_S: Final = 1.0
MIN_WAIT_S: Final = 1e-3
_random: Final = random.SystemRandom()


class Attempt(NamedTuple):
    """The outcome of one attempt.

    Attributes:
        accepted: number of reports that the gateway accepted. The log has these reports.
        refused: number of reports that the gateway refused for good: no later attempt counts. A report can have counted by an
            earlier attempt whose answer was lost.
        waiting: number of reports that need another attempt, or whose moment has not come.
        retry_after_s: the shortest time to the next attempt, in seconds. Directly: the shortest `Retry-After` of the waiting
            reports, 0 if one has none; through a relay: the time to the next moment.
        statuses: the distinct HTTP statuses other than the gateway's 202; 0 stands for no usable answer. A proxy's 202 and 422
            are not the gateway's.
        no_answer: why there was no answer of the gateway, such as "connection refused", each reason once.
    """

    accepted: int
    refused: int
    waiting: int
    retry_after_s: float
    statuses: tuple[int, ...]
    no_answer: tuple[str, ...] = ()


class Sender:
    """Sends the reports of one device to a gateway. All attempts for a report carry its key.

    Args:
        to: the gateway's URL, ``http[s]://host[:port][/path]``, without ``/v1/reports``; or the `Relay` before the gateway; or
            `LOCAL`: then nothing is sent, and each report counts as accepted.
        token: the bearer token. Behind a relay, all devices must have the same token.
        wait_s: how long an attempt waits for a connection and for each part of an answer, in seconds, in [0.001, 86 400]. On a
            silent network an attempt ends after this time and the look-up of the host's name, for which the system has a limit
            of its own.

    Raises:
        RelayRequired: if the survey requires a relay and `to` is a URL.
        ValueError: if the URL is malformed, or the survey does not require a relay and `to` is a `Relay`.
    """

    def __init__(self, device: Device, to: str | Relay, token: str | None = None, *, wait_s: float = ANSWER_S) -> None:
        survey, wait_s = device.survey, real("wait_s", wait_s, MIN_WAIT_S, DAY_S)
        self._device, self._relayed, self._local = device, isinstance(to, Relay), to == LOCAL
        if survey.relay is not None and not isinstance(to, Relay) and not self._local:
            raise RelayRequired(f"survey {survey.name} requires a relay: give the sender a Relay in place of the gateway's URL")
        if survey.relay is None and isinstance(to, Relay):
            raise ValueError(f'survey {survey.name} requires no relay: set relay = "required" in the survey, or give a URL')
        self._way: ThroughRelay | Direct | Local
        if isinstance(to, Relay):
            self._way = ThroughRelay(to, survey, token, wait_s)
        else:
            self._way = Local() if self._local else Direct(to, token, wait_s)
        self._next_ms: dict[str, float] = {}  # through a relay: idempotency key -> the new moment of a report that was due

    def attempt(self, stop: Callable[[], bool] = bool) -> Attempt:
        """Sends every waiting report once; through a relay, at most one report whose moment has come. Settles the reports that
        the gateway accepted or refused for good. Ends early after a report without an answer in `wait_s`.

        Args:
            stop: asked before each report; if true, the attempt ends.

        Raises:
            DeviceError: if the device's file cannot be used.
        """
        if self._relayed:
            return self._attempt_one(stop)
        reports = self._device.waiting()
        _random.shuffle(reports)  # the order of arrival then shows no order of steps or attributes
        answers, unsent = list[Answer](), len(reports)
        for report in reports:
            if stop():
                break
            unsent -= 1
            if self._device.leaves(report.key, report.attribute, local=self._local):
                answers.append(self._send(report))
                if answers[-1].reason == TIMEOUT:
                    break
        waits_s = [answer.retry_after_s for answer in answers if not _final(answer)]
        return _outcome(answers, unsent + len(waits_s), min(waits_s, default=0))

    def run(self, pause: Callable[[float], None] = time.sleep) -> None:
        """Calls `attempt` until no report waits.

        Between attempts it waits for `retry_after_s` and, without a relay, a random time of up to 5 minutes.

        Args:
            pause: waits for a number of seconds. To stop early, raise an exception: the reports stay in the device's file.
        """
        attempts = 0
        while (outcome := self.attempt()).waiting:
            pause(self.pause_s(outcome, attempts))
            attempts += 1

    def pause_s(self, outcome: Attempt, attempts: int) -> float:
        """Draws the time between an attempt, before which there were this number of others, and the next one, in seconds."""
        range_s = 0.0 if self._relayed else min(LONGEST_PAUSE_S, 2.0 ** min(attempts, 30))
        return outcome.retry_after_s + _random.random() * range_s

    def _send(self, report: Waiting) -> Answer:
        answer = self._way.post(report)
        if _final(answer):
            self._device.settle(report)
        return answer

    # ---- through a relay

    def _attempt_one(self, stop: Callable[[], bool]) -> Attempt:
        now, reports = _now_ms(), self._device.waiting()
        due = [report for report in reports if self._moment(report) <= now]
        answers = list[Answer]()
        if due and not stop():
            sent = _random.choice(due)
            answers = [self._send(sent)] if self._device.leaves(sent.key, sent.attribute, local=self._local) else []
            now, reports = _now_ms(), self._device.waiting()  # also the reports that became due or were made meanwhile
            for report in reports:
                if self._moment(report) <= now:
                    wait_s = answers[0].retry_after_s if answers and report.key == sent.key else 0.0
                    self._next_ms[report.key] = now + 1000 * (wait_s + self._range_s(report, now) * _random.random())
        self._next_ms = {report.key: at for report in reports if (at := self._next_ms.get(report.key)) is not None}
        next_ms = min(map(self._moment, reports), default=now)
        return _outcome(answers, len(reports), max(0.0, (next_ms - now) / 1000))

    def _moment(self, report: Waiting) -> float:
        return self._next_ms.get(report.key, report.due_ms)

    def _range_s(self, report: Waiting, now_ms: int) -> float:
        survey = self._device.survey
        left_s = (survey.closes_ms(report.step) - now_ms) / 1000
        return min(survey.step_seconds, max(SHORTEST_RANGE_S, left_s / 2) if left_s > 0 else survey.step_seconds)


def _final(answer: Answer) -> bool:
    return answer.from_gateway and answer.status in (ACCEPTED, NEVER_COUNTS)


def _outcome(answers: list[Answer], waiting: int, retry_after_s: float) -> Attempt:
    final = [answer.status for answer in answers if _final(answer)]
    statuses = dict.fromkeys(answer.status for answer in answers if answer.status != ACCEPTED or not answer.from_gateway)
    reasons = dict.fromkeys(answer.reason for answer in answers if answer.reason)
    accepted = final.count(ACCEPTED)
    return Attempt(accepted, len(final) - accepted, waiting, retry_after_s, tuple(statuses), tuple(reasons))


def _now_ms() -> int:
    return time.time_ns() // 10**6
