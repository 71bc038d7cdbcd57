"""The body of a request: its kind, its idempotency key, and the checks of its envelopes. No clock, socket or broker."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from producers.gateway.problems import FINAL, MAX_RETRY_S, STATUS, Element, Problem, unknown_at_present
from producers.gateway.record_batches import MAX_BATCH, MAX_BATCH_BYTES
from surveys import Rejected, Survey
from surveys.envelope import MAX_ENVELOPE_BYTES, check_decoded, decode_envelope

ENVELOPE, BATCH = "application/vnd.ldpstream.envelope", "application/vnd.ldpstream.envelopes"
ENVELOPES = (ENVELOPE, "application/octet-stream")
KEY = r"[A-Za-z0-9_-]{16,64}"

Headers = Mapping[bytes, bytes]  # name in lower case -> value; of several headers with one name, the first

_KINDS: Final = {kind.encode(): False for kind in ENVELOPES} | {BATCH.encode(): True}
_KEY_BYTES: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
_BIN = (0xC4, 0xC5, 0xC6)

_decode_batch = msgspec.msgpack.Decoder(list[bytes]).decode


def is_batch(headers: Headers) -> bool:
    """Returns True for a batch, False for a single envelope.

    Raises:
        Problem: for any other content type, and for a compressed body.
    """
    given = headers.get(b"content-type", b"")
    batch = _KINDS.get(given)
    if batch is None:
        batch = _KINDS.get(given.partition(b";")[0].strip().lower())
    if batch is None:
        raise Problem("unsupported content type", f"the content type must be {', '.join(ENVELOPES)} or {BATCH}")
    if b"content-encoding" in headers and headers[b"content-encoding"].strip().lower() != b"identity":
        raise Problem("unsupported content type", "a body must not be compressed: random data does not shrink")
    return batch


def largest_body(batch: bool) -> int:
    """Returns the largest size of a body, in bytes."""
    return MAX_BATCH_BYTES if batch else MAX_ENVELOPE_BYTES


def oversized(batch: bool) -> Problem:
    """Returns the problem of a body above `largest_body`."""
    return Problem("too large", f"a body of this kind takes at most {largest_body(batch)} bytes")


def idempotency_key(headers: Headers) -> bytes | None:
    """Returns the idempotency key; None if the request has none.

    Raises:
        Problem: if the key does not match `KEY`.
    """
    given = headers.get(b"idempotency-key")
    if given is None or (16 <= len(given) <= 64 and not given.translate(None, _KEY_BYTES)):
        return given
    raise Problem("malformed idempotency key", f"an idempotency key must match {KEY}")


def unpack(body: bytes) -> list[bytes]:
    """Returns the envelopes of a batch.

    Raises:
        Problem: if the body is not a msgpack array of 1 to `MAX_BATCH` binaries.
    """
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


class Checks:
    """The checks of a request's envelopes: the same as the agents', by the gateway's clock. All envelopes must belong to one
    survey.

    Args:
        surveys: the surveys, by fingerprint.
        now_ms: the gateway's time.
        incomplete: True if there are surveys that the gateway does not know at present.

    Attributes:
        now_ms: as given.
        survey: the survey of the envelopes; None before an envelope of one of the surveys.
        reports: number of reports in the envelopes checked so far.
        earliest_step: the earliest step of these envelopes.
    """

    __slots__ = ("_incomplete", "_refused", "_several", "_surveys", "_unknown", "earliest_step", "now_ms", "reports", "survey")

    def __init__(self, surveys: Mapping[bytes, Survey], now_ms: int, incomplete: bool = False) -> None:
        self._surveys, self.now_ms, self._incomplete = surveys, now_ms, incomplete
        self.survey: Survey | None = None
        self.reports, self.earliest_step = 0, 2**63
        self._refused = list[Element]()
        self._several = self._unknown = False

    def check(self, envelopes: Sequence[bytes], first: int = 0) -> None:
        """Checks envelopes of the request; the index of the first one is `first`."""
        for index, raw in enumerate(envelopes, first):
            try:
                envelope = decode_envelope(raw)
                survey = self._surveys.get(envelope.fingerprint)
                if survey is None:
                    self._unknown = True
                    raise Rejected("wrong survey")
                if survey is not self.survey:  # another object may be the same survey with another title
                    self._several |= self.survey is not None and survey.fingerprint != self.survey.fingerprint
                    self.survey = survey
                check_decoded(survey, envelope, self.now_ms)
            except Rejected as rejected:
                element: Element = {"index": index, "reason": rejected.reason}
                if rejected.reason == "step in the future":
                    element["retry_after"] = self._opens_in_s(raw)
                self._refused.append(element)
            else:
                self.reports += envelope.n
                if envelope.step < self.earliest_step:
                    self.earliest_step = envelope.step

    def require_countable(self, batch: bool) -> Survey:
        """Returns the survey of the envelopes.

        Raises:
            Problem: if the envelopes belong to several surveys, if the survey may be one that the gateway does not know at
                present, or if an envelope is refused.
        """
        if self._several:
            detail = "a batch must hold envelopes of one survey; post the envelopes of each survey as a batch of its own"
            raise Problem("several surveys", detail)
        if self._unknown and self._incomplete:
            raise unknown_at_present()
        if self._refused or self.survey is None:
            raise _refusal(self._refused, batch)
        return self.survey

    def _opens_in_s(self, raw: bytes) -> int:
        """Returns the seconds until a report of the envelope's step may count, at most a day."""
        envelope = decode_envelope(raw)
        survey = self._surveys[envelope.fingerprint]
        wait_ms = survey.opens_ms(envelope.step) - survey.skew_ms - self.now_ms
        return min(-(-wait_ms // 1000) + 1, MAX_RETRY_S)  # 1 s more: the brokers' clocks may be behind the gateway's clock


def _refusal(refused: list[Element], batch: bool) -> Problem:
    """Returns the problem for refused envelopes: the first final reason, or "step in the future" if no reason is final."""
    final = next((element for element in refused if STATUS[element["reason"]] in FINAL), None)
    elements = refused if batch else []
    if final is not None:
        detail = "the service would never count it" if not batch else "the service would never count some of these envelopes"
        return Problem(final["reason"], detail, elements=elements)
    retry_s = max(element["retry_after"] for element in refused)
    return Problem(
        "step in the future", "the same body may count after Retry-After seconds", elements=elements, retry_s=retry_s
    )
