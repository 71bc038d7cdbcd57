"""The texts of commands about a question with several answers."""

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ldpstream.commands.cli import app
from ldpstream.planning.forecast import INTERVAL, forecast
from tests.set_survey import ONCE, set_survey
from tests.small_survey import small_text

LEVEL = {"name": "standard", "mechanism": "auto", "eps_inf": 4.0, "eps_1": 2.0}
SPACED = {"name": "spaced", "mechanism": "PS-GRR", "eps": 2.0, "every_steps": 2}
APPS = {"name": "apps", "values": ["chat", "mail", "maps", "other"], "choices": "any", "level": [LEVEL, SPACED]}


@pytest.fixture
def survey_file(tmp_path: Path) -> Path:
    path = tmp_path / "apps.toml"
    path.write_text(small_text(APPS, step_seconds=3600, window_steps=4, lateness_steps=1))
    return path


def test_a_demo_answers_with_sets(survey_file: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "people.csv", tmp_path / "out.json"
    data.write_text("apps\n" + "chat;mail\n;\nmaps\nfax\n" * 500)
    ran = CliRunner().invoke(
        app, ["demo", "--survey", str(survey_file), "--data", str(data), "--steps", "1", "--json", str(out)]
    )
    assert ran.exit_code == 0, ran.output
    assert "500" in ran.output
    assert "number of values of a person, mean " in ran.output
    found = [e for e in json.loads(out.read_text())["estimates"] if e["span"] == "step"]
    assert found[0]["truth"] == pytest.approx([0.25, 0.25, 0.25, 0.25, 1, 1, 0.75, 0.25], abs=0.05)


def test_the_forecast_is_of_shares_of_people() -> None:
    survey = set_survey(apps={"level": [ONCE]})
    [row] = forecast(survey, 4000)
    [[m]] = survey.mechanisms
    assert row.share == 3 / 8
    assert row.spans["step"].half_width == pytest.approx(3 * INTERVAL * math.sqrt(m.variance(1 / 8, 4000)))
    assert (row.spans["step"].least_share or 0) < 1
