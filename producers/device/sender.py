"""Posts a device's reports to a gateway. Needs only the standard library, without a relay."""

import http.client
import random
import secrets
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ldpstream.producers.device.device import Device, Waiting
from ldpstream.producers.device.relayed import Capsules, Moments, NoAnswer, Relay, check_url

ACCEPTED: Final = 202
NEVER_COUNTS: Final = 422  # the only status after which an envelope never counts
ANSWER_S: Final = 15.0  # longer than each of the gateway's own time limits
LONGEST_PAUSE_S: Final = 300.0
DAY_S: Final = 86_400


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Reports a redirect as a status: a report goes to the gateway that the application named, and to no other."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener: Final = urllib.request.build_opener(_NoRedirects)


class Attempt(NamedTuple):
    """The outcome of one attempt for every waiting report.

    Attributes:
        accepted: number of reports that are in the log.
        refused: number of reports that never count, because the gateway refused them finally.
        waiting: number of reports that need another attempt.
        retry_after_s: the gateway's `Retry-After` in seconds, the shortest of all reports that wait; 0 if one of them got none.
        statuses: the HTTP statuses of the answers other than 202, each once; 0 stands for no answer.
        no_answer: why there was no answer, such as "connection refused", each reason once.
    """

    accepted: int
    refused: int
    waiting: int
    retry_after_s: float
    statuses: tuple[int, ...]
    no_answer: tuple[str, ...] = ()


class Sender:
    """Posts the reports of one device to a gateway. All attempts for a report carry its key, so the report counts once.

    With a relay, no report ever goes to the gateway directly, and each report leaves alone at a random moment: see `relayed`.

    Args:
        device: the device whose reports to post.
        url: the gateway's URL, ``http[s]://host[:port][/path]``, without ``/v1/reports``. With a relay, the URL only names the
            gateway.
        token: bearer token, if the gateway needs one. With a relay, all devices must have the same token.
        relay: the relay, which the survey may require.

    Raises:
        ValueError: if the URL is malformed, if the survey requires a relay and none is given, or if a relay is given and
            `lateness_steps` is 0. The message leaves out a user name and password.
    """

    def __init__(self, device: Device, url: str, token: str | None = None, relay: Relay | None = None) -> None:
        check_url("gateway", url)
        survey = device.survey
        if relay is None and survey.relay is not None:
            raise ValueError(f"survey {survey.name} takes reports through a relay only: give `relay` (docs/relay.md)")
        if relay is not None and survey.lateness_steps == 0:
            raise ValueError(f"survey {survey.name} has lateness_steps = 0: reports through a relay would come too late")
        self._device, self._url = device, url.rstrip("/") + "/v1/reports"
        self._headers = {"Content-Type": "application/vnd.ldpstream.envelope"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._capsules = None if relay is None else Capsules(survey, relay, self._url, self._headers)
        self._moments = Moments(survey)

    def attempt(self) -> Attempt:
        """Posts every waiting report once, and settles the reports that are in the log or never count.

        With a relay, posts one report if its moment has come. `retry_after_s` is the time until the next report's moment.

        Raises:
            DeviceError: if the device's file cannot be used.
        """
        reports = self._device.waiting()
        if self._capsules is None:
            random.SystemRandom().shuffle(reports)  # the order of arrival then shows no order of steps or attributes
            return self._post_all(reports)
        report, next_s = self._moments.next(reports)
        if report is None:
            return Attempt(0, 0, len(reports), next_s, ())
        outcome, others = self._post_all([report]), len(reports) - 1
        if outcome.waiting:
            again_s = self._moments.postpone(report, outcome.retry_after_s)
            next_s = min(next_s, again_s) if others else again_s
        return outcome._replace(waiting=outcome.waiting + others, retry_after_s=next_s)

    def _post_all(self, reports: list[Waiting]) -> Attempt:
        accepted, refused = 0, 0
        waits_s, statuses, no_answer = list[float](), list[int](), list[str]()
        for report in reports:
            try:
                status, told_s = self._post(report)
            except (OSError, http.client.HTTPException, NoAnswer) as error:
                status, told_s = 0, 0.0
                reason = str(error) if isinstance(error, NoAnswer) else _reason(error)
                if reason not in no_answer:
                    no_answer.append(reason)
            if status in (ACCEPTED, NEVER_COUNTS):
                self._device.settle(report)
            else:
                waits_s.append(told_s)
            accepted += status == ACCEPTED
            refused += status == NEVER_COUNTS
            if status not in (ACCEPTED, *statuses):
                statuses.append(status)
        return Attempt(accepted, refused, len(waits_s), min(waits_s, default=0), tuple(statuses), tuple(no_answer))

    def run(self, pause: Callable[[float], None] = time.sleep) -> None:
        """Calls `attempt` until no report waits.

        The pause before the next attempt has two parts. The first part is the shortest `Retry-After` of all reports: a report
        for a future step may have to wait a day, and must not delay the others. The second part is a uniformly random share of
        1 s, 2 s, 4 s, … up to 5 minutes. It keeps many devices from returning at one moment. With a relay, the pause
        lasts until the next report's moment.

        Args:
            pause: waits for a number of seconds. To stop early, raise an exception: the reports stay in the device's file.
        """
        attempts = 0
        while (outcome := self.attempt()).waiting:
            range_s = min(LONGEST_PAUSE_S, 2.0 ** min(attempts, 30)) if self._capsules is None else 0
            pause(outcome.retry_after_s + secrets.randbelow(2**32) / 2**32 * range_s)
            attempts += 1

    def _post(self, report: Waiting) -> tuple[int, float]:
        """Makes one attempt. Returns the answer's status and its `Retry-After` in seconds (0: none)."""
        if self._capsules is not None:
            status, told_s = self._capsules.post(report, _opener, ANSWER_S)
            return status, min(told_s, DAY_S)
        # the same User-Agent for all devices: the default names the Python version
        headers = self._headers | {"User-Agent": "ldpstream", "Idempotency-Key": report.key}
        request = urllib.request.Request(self._url, report.envelope, headers)
        try:
            with _opener.open(request, timeout=ANSWER_S) as answer:
                return answer.status, 0.0
        except urllib.error.HTTPError as error:
            error.close()
            told = error.headers.get("Retry-After", "")
            return error.code, min(float(told), DAY_S) if told.isascii() and told.isdecimal() else 0.0


def _reason(error: OSError | http.client.HTTPException) -> str:
    """Returns why there was no answer. The texts contain nothing of the URL."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    match reason:
        case ssl.SSLCertVerificationError():
            return f"certificate refused: {reason.verify_message.partition(',')[0].lower()}"  # the host's name follows a comma
        case ssl.SSLError():
            return "TLS failed"
        case socket.gaierror():
            return "name not found"
        case TimeoutError():
            return "timeout"
        case ConnectionRefusedError():
            return "connection refused"
        case ConnectionError():
            return "connection closed"
        case OSError(strerror=str(text)):
            return text.lower()  # such as "network is unreachable"
        case http.client.InvalidURL():
            return "a malformed URL"
    return "an answer that is not HTTP"
