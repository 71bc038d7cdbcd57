"""The envelope, version 1: how reports travel. One Kafka record holds one envelope.

An envelope is a msgpack array ``[version, fingerprint, attribute, level, step, n, payload]``:

    version      1
    fingerprint  8 bytes, the survey's (`Survey.fingerprint`)
    attribute    index of the attribute in the survey, from 0
    level        index of the level within the attribute, from 0
    step         the time step that the reports belong to, from 0
    n            number of reports, 1 to 100 000
    payload      n rows of the mechanism's `report_dtype`, fixed width and little-endian, one after the other

What never changes: an envelope is a msgpack array whose first element is an integer, the version. Everything else may
differ in another version; a reader that does not know a version refuses the envelope as ``unknown version`` and counts
nothing. Version 1 takes exactly these seven elements.

No identity of a device travels: no id, no address, no key. What a mechanism's own report repeats is its affair: memoized local
hashing sends the device's hash function, one of S, every time.
"""

from typing import Any, Final, Literal

import msgspec
import numpy as np

from mechanisms import Reports
from surveys.survey import Survey

VERSION: Final = 1
MAX_ENVELOPE_BYTES = 1_000_000  # a record of Kafka's default message.max.bytes, 1 MiB, with room for its headers
MAX_REPORTS = 100_000  # of an envelope: however narrow its rows are, one record weighs no more than so many people

EnvelopeReason = Literal[
    "undecodable",
    "unknown version",
    "wrong survey",
    "unknown attribute or level",
    "wrong length",
    "symbol out of range",
    "padding bits set",
    "step too old",
    "step in the future",
    "too large",
]
Reason = Literal[EnvelopeReason, "unreadable batch"]  # the last for a whole batch of records
REASONS: Final[tuple[Reason, ...]] = EnvelopeReason.__args__  # type: ignore[attr-defined]


class Rejected(Exception):
    """An envelope that counts nothing. Its reason is one of `REASONS`; its contents are never shown."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


class Envelope(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """A decoded envelope; see the module's text for the elements."""

    version: int
    fingerprint: bytes
    attribute: int
    level: int
    step: int
    n: int
    payload: bytes


encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Envelope).decode
_take_apart = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def seal(survey: Survey, attribute: int, level: int, step: int, reports: Reports) -> bytes:
    """The envelope of one or more reports of an attribute, level and step.

    Args:
        survey: the survey that the device answers.
        attribute, level: indices in the survey.
        step: time step, at least 0.
        reports: rows of the mechanism's `report_dtype`, 1 to 100 000.

    Raises:
        ValueError: if there is no such attribute, level or step, if the rows are not the mechanism's or too many, or if the
            envelope would be larger than 1 MB.
    """
    if not (0 <= attribute < len(survey.attributes) and 0 <= level < len(survey.attributes[attribute].levels)):
        raise ValueError(f"survey {survey.name} has no attribute {attribute!r} with a level {level!r}")
    if step < 0 or not 1 <= len(reports) <= MAX_REPORTS:
        raise ValueError(f"an envelope holds 1 to {MAX_REPORTS} reports of a step >= 0, got {len(reports)} of step {step!r}")
    row = survey.mechanisms[attribute][level].report_dtype
    if reports.dtype != row.base or reports.shape[1:] != row.shape:
        raise ValueError(f"reports must be rows of {row}, got {reports.dtype} of shape {reports.shape}")
    raw = encode(Envelope(VERSION, survey.fingerprint, attribute, level, step, len(reports), reports.tobytes()))
    if len(raw) > MAX_ENVELOPE_BYTES:
        raise ValueError(f"an envelope takes at most {MAX_ENVELOPE_BYTES} bytes, got {len(raw)}")
    return raw


def reports_per_envelope(row_bytes: int, target_bytes: int) -> int:
    """How many reports of that width fit an envelope of about the target size; 1 to `MAX_REPORTS`."""
    return min(max(1, (target_bytes - 32) // row_bytes), MAX_REPORTS)


def open_envelope(survey: Survey, raw: bytes, appended_ms: int) -> Envelope:
    """Decode an envelope and check all that does not need its payload's contents.

    Args:
        survey: the survey that is being counted.
        raw: the record's value.
        appended_ms: when the log took the record; lateness is judged by this time alone.

    Raises:
        Rejected: with the first reason that applies, in the order of `REASONS`; "too large" comes before all others for the
            envelope's bytes, and after "wrong length" for its number of reports.
    """
    if len(raw) > MAX_ENVELOPE_BYTES:
        raise Rejected("too large")
    try:
        envelope = _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Rejected(_why_undecodable(raw)) from None
    if envelope.version != VERSION:
        raise Rejected("unknown version")
    if envelope.fingerprint != survey.fingerprint:
        raise Rejected("wrong survey")
    if not (
        0 <= envelope.attribute < len(survey.mechanisms) and 0 <= envelope.level < len(survey.mechanisms[envelope.attribute])
    ):
        raise Rejected("unknown attribute or level")
    row = survey.mechanisms[envelope.attribute][envelope.level].report_dtype.itemsize
    if envelope.n < 1 or len(envelope.payload) != envelope.n * row:
        raise Rejected("wrong length")
    if envelope.n > MAX_REPORTS:
        raise Rejected("too large")
    if envelope.step < 0 or survey.too_old(envelope.step, appended_ms):
        raise Rejected("step too old")
    if survey.too_early(envelope.step, appended_ms):
        raise Rejected("step in the future")
    return envelope


def check_envelope(survey: Survey, raw: bytes, appended_ms: int) -> Envelope:
    """`open_envelope`, and every report of the payload as well: what counting this envelope alone would say of it.

    Args:
        survey, raw, appended_ms: as for `open_envelope`; before the log has taken the envelope, the present time stands in.

    Raises:
        Rejected: with the reason for which the service would count nothing.
    """
    envelope = open_envelope(survey, raw, appended_ms)
    mechanism = survey.mechanisms[envelope.attribute][envelope.level]
    row = mechanism.report_dtype
    if not mechanism.valid(np.frombuffer(envelope.payload, row.base).reshape(-1, *row.shape)).all():
        raise Rejected(mechanism.invalid)
    return envelope


def _why_undecodable(raw: bytes) -> Reason:
    """Whether this is an envelope of another version, or none at all. What the other elements are is that version's affair."""
    try:
        elements = _take_apart(raw)
        version: Any = msgspec.msgpack.decode(elements[0]) if elements else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "undecodable"
    return "unknown version" if type(version) is int and version != VERSION else "undecodable"
