"""The two ways of a report to the gateway: directly, or through a relay that hides who sent it.

Through a relay, all requests with the same survey, gateway and token have the same size. The report, its key and the token
travel inside the encryption (RFC 9458).
"""

import json
import re
from base64 import b64decode
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from ldpstream.device.relay.binary_http import BinaryRequest, decode_response, encode_request
from ldpstream.device.reports import Waiting
from ldpstream.surveys import Survey
from ldpstream.surveys.envelope import largest_envelope

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

    from ldpstream.device.relay.capsules import Exchange

ACCEPTED: Final = 202
NEVER_COUNTS: Final = 422  # the only status after which no later attempt counts
DAY_S: Final = 86_400
PROBLEM_TYPE: Final = "urn:ldpstream:problem:"
OK: Final = 200
ANSWER_S: Final = 15.0  # longer than the gateway's own time limits
MAX_ANSWER_BYTES: Final = 2**20
AGENT: Final = "ldpstream"  # the same User-Agent for all devices: the default names the Python version
ENVELOPE_TYPE: Final = "application/vnd.ldpstream.envelope"
REQUEST_TYPE: Final = "message/ohttp-req"
STALE_KEY_TYPE: Final = "https://iana.org/assignments/http-problem-types#ohttp-key"
STALE_KEY: Final = "the gateway has no such key: the application needs its present key configuration"
NOT_INSTALLED: Final = "a relay needs the package pyhpke: in your checkout, pip install '.[relay]'"
LOCAL: Final = "local"
TIMEOUT: Final = "timeout"
NOT_OWN: Final = "an answer that is not the gateway's"


class Answer(NamedTuple):
    """The answer to one attempt for one report.

    Attributes:
        status: the HTTP status; 0 without a usable answer.
        retry_after_s: the answer's `Retry-After` in seconds, at most a day; 0 for none.
        from_gateway: false if the answer is that of a relay or proxy: it settles no report. Such an answer has a 202 or 422
            without the gateway's body, or is not encrypted by the gateway behind a relay.
        reason: why there was no answer of the gateway; empty if unknown.
        title, detail: the gateway's problem, such as "step too old", and its explanation; empty if it accepted the report.
    """

    status: int
    retry_after_s: float = 0.0
    from_gateway: bool = True
    reason: str = ""
    title: str = ""
    detail: str = ""


class Direct:
    """The way straight to the gateway, which sees the device's address.

    Args:
        url: the gateway's URL, ``http[s]://host[:port][/path]``, without ``/v1/reports``.

    Raises:
        ValueError: if the URL is malformed. The message leaves out a user name and password.
    """

    def __init__(self, url: str, token: str | None, wait_s: float = ANSWER_S) -> None:
        _split(url, "a gateway's URL")
        self._url, self._token, self._wait_s = url.rstrip("/") + "/v1/reports", token, wait_s

    def post(self, report: Waiting) -> Answer:
        headers = {"User-Agent": AGENT} | _headers(report.key, self._token)
        return _answer(*_exchange(self._url, report.envelope, headers, self._wait_s))


class Relay:
    """A relay, the gateway behind it, and the gateway's key. Needs pyhpke: ``pip install '.[relay]'`` in the checkout.

    Put the key into the application's package, beside the survey's fingerprint. Then all devices have the same key, and neither
    relay nor gateway can give one device a key of its own (docs/howto/relay.md).

    Args:
        url: the relay's URL for this gateway, ``http[s]://host[:port][/path]``.
        gateway: the gateway's URL, ``http[s]://host[:port]``, with the host that the relay sends to the gateway as ``Host``.
        keys: the gateway's key configuration in base64, as ``ldpstream relay-key`` prints it.

    Raises:
        ValueError: if a URL is malformed, or `keys` is not a key configuration that this version knows.
        ModuleNotFoundError: if pyhpke is not installed.
    """

    def __init__(self, url: str, *, gateway: str, keys: str) -> None:
        try:
            from pyhpke import PyHPKEError  # imported only here, because a device without a relay does not need pyhpke

            from ldpstream.device.relay import capsules
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(NOT_INSTALLED, name=error.name) from None
        _split(url, "a relay's URL")
        self.url, self._gateway, self._capsules = url, _split(gateway, "a gateway's URL"), capsules
        if self._gateway.path not in ("", "/"):
            raise ValueError(f"a gateway's URL must have no path behind a relay, got {gateway!r}")
        try:
            self._config = capsules.decode_configs(b64decode(keys, validate=True))[0]
            self.seal(b"")  # refuses a public key of low order
        except (ValueError, IndexError, PyHPKEError):
            raise ValueError("keys must be a key configuration in base64, as `ldpstream relay-key` prints it") from None

    def message(self, survey: Survey, envelope: bytes, key: str, token: str | None) -> bytes:
        """Returns the unencrypted request, padded with zeros to the size of the survey's largest request."""
        headers = tuple((name.lower().encode(), value.encode()) for name, value in _headers(key, token).items())
        scheme, authority = self._gateway.scheme.encode(), self._gateway.netloc.encode()
        request = BinaryRequest(b"POST", scheme, authority, b"/v1/reports", headers, envelope)
        largest = encode_request(request._replace(content=bytes(largest_envelope(survey))))
        return encode_request(request).ljust(len(largest), b"\0")

    def seal(self, message: bytes) -> tuple[bytes, "Exchange"]:
        return self._capsules.seal_request(self._config, message)


class Local:
    """No way: nothing is sent, and each report counts as accepted."""

    def post(self, report: Waiting) -> Answer:
        return Answer(ACCEPTED)


class ThroughRelay:
    def __init__(self, relay: Relay, survey: Survey, token: str | None, wait_s: float = ANSWER_S) -> None:
        self._relay, self._survey, self._token, self._wait_s = relay, survey, token, wait_s

    def post(self, report: Waiting) -> Answer:
        capsule, exchange = self._relay.seal(self._relay.message(self._survey, report.envelope, report.key, self._token))
        headers = {"User-Agent": AGENT, "Content-Type": REQUEST_TYPE}
        status, wait_s, body, reason = _exchange(self._relay.url, capsule, headers, self._wait_s)
        if status != OK:
            reason = STALE_KEY if document(body).get("type") == STALE_KEY_TYPE else reason
            return Answer(status, wait_s, False, reason)
        try:
            inner = decode_response(exchange.open_response(body))
        except ValueError:  # a `CapsuleError` or a `BinaryHttpError`
            return Answer(0, from_gateway=False, reason=NOT_OWN)
        told = next((value for name, value in inner.headers if name == b"retry-after"), b"")
        return _answer(inner.status, retry_after_s(told.decode("latin-1")), inner.content)


def document(body: bytes) -> dict[str, Any]:
    """Returns the JSON object of a body; an empty one if the body is something else."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def is_own(status: int, body: bytes) -> bool:
    """False for an answer that would be final, 202 or 422, but does not have the gateway's body: a proxy gave it."""
    if status == ACCEPTED:
        return type(document(body).get("accepted")) is int
    return status != NEVER_COUNTS or str(document(body).get("type")).startswith(PROBLEM_TYPE)


def retry_after_s(told: str, date: str = "") -> float:
    """Returns the wait that a `Retry-After` asks for, in seconds, at most a day; 0 if the text is not understood.

    Args:
        told: whole seconds, or a time in the form of HTTP (RFC 9110, section 10.2.3).
        date: the answer's `Date`, the clock of a time; our clock if there is none.
    """
    if told.isascii() and told.isdecimal():
        return min(float(told), DAY_S)
    from email.utils import parsedate_to_datetime  # slow to load

    try:
        until = parsedate_to_datetime(told)
        now = parsedate_to_datetime(date) if date else datetime.now(UTC)
        return min(max(0.0, (until - now).total_seconds()), DAY_S)
    except (ValueError, TypeError, OverflowError):  # a TypeError: a time without a zone
        return 0.0


def _answer(status: int, wait_s: float, body: bytes, reason: str = "") -> Answer:
    if not is_own(status, body):
        return Answer(status, wait_s, False, NOT_OWN)
    title, detail = (str(document(body).get(key, "")) for key in ("title", "detail"))
    return Answer(status, wait_s, reason=reason, title=title, detail=detail)


def _headers(key: str, token: str | None) -> dict[str, str]:
    headers = {"Content-Type": ENVELOPE_TYPE, "Idempotency-Key": key}
    return headers if token is None else headers | {"Authorization": f"Bearer {token}"}


def _split(url: str, name: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for a wrong port
        (parts.hostname or "").encode("idna")  # as the socket does
        if parts.scheme in ("http", "https") and parts.hostname and not re.search(r"[^!-~]|[@?#]", url):
            return parts
    except ValueError:  # its text can show a password
        pass
    told = f"http[s]://host[:port][/path] without a user name, got {url.rpartition('@')[2]!r}"
    raise ValueError(f"{name} must be {told}")


@cache
def _opener() -> "OpenerDirector":
    from urllib.request import HTTPRedirectHandler, build_opener

    class NoRedirects(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    return build_opener(NoRedirects)


def _exchange(url: str, body: bytes, headers: dict[str, str], wait_s: float) -> tuple[int, float, bytes, str]:
    """Posts a body. Returns the status, the wait for the next attempt in seconds, the body, and why there is no answer.

    Without an answer, the status is 0. The reason names no host.
    """
    from http.client import HTTPException  # these modules take longer to load than all others of a device
    from urllib.error import HTTPError, URLError
    from urllib.request import Request

    try:
        try:
            with _opener().open(Request(url, body, headers), timeout=wait_s) as answer:
                return answer.status, 0.0, answer.read(MAX_ANSWER_BYTES), ""
        except HTTPError as error:
            with error:
                pause_s = retry_after_s(error.headers.get("Retry-After", ""), error.headers.get("Date", ""))
                return error.code, pause_s, error.read(MAX_ANSWER_BYTES), ""
    except (OSError, HTTPException) as error:
        return 0, 0.0, b"", _reason(error.reason if isinstance(error, URLError) else error)


def _reason(reason: str | BaseException) -> str:
    import ssl

    match reason:
        case ssl.SSLCertVerificationError():
            return f"certificate refused: {reason.verify_message.partition(',')[0].lower()}"  # the host's name follows a comma
        case ssl.SSLError():
            return "TLS failed"
        case TimeoutError():
            return TIMEOUT
        case OSError(strerror=str(text)):
            return text.lower()  # such as "connection refused"
        case ConnectionError():
            return "connection closed"
    return "an answer that is not HTTP"
