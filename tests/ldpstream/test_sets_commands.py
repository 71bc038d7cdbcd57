"""The texts of commands about a question with several answers."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ldpstream.commands.cli import app
from tests.set_survey import LEVEL
from tests.small_survey import small_text


def test_a_demo_answers_with_sets(tmp_path: Path) -> None:
    survey, data, out = tmp_path / "apps.toml", tmp_path / "people.csv", tmp_path / "out.json"
    asked = {"name": "apps", "values": ["chat", "mail", "maps", "other"], "choices": "any", "level": [LEVEL]}
    survey.write_text(small_text(asked, step_seconds=3600))
    data.write_text("apps\n" + "chat;mail\n;\nmaps\nfax\n" * 500)
    arguments = ["demo", "--survey", str(survey), "--data", str(data), "--steps", "1", "--json", str(out)]
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.output
    assert "500" in ran.output
    assert "number of values of a person, mean " in ran.output
    found = [e for e in json.loads(out.read_text())["estimates"] if e["span"] == "step"]
    assert found[0]["truth"] == pytest.approx([0.25, 0.25, 0.25, 0.25, 1, 1, 0.75, 0.25], abs=0.05)
