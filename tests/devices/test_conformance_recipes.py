"""The check of recipes passes our device, and finds devices whose values do not follow from the calls before the step."""

from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from typer.testing import CliRunner

from devices.conformance.__main__ import app
from devices.conformance.calls import ConformanceError
from devices.conformance.recipes import DAY_MS, check_recipes, histories
from devices.vectors.vectors import VECTORS
from ldpstream.device import activity
from ldpstream.surveys import load_survey

FILE, CORRECT = VECTORS / "usage.toml", activity.measured
STEP_OF: dict[str, tuple[Any, int]] = {  # the step whose values the device computes, and the first day of the log that it sees
    "correct": (lambda survey, step: (step, 0), 0),
    "the present step counts": (lambda survey, step: (step + 1, 0), 1),
    "use before the survey is lost": (lambda survey, step: (step, survey.start_ms // DAY_MS), 1),
    "all windows end at the present step": (lambda survey, step: (step, survey.opens_ms(step) // DAY_MS - 28), 1),
}


@pytest.mark.parametrize("device", STEP_OF)
def test_our_device_passes_and_each_fault_is_found(device: str, tmp_path: Path) -> None:
    seen, status = STEP_OF[device]

    def measured(recipe: Any, log: Any, survey: Any, step: int) -> float:
        at, first = seen(survey, step)
        return CORRECT(recipe, {day: events for day, events in log.items() if day >= first}, survey, at)

    with mock.patch("ldpstream.device.activity.measured", measured):
        (tmp_path / "answers").write_bytes(b"\n".join(map(msgspec.json.encode, histories(load_survey(FILE)))))
    done = CliRunner().invoke(app, [str(FILE), "--recipes", str(tmp_path / "answers")])
    assert (done.exit_code, "must follow from the calls" in done.output) == (status, status == 1)


def test_the_answers_belong_to_the_written_histories(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, [str(FILE), "--histories", str(tmp_path / "file")]).exit_code == 0
    asked = (tmp_path / "file").read_bytes()
    for wrong, message in ((asked, "is not the line of"), (asked[9:], "malformed"), (b"[]", "Expected `object`")):
        (tmp_path / "file").write_bytes(wrong)
        with pytest.raises(ConformanceError, match=message):
            check_recipes(load_survey(FILE), tmp_path / "file")
