"""What `check` says about pairs: their cost in people."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ldpstream.commands.cli import app
from ldpstream.promises.pair_costs import cost_lines, people_factor
from tests.pair_survey import BOTH, MODE, ONCE, ZONE, pair_survey
from tests.small_survey import small_survey, small_text


def test_the_cost_is_the_ratio_of_the_variances() -> None:
    assert people_factor(pair_survey(), 2) == pytest.approx(1.5)
    wider = small_survey(MODE, ZONE, MODE | {"name": "extra"}, BOTH)
    assert people_factor(wider, 3) == pytest.approx(4 / 3)
    split = small_survey(*(a | {"level": [ONCE]} for a in (MODE, ZONE, BOTH)), collection="spl")
    before = small_survey(*(a | {"level": [ONCE]} for a in (MODE, ZONE)), collection="spl")
    variances = [s.mechanisms[0][0].variance(1 / 3) for s in (split, before)]
    assert people_factor(split, 2) == pytest.approx(variances[0] / variances[1])
    assert (people_factor(split, 2) or 0) > 2
    [line] = cost_lines(pair_survey())
    assert "mode_by_zone is the pair of mode and zone, asked as one attribute of 9 values" in line
    assert "needs up to 1.5 times the people" in line
    assert cost_lines(small_survey(MODE, ZONE)) == []


def test_check_prints_the_cost(tmp_path: Path) -> None:
    survey, out = tmp_path / "trips.toml", tmp_path / "out.json"
    survey.write_text(small_text(MODE, ZONE, BOTH))
    told = CliRunner().invoke(app, ["check", str(survey), "--json", str(out)])
    assert told.exit_code == 0, told.output
    assert "mode_by_zone is the pair of mode and zone" in told.output
    document = json.loads(out.read_text())
    assert [(a["pair"], a["people_factor"]) for a in document["attributes"]] == [
        (None, None), (None, None), (["mode", "zone"], 1.5)
    ]  # fmt: skip
    told = CliRunner().invoke(app, ["check", str(survey), "--people", "30000"])
    assert told.exit_code == 0, told.output
    assert "needs up to 1.5 times the people for the same precision" in " ".join(told.output.split())


def test_a_survey_that_is_not_valid_without_its_pair_has_no_comparison() -> None:
    """Without the pair, each of the two attributes would have ε = 750, above the limit of 700."""
    level = {"level": [{"name": "s", "mechanism": "GRR", "eps": 1500.0}]}
    survey = small_survey(MODE | level, ZONE | level, BOTH | level, collection="spl")
    assert people_factor(survey, 2) is None
    [line] = cost_lines(survey)
    assert "not valid without the pair" in line
