"""The body of a request: its kind, its idempotency key, and the checks of its envelopes."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import numpy as np

from ldpstream.engines.gateway_log import MAX_BATCH, MAX_BATCH_BYTES
from ldpstream.gateway.http.problems import FINAL, MAX_RETRY_S, RETRY_S, STATUS, Element, Problem, unknown_at_present
from ldpstream.surveys import Reason, Rejected, Survey
from ldpstream.surveys.envelope import MAX_ENVELOPE_BYTES, AnyEnvelope, check_decoded, decode_envelope
from ldpstream.surveys.envelope_groups import FEW, EnvelopeGroup, open_groups

ENVELOPE, BATCH = "application/vnd.ldpstream.envelope", "application/vnd.ldpstream.envelopes"
ENVELOPES = (ENVELOPE, "application/octet-stream")
KEY = r"[A-Za-z0-9_-]{16,64}"

Headers = Mapping[bytes, bytes]  # name in lower case -> value; of several headers with one name, the first
ONCE: Final = frozenset((b"authorization", b"content-encoding", b"content-type", b"idempotency-key"))

_DETAILS: Final[dict[Reason, str]] = {
    "step in the future": "the same body may count after Retry-After seconds",
    "unknown version": "this gateway does not know the envelope's version; it may after an update",
    "wrong survey": "this gateway does not have the envelope's survey; another gateway may, or this one later",
}
_KINDS: Final = {kind.encode(): False for kind in ENVELOPES} | {BATCH.encode(): True}
_KEY_BYTES: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
# first byte of a msgpack array -> bytes of its length; shorter arrays begin with 0x90 to 0x9f
_ARRAY: Final = {0xDC: 2, 0xDD: 4}

_decode_batch = msgspec.msgpack.Decoder(list[bytes]).decode


def read_headers(pairs: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Returns the headers by name; raises Problem if one of the headers in `ONCE` comes twice."""
    headers = dict[bytes, bytes]()
    for name, value in pairs:
        if name not in headers:
            headers[name] = value
        elif name in ONCE:
            raise Problem("malformed request", f"a request must have only one header {name.decode()}")
    return headers


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
    return MAX_BATCH_BYTES if batch else MAX_ENVELOPE_BYTES


def oversized(limit: int) -> Problem:
    return Problem("too large", f"a body of this kind takes at most {limit} bytes")


def idempotency_key(headers: Headers) -> bytes | None:
    """Returns the idempotency key; None if the request has none.

    Raises:
        Problem: if the key does not match `KEY`.
    """
    given = headers.get(b"idempotency-key")
    if given is None or (16 <= len(given) <= 64 and not given.translate(None, _KEY_BYTES)):
        return given
    raise Problem("malformed idempotency key", f"an idempotency key must match {KEY}")


def unpack(body: bytes, batch: bool) -> list[bytes]:
    """Returns the envelopes of a body.

    Raises:
        Problem: if the body is empty, or is a batch and not a msgpack array of 1 to `MAX_BATCH` binaries.
    """
    if not body:
        raise Problem("malformed request", "the request has no body")
    if not batch:
        return [body]
    if announced(body) > MAX_BATCH:
        raise Problem("too large", f"a batch takes at most {MAX_BATCH} envelopes")
    try:
        envelopes = _decode_batch(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Problem("undecodable", "a batch must be one msgpack array of binaries") from None
    if not envelopes:
        raise Problem("undecodable", "a batch must hold at least one envelope")
    return envelopes


def announced(body: bytes) -> int:
    """Returns the number of elements in the head of a msgpack array, which can be wrong; 0 for other bodies.

    >>> [announced(msgspec.msgpack.encode([b""] * n)) for n in (3, 101, 65_536)], announced(b"")
    ([3, 101, 65536], 0)
    """
    first = body[0] if body else 0
    size = _ARRAY.get(first)
    if size is not None:
        return int.from_bytes(body[1 : 1 + size], "big")
    return first & 0x0F if first & 0xF0 == 0x90 else 0


class Checks:
    """The checks of a request's envelopes. All envelopes must belong to one survey.

    `check` uses the gateway's clock before the append, `count` the append time.

    Args:
        incomplete: True if there may be surveys that the gateway does not know at present.
        patience_ms: how long after a step's close, by the gateway's clock, an envelope of the step still passes `check`.

    Attributes:
        survey: the survey of the envelopes; None until an envelope names one of the surveys.
        panes: number of reports that passed `check`, by attribute and step.
    """

    __slots__ = (
        "_fingerprint", "_incomplete", "_passed", "_patience_ms", "_refused", "_several", "_surveys", "_unknown",
        "earliest_step", "latest_step", "now_ms", "panes", "reports", "survey",
    )  # fmt: skip

    def __init__(self, surveys: Mapping[bytes, Survey], now_ms: int, incomplete: bool = False, patience_ms: int = 0) -> None:
        self._surveys, self.now_ms, self._incomplete, self._patience_ms = surveys, now_ms, incomplete, patience_ms
        self.survey: Survey | None = None
        self.reports, self.earliest_step, self.latest_step = 0, 2**63, -1
        self.panes = dict[tuple[int, int], int]()
        self._passed = dict[int, tuple[int, int]]()  # by index: step and number of reports of each envelope
        self._refused = list[Element]()
        self._fingerprint: bytes | None = None
        self._several = self._unknown = False

    def _add(self, envelope: AnyEnvelope, reports: int) -> None:
        self.reports += reports
        pane = envelope.attribute, envelope.step
        self.panes[pane] = self.panes.get(pane, 0) + reports
        if envelope.step < self.earliest_step:
            self.earliest_step = envelope.step
        if envelope.step > self.latest_step:
            self.latest_step = envelope.step

    def check(self, envelopes: Sequence[bytes], first: int = 0) -> None:
        """Checks envelopes of the request; the index of the first one is `first`."""
        left: Iterable[int] = range(len(envelopes))
        if len(envelopes) > FEW and (survey := self._survey_of(envelopes[0])) is not None:
            groups, left = open_groups(survey, envelopes, [self.now_ms] * len(envelopes))
            for group in groups:
                self._check_group(survey, group, first)
        for position in left:
            self._check_one(envelopes[position], first + position)
        self._refused.sort(key=lambda element: element["index"])

    def _survey_of(self, raw: bytes) -> Survey | None:
        with suppress(Rejected):
            return self._surveys.get(decode_envelope(raw).fingerprint)
        return None

    def _check_group(self, survey: Survey, group: EnvelopeGroup, first: int) -> None:
        envelope, positions = group.envelope, group.positions
        self._note(envelope.fingerprint, survey)
        self._add(envelope, envelope.n * positions.size)
        self._passed |= dict.fromkeys((positions + first).tolist(), (envelope.step, envelope.n))
        mechanism = survey.mechanisms[envelope.attribute][envelope.level]
        row = mechanism.report_dtype
        valid = mechanism.valid(np.frombuffer(group.payload, row.base).reshape(-1, *row.shape))
        if not valid.all():
            wrong = positions[~valid.reshape(-1, envelope.n).all(axis=1)] + first
            self._refused += [{"index": index, "reason": mechanism.invalid} for index in wrong.tolist()]

    def _check_one(self, raw: bytes, index: int) -> None:
        survey = None
        try:
            envelope = decode_envelope(raw)
            survey = self._surveys.get(envelope.fingerprint)
            self._note(envelope.fingerprint, survey)
            if survey is None:
                raise Rejected("wrong survey")
            self._check_decoded(survey, envelope)
        except Rejected as rejected:
            element: Element = {"index": index, "reason": rejected.reason}
            if survey is not None and rejected.reason == "step in the future":
                element["retry_after"] = self._opens_in_s(survey, envelope.step, self.now_ms)
            elif STATUS[rejected.reason] != FINAL:
                element["retry_after"] = RETRY_S[rejected.reason]
            self._refused.append(element)
        else:
            self._passed[index] = envelope.step, envelope.n
            self._add(envelope, envelope.n)

    def _note(self, fingerprint: bytes, survey: Survey | None) -> None:
        self._several |= fingerprint != (self._fingerprint or fingerprint)
        self._fingerprint, self._unknown = self._fingerprint or fingerprint, self._unknown or survey is None
        self.survey = survey or self.survey

    def _check_decoded(self, survey: Survey, envelope: AnyEnvelope) -> None:
        try:
            check_decoded(survey, envelope, self.now_ms)
        except Rejected as rejected:
            if rejected.reason != "step too old":
                raise
            check_decoded(survey, envelope, self.now_ms - self._patience_ms)

    def require_countable(self, batch: bool) -> Survey:
        """Returns the survey of the envelopes.

        Raises:
            Problem: if an envelope is refused, or the envelopes belong to several surveys or to an unknown one.
        """
        if self._several:
            detail = "a batch must hold envelopes of one survey; post the envelopes of each survey as a batch of its own"
            raise Problem("several surveys", detail)
        if self._unknown and self._incomplete:
            raise unknown_at_present()
        if self._refused or self.survey is None:
            raise _refusal(self._refused, batch)
        return self.survey

    def count(self, appended_ms: int | None, batch: bool, keyed: bool) -> int | Problem:
        """Returns the answer after the append: the number of reports that count, or a problem.

        Args:
            appended_ms: the append time, in ms since 1970; None if the log did not tell it: then all reports count here.
            keyed: True if the request has an idempotency key.
        """
        survey = self.survey
        if survey is None or appended_ms is None:
            return self.reports
        if not survey.too_old(self.earliest_step, appended_ms) and not survey.too_early(self.latest_step, appended_ms):
            return self.reports
        refused, counted, late = list[Element](), 0, False
        for index, (step, n) in sorted(self._passed.items()):
            if survey.too_old(step, appended_ms):
                refused.append({"index": index, "reason": "step too old"})
                late = True
            elif survey.too_early(step, appended_ms):
                wait_s = self._opens_in_s(survey, step, appended_ms)
                refused.append({"index": index, "reason": "step in the future", "retry_after": wait_s})
            else:
                counted += n
        if not counted:
            return _refusal(refused, batch)
        if late or not keyed:
            return counted
        detail = "some envelopes count, the others may count later; retry with the same body and Idempotency-Key"
        return Problem("outcome unknown", detail, retry_s=max(element["retry_after"] for element in refused))

    @staticmethod
    def _opens_in_s(survey: Survey, step: int, now_ms: int) -> int:
        wait_ms = survey.opens_ms(step) - survey.skew_ms - now_ms
        return min(-(-wait_ms // 1000) + 1, MAX_RETRY_S)  # 1 s more: the brokers' clocks may be behind the gateway's clock


def _refusal(refused: list[Element], batch: bool) -> Problem:
    final = next((element for element in refused if STATUS[element["reason"]] == FINAL), None)
    elements = refused if batch else []
    if final is not None:
        detail = "the service would never count it" if not batch else "the service would never count some of these envelopes"
        return Problem(final["reason"], detail, elements=elements)
    last = max(refused, key=lambda element: element["retry_after"])
    return Problem(last["reason"], _DETAILS[last["reason"]], elements=elements, retry_s=last["retry_after"])
