"""The two promises of `ledger --relay` and `check --relay`: the rows, the words, and the arguments."""

import json
import math
import tomllib
from pathlib import Path

import msgspec
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from typer.testing import CliRunner

from ldpstream.behind_relay import CONDITIONS, DIRECT, BehindRelay, behind_relay, relay_line, relay_lines
from ldpstream.cli import app
from ldpstream.mechanisms.guessing import percent_up
from ldpstream.reader import loss_up, readers
from ldpstream.surveys import Survey, load_survey, parse_survey
from ldpstream.surveys.crowds import DELTA
from tests.docs.check_schema import PEOPLE_SCHEMA, SCHEMA

from .test_reader import COHORT, COMMUTE, MEMO, SAMPLES, SPACED, TOML, survey_of

RELAYED = parse_survey(
    tomllib.loads(TOML.replace("lateness_steps = 1", 'lateness_steps = 2\nrelay = "required"', 1)), "a test"
)  # fmt: skip


def rows_of(survey: Survey, people: int, colluding: int = 0) -> dict[tuple[str, str, str], BehindRelay]:
    return {(row.attribute, row.level, row.span): row for row in behind_relay(survey, people, colluding)}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_bound_is_between_blind_and_the_first_promise(path: Path) -> None:
    survey = load_survey(path)
    found = rows_of(survey, 100_000)
    mechanisms = {
        (a.name, level.name): m
        for a, ms in zip(survey.attributes, survey.mechanisms, strict=True)
        for level, m in zip(a.levels, ms, strict=True)
    }
    assert len(found) == 3 * len(mechanisms)
    for (attribute, level), m in mechanisms.items():
        report, window, life = (found[attribute, level, span] for span in ("report", "window", "life"))
        assert report.eps_behind_relay <= window.eps_behind_relay <= life.eps_behind_relay
        assert report.eps_everybody == pytest.approx(m.eps_1)
        for row in (report, window, life):
            assert 0 < row.eps_behind_relay < row.eps_everybody
            assert 1 / m.k < row.guess_behind_relay < row.guess_everybody
            assert row.delta == DELTA


def test_the_rows_are_the_bounds_of_the_mechanisms() -> None:
    found = rows_of(survey_of([MEMO], [SPACED]), 8000)
    for attribute, m, spans in (
        ("a0", survey_of([MEMO]).mechanisms[0][0], {"report": 1, "window": 8, "life": math.inf}),
        ("a1", survey_of([SPACED]).mechanisms[0][0], {"report": 1, "window": 1, "life": 46}),
    ):
        for span, t in spans.items():
            row = found[attribute, "l0", span]
            assert row.reports == (None if t == math.inf else t)
            assert row.crowd == (4000 if attribute == "a0" else 500)
            assert (row.eps_behind_relay, row.guess_behind_relay) == m.shuffled(t, row.crowd, DELTA)
            assert row.eps_everybody == (m.eps_inf if t == math.inf else m.eps_t(int(t)))
            assert row.guess_everybody == m.guess(t)


def test_all_reports_have_the_bound_of_the_readers() -> None:
    for row, reader in zip(
        (row for row in behind_relay(COMMUTE, 20_000) if row.span == "life"), readers(COMMUTE, 20_000), strict=True
    ):
        assert (row.crowd, row.reports, row.eps_behind_relay) == (reader.crowd, reader.reports, reader.eps_reader)


def test_colluding_people_hide_nobody() -> None:
    """So many people count as absent, wherever they report: the bounds are those of the honest people alone."""
    assert behind_relay(COMMUTE, 20_000, 12_000) == behind_relay(COMMUTE, 8000)
    assert readers(COMMUTE, 20_000, 12_000) == readers(COMMUTE, 8000)
    last = rows_of(COMMUTE, 20_000, 19_999)["mode", "standard", "life"]
    assert last.crowd == 1
    assert last.guess_behind_relay == pytest.approx(last.guess_everybody, abs=1e-3)


@pytest.mark.parametrize(("people", "colluding"), [(0, 0), (10, 10), (10, 11), (10, -1), (10**30, 0)])
def test_impossible_numbers_of_people_are_refused(people: int, colluding: int) -> None:
    with pytest.raises(ValueError, match=r"people must be|colluding must be"):
        behind_relay(COMMUTE, people, colluding)


def test_a_cohort_is_a_crowd_of_its_own() -> None:
    text = TOML.replace("\n[[attribute]]", f"\n{COHORT}\n[[attribute]]", 1)
    found = rows_of(parse_survey(tomllib.loads(text), "a test"), 20_000)
    assert {row.crowd for row in found.values()} == {2500, 312}


def test_the_words_state_the_first_promise_first() -> None:
    for row in behind_relay(COMMUTE, 20_000):
        line = relay_line(row)
        assert line.index("to everybody") < line.index("Behind the relay")
        assert f"at most {loss_up(row.eps_behind_relay)} nats" in line
        assert f"at most {percent_up(row.guess_behind_relay)}" in line
        assert line.endswith(f"if {row.crowd:,} honest people report at the same steps.")
    one = msgspec.structs.replace(row, crowd=1, reports=1)
    assert relay_line(one).endswith("if 1 honest person reports at the same steps.")


def test_the_lines_name_the_conditions_that_apply() -> None:
    direct, relayed, spaced, split = (
        " ".join(relay_lines(survey, 9000, colluding))
        for survey, colluding in (
            (COMMUTE, 0), (RELAYED, 2000), (survey_of([SPACED]), 0), (survey_of([SPACED], [SPACED], collection="spl"), 0),
        )
    )  # fmt: skip
    assert DIRECT.format(name="commute") in direct
    assert "requires no relay" not in relayed
    assert "Of 9,000 people, 2,000 forge reports" in relayed
    assert "forge" not in direct
    assert "memoized" not in spaced
    assert ["add up" in text for text in (direct, spaced, split)] == [False, False, True]
    assert all(CONDITIONS in text for text in (direct, relayed, spaced, split))


@pytest.mark.parametrize(("relayed", "option"), [(False, []), (False, ["--relay"]), (True, []), (True, ["--relay"])])
def test_the_commands_tell_both_promises_if_asked_or_required(relayed: bool, option: list[str], tmp_path: Path) -> None:
    survey = tmp_path / "commute.toml"
    text = TOML.replace("lateness_steps = 1", 'lateness_steps = 2\nrelay = "required"', 1) if relayed else TOML
    survey.write_text(text)
    expected = behind_relay(parse_survey(tomllib.loads(text), "a test"), 20_000, 500) if relayed or option else []
    for command in ("ledger", "check"):
        out = tmp_path / f"{command}.json"
        asked = [command, str(survey), "--people", "20000", "--colluding", "500", *option, "--json", str(out)]
        done = CliRunner().invoke(app, asked)
        assert done.exit_code == 0, done.output
        document, shown = json.loads(out.read_text()), " ".join(done.output.split())
        assert document["behind_relay"] == json.loads(msgspec.json.encode(expected))
        assert ("requires no relay" in shown) == (not relayed and bool(option))
        assert shown.count("Of 20,000 people, 500 forge reports") == 1
        if command == "check":
            assert (document["relay_required"], document["colluding"]) == (relayed, 500)
            Draft202012Validator(json.loads(PEOPLE_SCHEMA.read_text())).validate(document)
            assert all(shown.count(relay_line(row)) == 1 for row in expected)  # a window of one report has no line of its own
        else:
            assert all(f"≤ {loss_up(row.eps_behind_relay)}" in shown for row in expected)


@pytest.mark.parametrize("command", ["ledger", "check"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--relay"], "--relay needs --people"), (["--colluding", "3"], "--colluding needs --people"),
        (["--people", "10", "--colluding", "10"], "colluding must be an integer in [0, 9], got 10"),
    ],
)  # fmt: skip
def test_mistakes_get_one_line(command: str, options: list[str], said: str, tmp_path: Path) -> None:
    survey = tmp_path / "commute.toml"
    survey.write_text(TOML)
    done = CliRunner().invoke(app, [command, str(survey), *options])
    assert done.exit_code == 2
    assert said in done.output
    assert "Two promises" not in done.output


CROWDED = TOML.replace("lateness_steps = 1", 'lateness_steps = 2\nrelay = "required"\ncrowd = 1250', 1)


@pytest.mark.parametrize("colluding", [0, 250])
def test_the_surveys_crowd_is_that_of_each_step(colluding: int) -> None:
    survey = parse_survey(tomllib.loads(CROWDED), "a test")
    found = behind_relay(survey, None, colluding)
    assert {row.crowd for row in found} == {1250 - colluding}
    assert found[-1:] == behind_relay(survey, 16 * (1250 - colluding))[-1:]  # `mode`: half of the people, one step in 8
    lines = " ".join(relay_lines(survey, None, colluding))
    assert ("the survey's crowd" in lines, "evenly" in lines) == (True, False)
    assert ("Of each crowd of 1,250, 250 forge" in lines) == bool(colluding)
    with pytest.raises(ValueError, match="survey commute has no crowd"):
        behind_relay(RELAYED, None)


def test_check_and_ledger_tell_both_promises_for_the_surveys_crowd(tmp_path: Path) -> None:
    path, out = tmp_path / "commute.toml", tmp_path / "out.json"
    path.write_text(CROWDED)
    expected = behind_relay(load_survey(path), None)
    done = CliRunner().invoke(app, ["check", str(path), "--json", str(out)])
    assert done.exit_code == 0, done.output
    document = json.loads(out.read_text())
    assert document["behind_relay"] == json.loads(msgspec.json.encode(expected))
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    shown = " ".join(done.output.split())
    assert all(shown.count(relay_line(row)) == 1 for row in expected)
    assert shown.index("(eps_1 = 1)") < shown.index("relay: the second promise")
    assert " ".join(" ".join(document["promise"]).split()) in shown
    done = CliRunner().invoke(app, ["ledger", str(path), "--colluding", "250", "--json", str(out)])
    assert done.exit_code == 0, done.output
    document = json.loads(out.read_text())
    assert document["behind_relay"] == json.loads(msgspec.json.encode(behind_relay(load_survey(path), None, 250)))
    assert document["reader"] == []
    assert "Readers of the published" not in done.output
    assert "Two promises" in done.output
