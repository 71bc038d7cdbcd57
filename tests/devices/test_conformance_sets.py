"""The conformance check of questions with several answers: a correct device passes, and faults are found."""

import json
from pathlib import Path

import pytest

from devices.conformance.calls import ConformanceError, read_calls
from devices.conformance.conformance import check_device
from ldpstream.mechanisms.families.padded_sampling import SetMechanism
from ldpstream.surveys import Survey
from tests.devices.faulty_devices import FreshMemo
from tests.devices.foreign_device import ForeignDevice, Row, calls
from tests.set_survey import APPS
from tests.small_survey import small_survey

APPS_3 = APPS | {"values": ["chat", "mail", "other"], "choices": 2}
ONCE = {"name": "once", "mechanism": "PS-GRR", "eps": 3.0}
KEPT = {"name": "kept", "mechanism": "L-PS-GRR", "eps_inf": 6.0, "eps_1": 3.0}
MODE = {"name": "mode", "values": ["car", "bus"], "level": [{"name": "once", "mechanism": "GRR", "eps": 3.0}]}


def survey_of(level: dict[str, object]) -> Survey:
    return small_survey(APPS_3 | {"level": [level]})


@pytest.mark.parametrize("level", [ONCE, KEPT, ONCE | {"every_steps": 2}])
def test_a_correct_device_passes(level: dict[str, object]) -> None:
    found = check_device(survey_of(level), calls(survey_of(level), ForeignDevice, 1800))
    assert found.failures == []
    assert len({tested.check for tested in found.tested}) >= 8


class NoDummies(ForeignDevice):
    """Never names a dummy if the set has a value, so the report tells more about the values."""

    def member(self, m: SetMechanism, code: int, eps: float) -> Row:
        drawn = super().member(m, code, eps)
        chosen = [v for v in range(m.k - m.choices) if code >> v & 1]
        return chosen[self.below(len(chosen))] if drawn >= m.k - m.choices and chosen else drawn


class FirstMember(ForeignDevice):
    """Draws the first member where it should draw any member."""

    def member(self, m: SetMechanism, code: int, eps: float) -> Row:
        drawn = super().member(m, code, eps)
        return min((v for v in range(drawn) if code >> v & 1), default=drawn) if code >> drawn & 1 else drawn


class ClearIfEmpty(ForeignDevice):
    """Does not randomize the set of no value."""

    def toss(self, p: float) -> bool:
        return self.empty or super().toss(p)

    def member(self, m: SetMechanism, code: int, eps: float) -> Row:
        self.empty = not code
        try:
            return super().member(m, code, eps)
        finally:
            self.empty = False

    empty = False


class SampledByTheSet(ForeignDevice):
    """The phase depends on the number of values."""

    def report(self, a: int, value: int, step: int) -> tuple[bytes, str] | None:
        self.phases[a] = value.bit_count() % 2
        return super().report(a, value, step)


@pytest.mark.parametrize(
    ("kind", "level", "finding"),
    [
        (NoDummies, ONCE, "reports of each symbol of the padded set"),
        (FirstMember, KEPT, "reports of each symbol of the padded set"),
        (FreshMemo, KEPT, "first two reports of a value"),
        (ClearIfEmpty, ONCE, "the same, for 0 answers"),
        (SampledByTheSet, ONCE | {"every_steps": 2}, ""),
    ],
)
def test_every_fault_is_found(kind: type[ForeignDevice], level: dict[str, object], finding: str) -> None:
    failures = check_device(survey_of(level), calls(survey_of(level), kind, 1400)).failures
    assert failures
    assert any(finding in failure for failure in failures), failures


@pytest.mark.parametrize(("kept", "lacking"), [({1, 2}, "0 answers"), ({0, 2}, "1 answer"), ({0, 1}, "2 answers")])
def test_a_sample_without_a_size_of_sets_gives_no_verdict(kept: set[int], lacking: str) -> None:
    """The sample of all sizes passes: `test_a_correct_device_passes`."""
    survey = survey_of(ONCE)
    some = (call for call in calls(survey, ForeignDevice, 3600) if call.value.bit_count() in kept)
    with pytest.raises(ConformanceError, match=f"too few independent reports of sets with {lacking} of apps, once"):
        check_device(survey, some)


def test_a_line_has_the_list_of_the_values_of_a_set(tmp_path: Path) -> None:
    survey, path = small_survey(APPS_3 | {"level": [ONCE]}, MODE), tmp_path / "calls.jsonl"
    line = {"device": "1", "attribute": "apps", "value": [0, 2], "step": 0, "envelope": None}
    path.write_text(json.dumps(line))
    [call] = read_calls(survey, path)
    assert call.value == 5
    for wrong in ([0, 0], [3], [0, 1, 2], 1, [-1]):
        path.write_text(json.dumps(line | {"value": wrong}))
        with pytest.raises(
            ConformanceError, match="value must be a list of at most 2 different indices of values of apps, 0 to 2"
        ):
            list(read_calls(survey, path))
