"""The envelope, version 1: the wire format of reports.

An envelope is a msgpack array ``[version, fingerprint, attribute, level, step, n, payload]``:

    version      1
    fingerprint  8 bytes, the survey's (`Survey.fingerprint`)
    attribute    index of the attribute in the survey, from 0
    level        index of the level within the attribute, from 0
    step         time step of the reports, from 0
    n            number of reports, 1 to 100 000
    payload      n rows of the mechanism's `report_dtype`, fixed width and little-endian, one after the other

If the survey has cohorts, an envelope has an eighth element, before the payload: ``[version, fingerprint, attribute, level,
step, n, cohort, payload]``.

    cohort       index of the cohort, from 0; all reports of the envelope are from this cohort

One promise holds for all versions: an envelope is a msgpack array whose first element is an integer, the version. Everything
else may differ in another version. A reader without support for the version rejects the envelope as ``unknown version``.

The envelope carries no identity of a device: no id, no address, no key. These facts may still link a device's envelopes:

- a rare cohort; attribute and level;
- the steps of a spaced level, which differ by multiples of `every_steps`;
- the likeness of reports of one memo;
- with memoized local hashing, the device's hash function: each report has this function, one of S.
"""

from typing import Final, Literal, get_args

import msgspec

from ldpstream.mechanisms.arguments import Reports
from ldpstream.mechanisms.arrays import np
from ldpstream.surveys.survey import Survey

VERSION: Final = 1
MAX_ENVELOPE_BYTES = 1_000_000  # leaves room for a record's headers within Kafka's default message.max.bytes, about 1 MiB
MAX_ENVELOPE_REPORTS = 100_000  # limits the number of reports in one record, also for rows of few bytes

EnvelopeReason = Literal[
    "undecodable", "unknown version", "wrong survey", "unknown attribute or level", "unknown cohort", "wrong length",
    "symbol out of range", "padding bits set", "survey ended", "step too old", "step in the future", "too large",
]  # fmt: skip
# "unreadable batch" is for the refused part of a batch, "malformed key" for a record whose report key has a wrong form
Reason = Literal[EnvelopeReason, "unreadable batch", "malformed key"]
REASONS: Final[tuple[Reason, ...]] = get_args(EnvelopeReason)


class Rejected(Exception):
    """Raised for a rejected envelope; none of its reports count."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


class Envelope(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """A decoded envelope of a survey without cohorts."""

    version: int
    fingerprint: bytes
    attribute: int
    level: int
    step: int
    n: int
    payload: bytes

    @property
    def cohort(self) -> int:
        return 0


class CohortEnvelope(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """A decoded envelope of a survey with cohorts."""

    version: int
    fingerprint: bytes
    attribute: int
    level: int
    step: int
    n: int
    cohort: int
    payload: bytes


AnyEnvelope = Envelope | CohortEnvelope
encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Envelope).decode
_decode_with_cohort = msgspec.msgpack.Decoder(CohortEnvelope).decode


class _Versioned(msgspec.Struct, array_like=True):
    version: int


_decode_version = msgspec.msgpack.Decoder(_Versioned).decode  # skips the other elements: a list of them can be a million long


def seal(survey: Survey, attribute: int, level: int, step: int, reports: Reports, cohort: int = 0) -> bytes:
    """The envelope of one or more reports of an attribute, level and step.

    Args:
        step: time step, at least 0.
        reports: rows of the mechanism's `report_dtype`, 1 to 100 000.
        cohort: index of the reports' cohort in the survey; 0 for a survey without cohorts.

    Raises:
        ValueError: if the attribute, level or cohort does not exist, if the step is negative, if there are not 1 to 100 000
            rows of `report_dtype`, or if the envelope would exceed 1 MB.
    """
    if not (0 <= attribute < len(survey.attributes) and 0 <= level < len(survey.attributes[attribute].levels)):
        raise ValueError(f"survey {survey.name} has no attribute {attribute!r} with a level {level!r}")
    if not 0 <= cohort < survey.n_cohorts:
        raise ValueError(f"survey {survey.name} has no cohort with the index {cohort!r}")
    if step < 0 or not 1 <= len(reports) <= MAX_ENVELOPE_REPORTS:
        raise ValueError(
            f"an envelope holds 1 to {MAX_ENVELOPE_REPORTS} reports of a step >= 0, got {len(reports)} of step {step!r}"
        )
    row = survey.mechanisms[attribute][level].report_dtype
    if reports.dtype != row.base or reports.shape[1:] != row.shape:
        raise ValueError(f"reports must be rows of {row}, got {reports.dtype} of shape {reports.shape}")
    raw = seal_rows(survey, attribute, level, step, len(reports), reports.tobytes(), cohort)
    if len(raw) > MAX_ENVELOPE_BYTES:
        raise ValueError(f"an envelope takes at most {MAX_ENVELOPE_BYTES} bytes, got {len(raw)}")
    return raw


def seal_rows(survey: Survey, attribute: int, level: int, step: int, n: int, payload: bytes, cohort: int) -> bytes:
    """Like `seal`, for n rows as bytes. Checks nothing."""
    if survey.cohort is None:
        return encode(Envelope(VERSION, survey.fingerprint, attribute, level, step, n, payload))
    return encode(CohortEnvelope(VERSION, survey.fingerprint, attribute, level, step, n, cohort, payload))


def largest_envelope(survey: Survey) -> int:
    """Size in bytes of the survey's largest envelope with one report, at any step below 2^64."""
    rows = [[m.row_bytes for m in levels] for levels in survey.mechanisms]
    cohort, step = survey.n_cohorts - 1, 2**64 - 1
    sealed = (seal_rows(survey, a, i, step, 1, bytes(n), cohort) for a, levels in enumerate(rows) for i, n in enumerate(levels))
    return max(map(len, sealed))


def reports_per_envelope(row_bytes: int, target_bytes: int) -> int:
    """Number of reports of `row_bytes` bytes that fit an envelope of about `target_bytes`, from 1 to `MAX_ENVELOPE_REPORTS`."""
    return min(max(1, (target_bytes - 32) // row_bytes), MAX_ENVELOPE_REPORTS)


def decode_envelope(raw: bytes) -> AnyEnvelope:
    """Decodes an envelope, with or without a cohort.

    Raises:
        Rejected: "too large" if the envelope has too many bytes, "undecodable" or "unknown version".
    """
    if len(raw) > MAX_ENVELOPE_BYTES:
        raise Rejected("too large")
    for decode in (_decode_with_cohort, _decode) if raw[:1] == b"\x98" else (_decode, _decode_with_cohort):
        try:
            envelope = decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        if envelope.version != VERSION:
            raise Rejected("unknown version")
        return envelope
    raise Rejected(_why_undecodable(raw))


def open_envelope(survey: Survey, raw: bytes, appended_ms: int) -> AnyEnvelope:
    """Decodes an envelope and checks everything except the payload's contents.

    Args:
        appended_ms: the record's append time in the log, in ms since 1970; lateness depends on this time alone.

    Raises:
        Rejected: with the reason.
    """
    envelope = decode_envelope(raw)
    _check_header(survey, envelope, appended_ms)
    return envelope


def _check_header(survey: Survey, envelope: AnyEnvelope, appended_ms: int) -> None:
    if envelope.fingerprint != survey.fingerprint:
        raise Rejected("wrong survey")
    if not (
        0 <= envelope.attribute < len(survey.mechanisms) and 0 <= envelope.level < len(survey.mechanisms[envelope.attribute])
    ):
        raise Rejected("unknown attribute or level")
    if (survey.cohort is None) != isinstance(envelope, Envelope) or not 0 <= envelope.cohort < survey.n_cohorts:
        raise Rejected("unknown cohort")
    row = survey.mechanisms[envelope.attribute][envelope.level].row_bytes
    if envelope.n < 1 or len(envelope.payload) != envelope.n * row:
        raise Rejected("wrong length")
    if envelope.n > MAX_ENVELOPE_REPORTS:
        raise Rejected("too large")
    if survey.ended(envelope.step):
        raise Rejected("survey ended")
    if envelope.step < 0 or survey.too_old(envelope.step, appended_ms):
        raise Rejected("step too old")
    if survey.too_early(envelope.step, appended_ms):
        raise Rejected("step in the future")


def check_envelope(survey: Survey, raw: bytes, appended_ms: int) -> AnyEnvelope:
    """Like `open_envelope`, but also checks every report of the payload, as the agent does.

    Args:
        survey, raw, appended_ms: as for `open_envelope`; use the present time if the envelope is not in the log yet.

    Raises:
        Rejected: with the reason.
    """
    envelope = decode_envelope(raw)
    check_decoded(survey, envelope, appended_ms)
    return envelope


def check_decoded(survey: Survey, envelope: AnyEnvelope, appended_ms: int) -> None:
    """Makes the checks of `check_envelope` that follow `decode_envelope`.

    Raises:
        Rejected: with the reason.
    """
    _check_header(survey, envelope, appended_ms)
    mechanism = survey.mechanisms[envelope.attribute][envelope.level]
    valid = mechanism.valid(np.frombuffer(envelope.payload, mechanism.report_dtype))
    if np.count_nonzero(valid) < envelope.n:  # `all` takes longer for one row
        raise Rejected(mechanism.invalid)


def _why_undecodable(raw: bytes) -> Reason:
    try:
        return "unknown version" if _decode_version(raw).version != VERSION else "undecodable"
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "undecodable"
