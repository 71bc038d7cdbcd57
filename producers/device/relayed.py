"""Reports through a relay (Oblivious HTTP, RFC 9458): what leaves a device, and when.

Every request of a survey's devices has the same headers and the same size. Each has a fresh key, and a connection of its own.
Each report leaves alone, at a moment of its own in the steps after its step (`Moments`): the moment tells nothing of the time
at which the report was made. Needs `pip install 'ldpstream[relay]'`.
"""

import hashlib
import math
import random
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from ldpstream.producers.device.device import Waiting
from ldpstream.surveys import Survey

INNER_PATH: Final = b"/v1/reports"
PADDED_BYTES: Final = 512
HEAD_BYTES: Final = 64  # more than an envelope has beside its one report
MAX_ANSWER_BYTES: Final = 2**16
MARGIN: Final = 0.1  # share of a step before its close in which no first attempt is made
KEY_FAULT: Final = "https://iana.org/assignments/http-problem-types#ohttp-key"


class NoAnswer(Exception):
    """Raised if the outcome is unknown. The text is a reason for `Attempt.no_answer`, and contains nothing of the URL."""


class Relay:
    """A relay, and the gateway's keys for requests through it.

    All devices must get the same keys: a device with keys of its own can be recognized by them. So the application gets the
    keys through the relay, or with an update, and never from the gateway directly.

    Args:
        url: the relay's URL for this gateway, ``http[s]://host[:port][/path]``.
        keys: the gateway's key configurations, the bytes of ``GET /.well-known/ohttp-gateway`` (RFC 9458, section 3).

    Raises:
        ImportError: without `pip install 'ldpstream[relay]'`.
        ValueError: if the URL is malformed, or no configuration can be used.
    """

    def __init__(self, url: str, keys: bytes) -> None:
        from ldpstream.producers.relay.capsules import decode_configs, seal_request

        check_url("relay", url)
        configs = decode_configs(keys)
        if not configs:
            raise ValueError("keys must hold a key configuration with X25519, HKDF-SHA256 and AES-128-GCM")
        seal_request(configs[0], b"")  # a ValueError for a public key that cannot be used
        self.url, self.config = url, configs[0]


def check_url(what: str, url: str) -> None:
    """Raises ValueError if the URL is malformed. The message leaves out a user name and password."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
        told = f"http[s]://host[:port][/path] without a user name, got {url.rpartition('@')[2]!r}"
        raise ValueError(f"a {what}'s URL must be {told}")


class Answer(NamedTuple):
    """The gateway's answer: its status, and its `Retry-After` in seconds (0: none)."""

    status: int
    retry_after_s: float


class Capsules:
    """Posts envelopes through a relay, each in an encapsulated request of one size.

    Args:
        survey: the survey, which determines the size.
        relay: the relay.
        gateway: the gateway's URL, of which the request inside has the scheme and the host.
        headers: the headers of every request inside, besides the idempotency key.
    """

    def __init__(self, survey: Survey, relay: Relay, gateway: str, headers: dict[str, str]) -> None:
        parts = urlsplit(gateway)
        self._relay, self._scheme, self._authority = relay, parts.scheme.encode(), parts.netloc.encode()
        self._headers = tuple((name.lower().encode(), value.encode()) for name, value in headers.items())
        largest = max(m.report_dtype.itemsize for levels in survey.mechanisms for m in levels)
        empty = len(self._message(b"", "k" * 22))
        self._size = -(-(empty + HEAD_BYTES + largest) // PADDED_BYTES) * PADDED_BYTES

    def post(self, report: Waiting, opener: urllib.request.OpenerDirector, timeout_s: float) -> Answer:
        """Posts one report.

        Raises:
            NoAnswer: if no answer of the gateway came back.
            OSError, http.client.HTTPException: if the relay cannot be reached.
        """
        from ldpstream.producers.relay.binary_http import BinaryHttpError, decode_response
        from ldpstream.producers.relay.capsules import REQUEST_TYPE, CapsuleError, seal_request

        message = self._message(report.envelope, report.key)
        capsule, exchange = seal_request(self._relay.config, message + bytes(self._size - len(message)))
        request = urllib.request.Request(self._relay.url, capsule, {"User-Agent": "ldpstream", "Content-Type": REQUEST_TYPE})
        try:
            with opener.open(request, timeout=timeout_s) as answer:
                status, content = answer.status, answer.read(MAX_ANSWER_BYTES)
        except urllib.error.HTTPError as error:  # not encrypted: the relay, or anybody, may have written it
            with error:
                stale = error.code == 400 and KEY_FAULT.encode() in error.read(MAX_ANSWER_BYTES)
            reason = "the gateway has other relay keys" if stale else f"the relay answered {error.code}"
            raise NoAnswer(reason) from None
        try:
            if status != 200:
                raise NoAnswer(f"the relay answered {status}")
            inner = decode_response(exchange.open_response(content))
        except (CapsuleError, BinaryHttpError):
            raise NoAnswer("an answer that is not the gateway's") from None
        told = dict(inner.headers).get(b"retry-after", b"")
        return Answer(inner.status, float(told) if told.isdigit() and len(told) < 10 else 0.0)

    def _message(self, envelope: bytes, key: str) -> bytes:
        from ldpstream.producers.relay.binary_http import BinaryRequest, encode_request

        headers = (*self._headers, (b"idempotency-key", key.encode()))
        return encode_request(BinaryRequest(b"POST", self._scheme, self._authority, INNER_PATH, headers, envelope))


def now_ms() -> int:
    """The device's clock, in Unix milliseconds."""
    return time.time_ns() // 1_000_000


class Moments:
    """When each report leaves.

    A report's first moment is uniformly random in the steps after its step, until shortly before its step closes. It follows
    from the report's secret key, so it stays the same when the process restarts. A report whose attempt failed, and all but
    one of several that are due at once, get a new moment: uniformly random in half of the time that is left until the close, so
    that many more attempts fit. After the close it is uniformly random in one step.
    """

    def __init__(self, survey: Survey) -> None:
        self._survey, self._random = survey, random.SystemRandom()
        self._again: dict[str, int] = {}  # by key

    def next(self, waiting: Iterable[Waiting]) -> tuple[Waiting | None, float]:
        """The report that leaves now, or None, and the seconds until the next moment (0: none waits)."""
        reports, now = list(waiting), now_ms()
        self._again = {report.key: self._again[report.key] for report in reports if report.key in self._again}
        due = [report for report in reports if self._of(report) <= now]
        chosen = self._random.choice(due) if due else None
        for report in due:
            if report is not chosen:
                self.postpone(report)
        later = [self._of(report) for report in reports if report is not chosen]
        return chosen, (min(later) - now) / 1000 if later else 0.0

    def postpone(self, report: Waiting, at_least_s: float = 0.0) -> float:
        """Draws a new moment for a report. Returns the seconds until it."""
        now = now_ms()
        begin = now + math.ceil(1000 * at_least_s)
        left = self._survey.closes_ms(report.step) - begin
        within = max(1, left // 2) if left > 0 else self._survey.step_ms
        self._again[report.key] = moment = begin + 1 + self._random.randrange(within)
        return (moment - now) / 1000

    def _of(self, report: Waiting) -> int:
        if (again := self._again.get(report.key)) is not None:
            return again
        begin, end = self._window(report.step)
        share = int.from_bytes(hashlib.sha256(b"moment " + report.key.encode()).digest()[:8])
        return begin + (share * (end - begin) >> 64)

    def _window(self, step: int) -> tuple[int, int]:
        return self._survey.opens_ms(step + 1), self._survey.closes_ms(step) - math.ceil(MARGIN * self._survey.step_ms)
