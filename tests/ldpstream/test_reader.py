"""Bounds for a reader of the histograms: the crowds, the words, and the document of `check --people`."""

import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from typer.testing import CliRunner

from ldpstream.cli import app
from ldpstream.mechanisms.guessing import percent_up
from ldpstream.reader import Reader, legend, loss_up, reader_line, readers
from ldpstream.surveys import Survey, load_survey, parse_survey
from ldpstream.surveys.crowds import DELTA
from tests.docs.check_schema import PEOPLE_SCHEMA, people_schema

ROOT = Path(__file__).parents[2]
SAMPLES = sorted((ROOT / "surveys" / "samples").glob("*.toml"))
(TOML,) = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
COMMUTE = parse_survey(tomllib.loads(TOML), "README.md")
MEMO = 'mechanism = "L-GRR"\neps_inf = 2.0\neps_1 = 1.0'
SPACED = 'mechanism = "GRR"\neps = 1.0\nevery_steps = 8'


def survey_of(*attributes: list[str], collection: str = "smp", more: str = "") -> Survey:
    head = f'name = "r"\nstart = 2026-01-05T00:00:00Z\nstep_seconds = 86400\nwindow_steps = 8\nlateness_steps = 1\n{more}\n'
    asked = ""
    for i, levels in enumerate(attributes):
        asked += f'\n[[attribute]]\nname = "a{i}"\nsize = 4\n'
        asked += "\n".join(f'[[attribute.level]]\nname = "l{j}"\n{level}' for j, level in enumerate(levels))
    return parse_survey(tomllib.loads(f'{head}collection = "{collection}"\n{asked}'), "a test")


COHORT = '[cohort]\nname = "c"\nvalues = ["x", "y", "z", "w"]\nleast = 10\n'


@pytest.mark.parametrize(
    ("survey", "crowds", "reports"),
    [
        (survey_of([MEMO]), [8000], [None]),
        (survey_of([SPACED]), [1000], [46]),
        (survey_of([SPACED, MEMO], [MEMO]), [250, 2000, 4000], [46, None, None]),
        (survey_of([SPACED], [MEMO], collection="spl"), [1000, 8000], [46, None]),
        (survey_of([SPACED], [MEMO], collection="rs+fd"), [1000, 8000], [46, None]),
        (survey_of([SPACED], more="ends = 20"), [1000], [3]),
        (survey_of([f"{SPACED}\nlifetime_reports = 100"]), [1000], [100]),
        (survey_of([f"{SPACED}\nlifetime_reports = 100"], more="ends = 20"), [1000], [3]),
    ],
)
def test_the_people_divide_among_attributes_levels_and_steps(
    survey: Survey, crowds: list[int], reports: list[int | None]
) -> None:
    rows = readers(survey, 8000)
    assert [row.crowd for row in rows] == crowds
    assert [row.reports for row in rows] == reports
    for row, m in zip(rows, (m for levels in survey.mechanisms for m in levels), strict=True):
        assert (row.eps_reader, row.guess_reader) == m.shuffled(row.reports or math.inf, row.crowd, DELTA)
        assert row.eps_reader < row.eps_all == (m.eps_inf if row.reports is None else m.eps_t(row.reports))
        assert 1 / m.k < row.guess_reader < row.guess_all


def test_a_cohort_has_a_table_of_its_own() -> None:
    text = TOML.replace("\n[[attribute]]", f"\n{COHORT}\n[[attribute]]", 1)
    rows = readers(parse_survey(tomllib.loads(text), "a test"), 20_000)
    assert [row.crowd for row in rows] == [2500, 312]


def test_few_people_hide_nobody() -> None:
    for row in readers(COMMUTE, 1):
        assert row.crowd == 1
        assert row.guess_reader == row.guess_all
        assert row.eps_reader == pytest.approx(row.eps_all, rel=0.4)  # the difference comes from delta alone


def test_a_wave_and_a_large_budget_have_a_row() -> None:
    sharp = 'mechanism = "GRR"\neps = 80.0'
    (wave,), (row,) = (
        readers(survey_of(levels), 80_000) for levels in (['mechanism = "SW"\neps = 2.0\nevery_steps = 8'], [sharp])
    )
    assert wave.eps_reader < 1 < wave.eps_all
    assert (row.eps_reader, row.guess_reader) == (row.eps_all, row.guess_all)


@pytest.mark.parametrize(
    ("loss", "text"),
    [(0.80201, "0.803"), (0.8, "0.8"), (45.0, "45"), (0.0, "0.0001"), (999.2, "1000"), (1234.1, "1240"), (2920.0, "2920")],
)
def test_a_bound_is_rounded_up(loss: float, text: str) -> None:
    assert loss_up(loss) == text


def test_a_line_has_the_singular_after_a_1() -> None:
    one = Reader(
        attribute="mode", level="low", reports=1, crowd=1, delta=DELTA, eps_all=1.0, guess_all=0.5, guess_all_exact=True,
        eps_reader=1.0, guess_reader=0.5,
    )  # fmt: skip
    assert reader_line(one) == (
        "mode, low: 1 report loses at most 1 nat to whoever sees them. A reader learns at most 1 nat (right guess: at most "
        "50.0 %), if each table has 1 honest report."
    )
    memo = reader_line(msgspec.structs.replace(one, reports=None))
    assert "any number of reports of an unchanged value lose at most 1 nat" in memo
    assert memo.endswith("if 1 person is always in the same tables.")


def test_the_legend_names_the_conditions_that_apply() -> None:
    memos, spaced, split = (
        " ".join(legend(survey)) for survey in (COMMUTE, survey_of([SPACED]), survey_of([SPACED], [SPACED], collection="spl"))
    )
    assert "one memo" in memos
    assert "one memo" not in spaced
    assert ["add up" in text for text in (memos, spaced, split)] == [False, False, True]


def test_the_ledger_and_check_tell_the_same_numbers(tmp_path: Path) -> None:
    survey = tmp_path / "commute.toml"
    survey.write_text(TOML)
    shown, found = {}, {}
    for command, option in (("ledger", []), ("check", ["--width", "0.02"])):
        out = tmp_path / f"{command}.json"
        done = CliRunner().invoke(app, [command, str(survey), "--people", "20000", *option, "--json", str(out)])
        assert done.exit_code == 0
        shown[command], found[command] = " ".join(done.output.split()), json.loads(out.read_text())["reader"]
    rows = readers(COMMUTE, 20_000)
    expected: list[dict[str, Any]] = [{key: getattr(row, key) for key in Reader.__struct_fields__} for row in rows]
    assert found["ledger"] == found["check"] == expected
    for row in rows:
        assert reader_line(row) in shown["check"]
        assert f"≤ {loss_up(row.eps_reader)}" in shown["ledger"]
    assert all(line in shown["ledger"] for line in legend(COMMUTE))
    done = CliRunner().invoke(app, ["ledger", str(survey), "--people", str(10**30)])
    assert done.exit_code == 2
    assert "people" in done.output


def test_the_readme_states_what_readers_learn() -> None:
    readme = (ROOT / "README.md").read_text()
    for row in readers(COMMUTE, 20_000):
        (line,) = re.findall(rf"(?m)^\| `{row.attribute}` \|.*$", readme)
        assert line.endswith(f"| at most {percent_up(row.guess_reader)} |")


def test_the_ledger_without_people_tells_nothing_about_readers(tmp_path: Path) -> None:
    out = tmp_path / "ledger.json"
    done = CliRunner().invoke(app, ["ledger", str(SAMPLES[0]), "--json", str(out)])
    assert "crowd" not in done.output
    assert json.loads(out.read_text())["reader"] == []


def test_the_schema_of_the_people_is_the_codes() -> None:
    """If this test fails after a change of the document, run `python -m tests.docs.check_schema`."""
    assert PEOPLE_SCHEMA.read_text() == people_schema()


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_the_document_of_the_people_fits_its_schema(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "people.json"
    assert CliRunner().invoke(app, ["check", str(path), "--people", "50000", "--json", str(out)]).exit_code == 0
    schema = json.loads(PEOPLE_SCHEMA.read_text())
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(json.loads(out.read_text()))
    assert load_survey(path).name == json.loads(out.read_text())["survey"]
