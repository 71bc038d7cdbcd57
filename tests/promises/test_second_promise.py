"""The two promises of `check --people`: the rows, the words, and the arguments."""

import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # has no types
from typer.testing import CliRunner

from ldpstream.commands.cli import app
from ldpstream.promises.crowds import DELTA, least_crowd
from ldpstream.promises.device_chance import device_chance
from ldpstream.promises.second_promise import conditions, loss_up, second_promise, second_promise_lines
from ldpstream.surveys import Survey, load_survey, parse_survey
from tests.docs.check_schema import PEOPLE_SCHEMA, SCHEMA, people_schema
from tests.small_survey import small_survey

ROOT = Path(__file__).parents[2]
SAMPLES = sorted((ROOT / "surveys" / "samples").glob("*.toml"))
TOML = (ROOT / "surveys" / "samples" / "commute.toml").read_text()
COMMUTE = parse_survey(tomllib.loads(TOML), "commute.toml")
RELAYED_TOML = TOML.replace("lateness_steps = 1", 'lateness_steps = 2\nrelay = "required"', 1)
CROWDED = RELAYED_TOML.replace('relay = "required"', 'relay = "required"\ncrowd = 1250')
MEMO = {"mechanism": "L-GRR", "eps_inf": 2.0, "eps_1": 1.0}
SPACED = {"mechanism": "GRR", "eps": 1.0, "every_steps": 8}
LIFE = SPACED | {"lifetime_reports": 100}
COHORT = {"name": "c", "values": ["x", "y", "z", "w"], "least": 10}


def survey_of(*attributes: list[dict[str, Any]], **keys: Any) -> Survey:
    asked = [
        {"name": f"a{i}", "size": 4, "level": [{"name": f"l{j}"} | level for j, level in enumerate(levels)]}
        for i, levels in enumerate(attributes)
    ]
    return small_survey(*asked, name="r", step_seconds=86400, window_steps=8, **keys)


@pytest.mark.parametrize(
    ("survey", "parts", "reports"),
    [
        (survey_of([MEMO]), [1], [None]),
        (survey_of([SPACED]), [8], [46]),
        (survey_of([SPACED, MEMO], [MEMO]), [32, 4, 2], [46, None, None]),
        (survey_of([SPACED], [MEMO], collection="spl"), [8, 1], [46, None]),
        (survey_of([SPACED], [MEMO], collection="rs+fd"), [8, 1], [46, None]),
        (survey_of([SPACED], cohort=COHORT), [32], [46]),
        (survey_of([SPACED], ends=20), [8], [3]),
        (survey_of([LIFE]), [8], [100]),
        (survey_of([LIFE], ends=20), [8], [3]),
    ],
)
def test_the_people_divide_among_attributes_levels_cohorts_and_steps(
    survey: Survey, parts: list[int], reports: list[int | None]
) -> None:
    found = second_promise(survey, 8000)
    rows = [row for row in found if row.span == "life"]
    assert [row.crowd for row in rows] == [least_crowd(8000, n, DELTA / 2) for n in parts]
    assert [row.reports for row in rows] == reports
    assert [row.span for row in found] == ["report", "window", "life"] * len(parts)
    places = [(i, m) for i, levels in enumerate(survey.mechanisms) for m in levels]
    for row, (i, m) in zip(rows, places, strict=True):
        assert row.eps_in_crowd < row.eps_everybody == (m.eps_inf if row.reports is None else m.eps_t(row.reports))
        assert 1 / m.k < row.guess_in_crowd < row.guess_everybody
        assert row.guess_everybody == device_chance(survey, i, m, None)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_bound_is_between_blind_and_the_first_promise(path: Path) -> None:
    survey = load_survey(path)
    every = [m for levels in survey.mechanisms for m in levels]
    found = second_promise(survey, 100_000)
    for m, *rows in zip(every, found[::3], found[1::3], found[2::3], strict=True):
        report, window, life = rows
        assert report.eps_in_crowd <= window.eps_in_crowd <= life.eps_in_crowd
        assert report.eps_everybody == pytest.approx(m.eps_1)
        for row in rows:
            assert 0 < row.eps_in_crowd < row.eps_everybody
            assert 1 / m.k < row.guess_in_crowd < row.guess_everybody


@pytest.mark.parametrize("people", [0, -1, 10**30])
def test_impossible_numbers_of_people_are_refused(people: int) -> None:
    with pytest.raises(ValueError, match="people must be"):
        second_promise(COMMUTE, people)


def test_nobody_hides_one_person() -> None:
    last = second_promise(COMMUTE, 1)[-1]
    assert (last.crowd, last.guess_in_crowd) == (1, last.guess_everybody)


@pytest.mark.parametrize(
    ("loss", "text"),
    [(0.80201, "0.803"), (0.8, "0.8"), (45.0, "45"), (0.0, "0.0001"), (999.2, "1000"), (1234.1, "1240"), (2920.0, "2920")],
)
def test_a_bound_is_rounded_up(loss: float, text: str) -> None:
    assert loss_up(loss) == text


DIRECT, RELAYED, FRESH, MEMOS, SPLIT, STATED = (
    "requires no relay. The operator sees", "Behind the relay, the second promise also holds", "A level without memos:",
    "A memoized level, several", "and so do their δ", "the survey states as `crowd`",
)  # fmt: skip


def test_the_conditions_are_those_that_apply() -> None:
    relayed, crowded = (parse_survey(tomllib.loads(text), "a test") for text in (RELAYED_TOML, CROWDED))
    spaced, split = survey_of([SPACED]), survey_of([SPACED], [SPACED], collection="spl")
    for survey, stated, said in (
        (COMMUTE, False, {DIRECT, FRESH, MEMOS}),
        (relayed, False, {RELAYED, FRESH, MEMOS}),
        (crowded, True, {RELAYED, FRESH, MEMOS, STATED}),
        (spaced, False, {DIRECT, FRESH}),
        (split, False, {DIRECT, FRESH, SPLIT}),
    ):
        lines = " ".join(conditions(survey, 1e-7, stated))
        assert all(text in lines for text in {*said, "All conditions:", "δ = 0.0000001 is"})
        assert not any(text in lines for text in {DIRECT, RELAYED, FRESH, MEMOS, SPLIT, STATED} - said)


@pytest.mark.parametrize("toml", [TOML, RELAYED_TOML])
def test_check_tells_both_promises_for_people(toml: str, tmp_path: Path) -> None:
    path, out = tmp_path / "commute.toml", tmp_path / "out.json"
    path.write_text(toml)
    survey = load_survey(path)
    expected = second_promise(survey, 20_000, 1e-7)
    asked = ["check", str(path), "--people", "20000", "--delta", "1e-7", "--json", str(out)]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    document, shown = json.loads(out.read_text()), " ".join(done.output.split())
    assert document["second_promise"] == json.loads(msgspec.json.encode(expected))
    assert all(line in shown for line in conditions(survey, 1e-7, stated=False))
    assert document["relay_required"] == (toml == RELAYED_TOML)
    assert all(f"≤ {loss_up(row.eps_in_crowd)}" in shown for row in expected)


def test_the_surveys_crowd_is_that_of_each_step() -> None:
    survey = parse_survey(tomllib.loads(CROWDED), "a test")
    found = second_promise(survey, None)
    assert {row.crowd for row in found} == {1250}
    m = survey.mechanisms[1][0]
    assert found[-1].eps_in_crowd == m.claims.shuffled(8, 1250, DELTA).eps(DELTA)  # no coin decides on this crowd
    with pytest.raises(ValueError, match="survey commute has no crowd"):
        second_promise(COMMUTE, None)


def test_check_tells_both_promises_for_the_surveys_crowd(tmp_path: Path) -> None:
    path, out = tmp_path / "commute.toml", tmp_path / "out.json"
    path.write_text(CROWDED)
    survey = load_survey(path)
    expected = second_promise(survey, None)
    done = CliRunner().invoke(app, ["check", str(path), "--json", str(out)])
    assert done.exit_code == 0, done.output
    document = json.loads(out.read_text())
    assert document["second_promise"] == json.loads(msgspec.json.encode(expected))
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    shown = " ".join(done.output.split())
    assert all(line in shown for line in second_promise_lines(survey, expected))
    assert shown.index("(eps_1 = 1)") < shown.index("Second promise")
    assert " ".join(" ".join(document["promise"]).split()) in shown


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--delta", "1e-7"], "--delta needs --people"),
        (["--people", "10", "--delta", "1"], "delta must be"), (["--people", str(10**30)], "people"),
        (["--width", "0.1"], "--width needs --people"), (["--people", "9", "--width", "2"], "width must be"),
        (["--people", "0"], "equal to 1"),
    ],
)  # fmt: skip
def test_mistakes_get_one_line(options: list[str], said: str, tmp_path: Path) -> None:
    survey = tmp_path / "commute.toml"
    survey.write_text(TOML)
    done = CliRunner().invoke(app, ["check", str(survey), *options])
    assert done.exit_code == 2
    assert said in done.output
    assert "Two promises" not in done.output


def test_the_schema_of_the_people_is_the_codes() -> None:
    """If this test fails after a change of the document, run `python -m tests.docs.check_schema`."""
    assert PEOPLE_SCHEMA.read_text() == people_schema()
