"""The device's cohort: in every envelope, free to change, and never a part of what the device keeps."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ldpstream.device import Device
from ldpstream.surveys import check_envelope, parse_survey

DOCUMENT = {
    "name": "study", "start": datetime(2026, 1, 5, tzinfo=UTC), "step_seconds": 60, "window_steps": 1, "lateness_steps": 1,
    "collection": "spl", "ends": 1000,
    "attribute": [{"name": "q", "size": 40, "level": [{"name": "a", "mechanism": "L-OSUE", "eps_inf": 2.0, "eps_1": 1.0}]}],
}  # fmt: skip
PLAIN = parse_survey(DOCUMENT)
SURVEY = parse_survey(DOCUMENT | {"cohort": {"name": "version", "values": ["1.0", "1.1", "other"], "least": 10}})
ALLOWED = r"^the cohort \(version\) must be one of 1\.0, 1\.1, other, got "


def cohort_of(raw: bytes | None, step: int) -> int:
    assert raw is not None
    return check_envelope(SURVEY, raw, SURVEY.opens_ms(step)).cohort


def test_the_cohort_may_change_and_the_memo_stays(tmp_path: Path) -> None:
    before = Device(SURVEY, tmp_path / "study.device", cohort="1.0", consent="simulated")
    first = before.report("q", 3, 0)
    assert cohort_of(first, 0) == 0
    after = Device(SURVEY, tmp_path / "study.device", cohort="1.1", consent="simulated")
    assert after.report("q", 3, 0) == first  # the stored envelope stays as it is
    assert cohort_of(after.report("q", 3, 1), 1) == 1
    assert cohort_of(before.report("q", 3, 2), 2) == 0
    spent = after.spent("q")
    assert spent.reports == 3
    assert spent.eps_t is not None  # one memo
    assert [cohort_of(report.envelope, report.step) for report in after.waiting()] == [0, 1, 0]


@pytest.mark.parametrize("cohort", ["1.2", "", None, "1.0 "])
def test_an_unknown_cohort_is_one_clear_error_and_stores_nothing(cohort: str | None, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=ALLOWED + repr(cohort)) as caught:
        Device(SURVEY, tmp_path / "file", cohort=cohort, consent="simulated")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "file").exists()


def test_a_survey_without_cohorts_takes_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^survey study has no cohort, got '1\.0'$"):
        Device(PLAIN, tmp_path / "file", cohort="1.0", consent="simulated")
    assert Device(PLAIN, tmp_path / "file", consent="simulated").report("q", 3, 0)
