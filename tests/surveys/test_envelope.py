"""The wire format: its stable parts, and the rejection of every invalid envelope."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from ldpstream.surveys import REASONS, Cohort, Rejected, check_envelope, load_survey, open_envelope, seal
from ldpstream.surveys.envelope import MAX_ENVELOPE_BYTES, MAX_ENVELOPE_REPORTS
from tests.producers.samples import one_question

SURVEY = load_survey(Path(__file__).parents[2] / "surveys" / "samples" / "demo.toml")
NOW = SURVEY.opens_ms(5) + 1000
FINGERPRINT = SURVEY.fingerprint
GRR, BITS = (0, 0), (1, 0)


def raw(*elements: object) -> bytes:
    return msgspec.msgpack.encode(list(elements))


def reason_of(envelope: bytes, now_ms: int = NOW) -> str:
    with pytest.raises(Rejected) as caught:
        open_envelope(SURVEY, envelope, now_ms)
    return caught.value.reason


def test_an_envelope_has_the_golden_bytes() -> None:
    """Version 1, byte by byte. A change here is a change of the wire format."""
    sealed = seal(SURVEY, 0, 0, 5, np.array([4, 2], np.uint8))
    assert sealed == b"\x97\x01\xc4\x08" + FINGERPRINT + b"\x00\x00\x05\x02\xc4\x02\x04\x02"


def test_an_envelope_with_a_cohort_has_the_golden_bytes() -> None:
    """The cohort is before the payload. A change here is a change of the wire format."""
    survey = replace(SURVEY, cohort=Cohort(name="version", values=("1.0", "1.1", "other"), least=10))
    sealed = seal(survey, 0, 0, 5, np.array([4, 2], np.uint8), 2)
    assert sealed == b"\x98\x01\xc4\x08" + survey.fingerprint + b"\x00\x00\x05\x02\x02\xc4\x02\x04\x02"
    opened = check_envelope(survey, sealed, NOW)
    assert (opened.cohort, opened.payload) == (2, b"\x04\x02")
    for cohort in (3, -1):
        with pytest.raises(ValueError, match=f"no cohort with the index {cohort}"):
            seal(survey, 0, 0, 5, np.array([4, 2], np.uint8), cohort)
    with pytest.raises(ValueError, match="no cohort with the index 1"):
        seal(SURVEY, 0, 0, 5, np.array([4, 2], np.uint8), 1)


@pytest.mark.parametrize(
    ("envelope", "reason"),
    [
        (b"", "undecodable"),
        (b"\xc1", "undecodable"),
        (b"\x91" * 10_000, "undecodable"),  # deeper nesting than any decoder's stack allows
        (raw(), "undecodable"),
        (msgspec.msgpack.encode({"version": 1}), "undecodable"),
        (raw("1", FINGERPRINT, 0, 0, 5, 1, b"\x00"), "undecodable"),
        (raw(1, FINGERPRINT, 0, 0, 5, 1), "undecodable"),
        (raw(1, FINGERPRINT, 0, 0, 5, 1, b"\x00", 0), "undecodable"),
        (raw(1, FINGERPRINT, 0, 0, 5, 1, b"\x00") + b"\x00", "undecodable"),
        (raw(2, "anything"), "unknown version"),
        (raw(2, FINGERPRINT, 0, 0, 5, 1, b"\x00"), "unknown version"),
        (b"\x92\x02\x81\x90\x00", "unknown version"),  # the second element is a map whose key is an array
        (b"\x92\x02\xa1\xff", "unknown version"),  # the second element is text that is not UTF-8
        (b"\x92\x02\xa2\xff", "undecodable"),  # the text ends before its stated length
        (raw(1, b"\x00" * 8, 0, 0, 5, 1, b"\x00"), "wrong survey"),
        (raw(1, FINGERPRINT, 2, 0, 5, 1, b"\x00"), "unknown attribute or level"),
        (raw(1, FINGERPRINT, -1, 0, 5, 1, b"\x00"), "unknown attribute or level"),
        (raw(1, FINGERPRINT, 0, 1, 5, 1, b"\x00"), "unknown attribute or level"),
        (raw(1, FINGERPRINT, 0, 0, 5, 1, 0, b"\x00"), "unknown cohort"),
        (raw(1, FINGERPRINT, 0, 0, 5, 2, b"\x00"), "wrong length"),
        (raw(1, FINGERPRINT, 0, 0, 5, 0, b""), "wrong length"),
        (raw(1, FINGERPRINT, 0, 0, 5, 2**62, b"\x00"), "wrong length"),
        (raw(1, FINGERPRINT, 0, 0, 3, 1, b"\x00"), "step too old"),
        (raw(1, FINGERPRINT, 0, 0, -1, 1, b"\x00"), "step too old"),
        (raw(1, FINGERPRINT, 0, 0, 7, 1, b"\x00"), "step in the future"),
        (b"\x00" * (MAX_ENVELOPE_BYTES + 1), "too large"),
        (raw(1, FINGERPRINT, 0, 0, 5, MAX_ENVELOPE_REPORTS + 1, bytes(MAX_ENVELOPE_REPORTS + 1)), "too large"),
        (raw(1, FINGERPRINT, 0, 0, 5, MAX_ENVELOPE_REPORTS + 1, bytes(MAX_ENVELOPE_REPORTS)), "wrong length"),
    ],
)
def test_each_broken_envelope_has_the_right_reason(envelope: bytes, reason: str) -> None:
    assert reason in REASONS
    assert reason_of(envelope) == reason


def test_after_its_end_a_survey_has_no_step() -> None:
    """A later step is refused for good. If the reason were a step in the future, the device would send the report again."""
    ending = replace(SURVEY, ends=6)
    last, after, far = (raw(1, ending.fingerprint, 0, 0, step, 1, b"\x00") for step in (5, 6, 99))
    assert open_envelope(ending, last, ending.closes_ms(5) - 1).step == 5
    for envelope, now_ms in ((after, NOW), (after, ending.opens_ms(6)), (after, ending.closes_ms(9)), (far, NOW)):
        with pytest.raises(Rejected, match="survey ended"):
            open_envelope(ending, envelope, now_ms)


@pytest.mark.parametrize(
    ("pane", "row", "reason"),
    [
        (GRR, b"\x05", None),
        (GRR, b"\x06", "symbol out of range"),
        (BITS, b"\xff\x0f", None),
        (BITS, b"\xff\x1f", "padding bits set"),
    ],
)
def test_every_report_is_checked(pane: tuple[int, int], row: bytes, reason: str | None) -> None:
    good = bytes(len(row))
    for payload in (row, row + good, good + row):
        envelope = raw(1, FINGERPRINT, *pane, 5, len(payload) // len(row), payload)
        assert open_envelope(SURVEY, envelope, NOW).n == len(payload) // len(row)
        if reason is None:
            assert check_envelope(SURVEY, envelope, NOW) == open_envelope(SURVEY, envelope, NOW)
            continue
        with pytest.raises(Rejected) as caught:
            check_envelope(SURVEY, envelope, NOW)
        assert caught.value.reason == reason
    with pytest.raises(Rejected):
        check_envelope(SURVEY, b"", NOW)


def test_the_formats_limits_apply_to_every_survey() -> None:
    sealed = seal(SURVEY, 0, 0, 5, np.zeros(MAX_ENVELOPE_REPORTS, np.uint8))
    assert open_envelope(SURVEY, sealed, NOW).n == MAX_ENVELOPE_REPORTS
    wide = one_question("OUE", k=8000)  # a report has 1000 bytes
    n = MAX_ENVELOPE_BYTES // 1000 - 1
    assert open_envelope(wide, seal(wide, 0, 0, 0, np.zeros((n, 1000), np.uint8)), wide.opens_ms(0)).n == n
    with pytest.raises(ValueError, match="at most 1000000 bytes"):
        seal(wide, 0, 0, 0, np.zeros((n + 1, 1000), np.uint8))
    with pytest.raises(Rejected, match="too large"):
        open_envelope(wide, raw(1, wide.fingerprint, 0, 0, 0, n + 1, bytes(1000 * (n + 1))), wide.opens_ms(0))


@pytest.mark.parametrize(
    ("attribute", "level", "step", "reports"),
    [
        (2, 0, 0, np.zeros(1, np.uint8)),
        (0, 1, 0, np.zeros(1, np.uint8)),
        (0, 0, -1, np.zeros(1, np.uint8)),
        (0, 0, 0, np.zeros(0, np.uint8)),
        (0, 0, 0, np.zeros(1, np.int64)),
        (1, 0, 0, np.zeros((1, 3), np.uint8)),
        (0, 0, 0, np.zeros(MAX_ENVELOPE_REPORTS + 1, np.uint8)),
    ],
)
def test_seal_rejects_what_open_would_reject(attribute: int, level: int, step: int, reports: np.ndarray) -> None:
    with pytest.raises(ValueError):
        seal(SURVEY, attribute, level, step, reports)
