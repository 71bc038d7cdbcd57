"""Envelopes that the service refuses, each with its reason, and valid envelopes at the limits.

The reasons are written by hand from docs/reference/wire_format.md. `tests/devices/test_vectors.py` compares them with the
service's checks.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from ldpstream.surveys import Reason, Survey

STEP = 9
SKEW_MS = 60_000
ENDS = 2000
pack = msgspec.msgpack.encode
Fields = list[Any]


def refused(survey: Survey) -> dict[str, Any]:
    """The refused and the accepted envelopes of the survey, appended in the middle of step 9.

    `zeros` is the number of zero bytes that follow the stored bytes, to keep large envelopes small in the file.
    """
    if survey.cohort is None:
        cases = [_case(raw, zeros, reason) for raw, zeros, reason in _refused(survey)]
        accepted = [_case(raw, zeros, None) for raw, zeros in _accepted(survey)]
    else:
        cases = [_case(raw, 0, reason) for raw, reason in _without_its_cohort(survey)]
        accepted = [_case(pack(_with_cohort(survey, cohort)), 0, None) for cohort in range(survey.n_cohorts)]
    return {
        "survey": survey.device_survey,
        "appended_ms": survey.opens_ms(STEP) + survey.step_ms // 2,
        "refused": cases,
        "at_the_ends_of_steps": [] if survey.cohort else list(_ends(survey)),
        "accepted": accepted,
    }


def _case(raw: bytes, zeros: int, reason: Reason | None) -> dict[str, Any]:
    return {"envelope": raw.hex(), "zeros": zeros, "reason": reason}


def _good(survey: Survey, attribute: int = 0, level: int = 0, rows: bytes = b"\x00\x05\x03", n: int = 3) -> Fields:
    return [1, survey.fingerprint, attribute, level, STEP, n, rows]


def _with(fields: Fields, **changes: Any) -> bytes:
    places = {"version": 0, "fingerprint": 1, "attribute": 2, "level": 3, "step": 4, "n": 5, "payload": 6}
    for name, value in changes.items():
        fields[places[name]] = value
    return pack(fields)


def _refused(survey: Survey) -> Iterator[tuple[bytes, int, Reason]]:
    good = _good(survey)
    whole = pack(good)
    undecodable = [
        b"", b"\xc1", b"\x97", whole[:-1], whole + b"\x00", b"\x98" + whole[1:], b"\x96" + whole[1:], pack({"version": 1}),
        pack(good[:6]), pack([*good, 0]), pack(1), pack([]), pack([None, *good[1:]]), pack([True, *good[1:]]),
        pack([1.0, *good[1:]]), pack(["1", *good[1:]]), pack([1, survey.fingerprint.hex(), *good[2:]]),
        _with(_good(survey), attribute="0"), _with(_good(survey), attribute=0.5), _with(_good(survey), level=None),
        _with(_good(survey), step=9.5), _with(_good(survey), step="9"), _with(_good(survey), n=True),
        _with(_good(survey), payload="\x00\x05\x03"), _with(_good(survey), payload=[0, 5, 3]),
        _with(_good(survey), payload=None),
    ]  # fmt: skip
    for raw in undecodable:
        yield raw, 0, "undecodable"
    for version in (0, 2, -1, 2**40):
        yield _with(_good(survey), version=version), 0, "unknown version"
    yield pack([2, "another layout"]), 0, "unknown version"
    for fingerprint in (bytes(8), survey.fingerprint[:7], survey.fingerprint + b"\x00", b"", survey.fingerprint[::-1]):
        yield _with(_good(survey), fingerprint=fingerprint), 0, "wrong survey"
    for attribute, level in ((3, 0), (-1, 0), (0, 1), (0, -1), (1, 3), (2**40, 0)):
        yield _with(_good(survey), attribute=attribute, level=level), 0, "unknown attribute or level"
    for cohort in (0, 1, -1, 2**40):
        yield pack([*good[:6], cohort, good[6]]), 0, "unknown cohort"  # the survey has no cohorts
    for n, rows in ((0, b""), (-1, b""), (2, b"\x00\x05\x03"), (4, b"\x00\x05\x03"), (1, b"")):
        yield _with(_good(survey), n=n, payload=rows), 0, "wrong length"
    yield pack(_good(survey, 1, 0, b"\x00\x01\x02", 3)), 0, "wrong length"  # one byte a row in place of two
    yield pack(_good(survey, 2, 1, b"\x00\x01\x02", 1)), 0, "wrong length"
    yield pack(_good(survey, 0, 0, bytes(100_001), 100_001))[:-100_001], 100_001, "too large"
    yield pack(_good(survey, 0, 0, bytes(999_990), 999_990))[:-999_990], 999_990, "too large"
    yield b"\xc1", 1_000_000, "too large"
    for step in (STEP - 2, 0, -1, -(2**40)):
        yield _with(_good(survey), step=step), 0, "step too old"
    for step in (ENDS, ENDS + 1, 2**62):
        yield _with(_good(survey), step=step), 0, "survey ended"
    for step in (STEP + 1, STEP + 1000, ENDS - 1):
        yield _with(_good(survey), step=step), 0, "step in the future"
    functions, g = survey.device_survey.mechanisms[1][1].functions or 0, survey.device_survey.mechanisms[1][1].g or 0
    for attribute, level, rows in (
        (0, 0, b"\x06"), (0, 0, b"\xff"), (1, 0, b"\x2c\x01"), (1, 0, b"\xff\xff"),
        (1, 1, (functions - 1).to_bytes(2, "little") + bytes([g])), (1, 1, functions.to_bytes(2, "little") + b"\x00"),
        (2, 0, b"\x00\x00"), (2, 0, b"\x03\x00"), (2, 0, b"\x0f\x00"), (2, 0, b"\x03\x10"),  # a set has three members
    ):  # fmt: skip
        yield pack(_good(survey, attribute, level, rows, 1)), 0, "symbol out of range"
    yield pack(_good(survey, 0, 0, b"\x00\x05\x06", 3)), 0, "symbol out of range"  # one bad row of three
    yield pack(_good(survey, 2, 1, b"\x00\x10", 1)), 0, "padding bits set"
    yield pack(_good(survey, 2, 1, b"\xff\x0f\xff\x80", 2)), 0, "padding bits set"
    yield pack(_good(survey, 1, 2, bytes(37) + b"\x10", 1)), 0, "padding bits set"
    # several faults: the first reason in the table counts
    yield pack([3, bytes(8), 9, 9, -5, 0, b"\xff"]), 0, "unknown version"
    yield pack([1, bytes(8), 9, 9, -5, 0, b"\xff"]), 0, "wrong survey"
    yield pack([1, survey.fingerprint, 9, 9, -5, 0, b"\xff"]), 0, "unknown attribute or level"
    yield pack([1, bytes(8), 9, 9, -5, 0, 9, b"\xff"]), 0, "wrong survey"
    yield pack([1, survey.fingerprint, 9, 9, -5, 0, 9, b"\xff"]), 0, "unknown attribute or level"
    yield pack([1, survey.fingerprint, 0, 0, -5, 0, 9, b"\xff"]), 0, "unknown cohort"
    yield pack([1, survey.fingerprint, 0, 0, -5, 0, b"\xff"]), 0, "wrong length"
    yield pack([1, survey.fingerprint, 0, 0, -5, 1, b"\xff"]), 0, "step too old"
    yield pack([1, survey.fingerprint, 0, 0, ENDS, 0, b"\xff"]), 0, "wrong length"
    yield pack([1, survey.fingerprint, 0, 0, ENDS, 1, b"\xff"]), 0, "survey ended"
    yield pack([1, survey.fingerprint, 0, 0, 99, 1, b"\xff"]), 0, "step in the future"


def _with_cohort(survey: Survey, cohort: Any) -> Fields:
    fields = _good(survey, rows=b"\x00\x02\x01")
    return [*fields[:6], cohort, fields[6]]


def _without_its_cohort(survey: Survey) -> Iterator[tuple[bytes, Reason]]:
    """Envelopes for a survey with cohorts, whose cohort is missing, unknown or in another place."""
    good = _with_cohort(survey, 0)
    yield pack(_good(survey, rows=b"\x00\x02\x01")), "unknown cohort"  # seven elements
    for unknown in (survey.n_cohorts, -1, 64, 255, 2**40, 2**63):
        yield pack(_with_cohort(survey, unknown)), "unknown cohort"
    for wrong in ("1.0", None, 0.5, True, b"\x00"):
        yield pack(_with_cohort(survey, wrong)), "undecodable"
    yield pack([*good[:6], good[7], 0]), "undecodable"  # the payload is the last element
    yield pack([*good, 0]), "undecodable"
    yield pack([1, bytes(8), *good[2:]]), "wrong survey"
    yield pack([1, bytes(8), *_good(survey)[2:]]), "wrong survey"  # seven elements
    yield pack([2, *good[1:]]), "unknown version"
    yield pack([1, survey.fingerprint, 9, 0, STEP, 3, 9, good[7]]), "unknown attribute or level"
    yield pack([1, survey.fingerprint, 0, 0, -5, 9, 9, good[7]]), "unknown cohort"
    yield pack([1, survey.fingerprint, 0, 0, -5, 9, 0, good[7]]), "wrong length"


def _accepted(survey: Survey) -> Iterator[tuple[bytes, int]]:
    functions, g = survey.device_survey.mechanisms[1][1].functions or 0, survey.device_survey.mechanisms[1][1].g or 0
    for attribute, level, rows, n in (
        (0, 0, b"\x00\x05\x03", 3), (1, 0, b"\x2b\x01\x00\x00", 2),
        (1, 1, (functions - 1).to_bytes(2, "little") + bytes([g - 1]), 1), (1, 2, bytes(38), 1),
        (1, 2, b"\xff" * 37 + b"\x0f", 1), (2, 1, b"\x00\x00\xff\x0f", 2),
    ):  # fmt: skip
        yield pack(_good(survey, attribute, level, rows, n)), 0
    omega = survey.device_survey.mechanisms[2][0].omega or 0
    yield pack(_good(survey, 2, 0, ((1 << omega) - 1).to_bytes(2, "little"), 1)), 0
    yield pack(_good(survey, 2, 0, ((1 << omega) - 1 << 12 - omega).to_bytes(2, "little"), 1)), 0
    wide = b"\x97" + b"".join(b"\xcf" + part.to_bytes(8, "big") if type(part) is int else pack(part) for part in _good(survey))
    yield wide, 0  # integers may have any width
    yield wide[:-5] + b"\xc6\x00\x00\x00\x03\x00\x05\x03", 0  # and so may the lengths of binaries
    yield b"\xdc\x00\x07" + pack(_good(survey))[1:], 0  # and of the array
    yield _with(_good(survey), step=STEP - 1), 0
    yield pack(_good(survey, 0, 0, bytes(100_000), 100_000))[:-100_000], 100_000


def _ends(survey: Survey) -> Iterator[dict[str, Any]]:
    """The same envelope of step 9, appended just before and after the first and the last moment at which it counts."""
    first = survey.opens_ms(STEP) - SKEW_MS
    last = survey.opens_ms(STEP + 2) - 1  # one late step
    raw = pack(_good(survey)).hex()
    cases: list[tuple[int, Reason | None]] = [
        (first - 1, "step in the future"), (first, None), (last, None), (last + 1, "step too old"),
    ]  # fmt: skip
    for appended_ms, reason in cases:
        yield {"envelope": raw, "appended_ms": appended_ms, "reason": reason}
