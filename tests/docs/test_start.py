"""Runs the commands of the README and of the lessons, and compares what they print and every number that they name."""

import json
import math
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ldpstream.commands.cli import app
from ldpstream.mechanisms import Mechanism, mechanism
from ldpstream.mechanisms.claims.guessing import percent
from ldpstream.surveys import load_survey

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
HISTOGRAM, QUESTION, DEVICE = (
    (ROOT / "docs" / "start" / f"{name}.md").read_text() for name in ("first_histogram", "own_question", "first_device")
)
TRAVEL = load_survey(ROOT / "surveys" / "samples" / "travel.toml")
P, Q = math.e / (math.e + 3), 1 / (math.e + 3)  # chances of the true and of each other answer: four answers, ε = 1
CAR = 6641  # reports that name the first answer, in the demo's last window


def run(command: str) -> str:
    done = CliRunner().invoke(app, command.split()[1:], env={"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"})
    assert done.exit_code == 0, done.output
    return done.output


def block(text: str) -> list[str]:
    """Returns the indented lines that no reader types, such as the rows of a table."""
    return [line.strip() for line in text.splitlines() if re.match(r"    (?:[│┃┏┡└]|mode ·|[\d,]+ reports)", line)]


def plain(text: str) -> str:
    return " ".join(text.split())


def test_the_readme_is_short() -> None:
    first_screen, _, _ = README.partition("\n## The promise\n")
    assert first_screen.count("\n") <= 60
    assert README.count("\n") <= 100


@pytest.fixture(scope="module")
def dice() -> Mechanism:
    return TRAVEL.mechanisms[0][0]


def test_the_demo_prints_what_readme_and_lesson_show(tmp_path: Path, dice: Mechanism) -> None:
    shown = [line.strip() for line in run(f"ldpstream demo --json {tmp_path / 'out.json'}").splitlines()]
    for page in (README, HISTOGRAM):
        assert len(block(page)) >= 8
        assert all(row in shown for row in block(page))
    window = json.loads((tmp_path / "out.json").read_text())["estimates"][-1]
    inverted, *_ = window["estimators"]["mi"]["frequencies"]
    assert (window["span"], window["reports"]) == ("window", 20_000)
    assert inverted * (P - Q) + Q == pytest.approx(CAR / 20_000, abs=1e-12)
    worst = max(abs(a - b) for a, b in zip(*(window["estimators"][name]["frequencies"] for name in ("mi", "eb")), strict=True))
    assert worst < 0.002
    assert dice.variance(inverted, 20_000) ** 0.5 < 0.0111


def test_the_bar_and_its_interval_by_hand() -> None:
    """Each line of arithmetic in the lesson is right, to the printed digits, and follows from the mechanism."""
    said = plain(HISTOGRAM)
    assert f"which makes {500 * P:.0f}. Of the other 500, 17 of 100 do, which makes {500 * Q:.0f}. Together, about 325" in said
    assert (round(P, 3), round(Q, 3), round(P / Q, 2), round(500 * (P + Q))) == (0.475, 0.175, 2.72, 325)
    assert f"{f'{CAR:,}'.replace(',', ' ')} say *car*, which is {CAR / 200:.1f} %" in said
    assert (round((0.325 - 0.175) / (0.475 - 0.175), 2), round((0.332 - 0.175) / (0.475 - 0.175), 3)) == (0.5, 0.523)
    error = math.sqrt(0.332 * 0.668 / 20_000)
    assert (round(error, 4), round(0.0033 / 0.3, 3)) == (0.0033, 0.011)
    assert [round(0.523 + sign * 1.96 * 0.0111, 3) for sign in (-1, 1)] == [0.501, 0.545]
    without_dice = math.sqrt(0.523 * 0.477 / 2000)
    assert without_dice == pytest.approx(error / 0.3, rel=0.02)


def test_the_program_of_the_lesson_prints_what_the_lesson_says(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", HISTOGRAM, re.DOTALL)
    exec(program, {})  # our own document
    assert f"It prints `{capsys.readouterr().out.strip()}`." in plain(HISTOGRAM)


def test_the_promise_in_the_readme_is_that_of_its_survey(dice: Mechanism) -> None:
    (row,) = re.findall(r"(?m)^\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", README)
    assert [f"{cell} %" for cell in row] == [percent(x) for x in (1 / dice.k, dice.guess(1), dice.claims.guess_any_values(8))]
    assert (TRAVEL.mechanisms[0][0].lifetime_reports, TRAVEL.mechanisms[0][0].eps_1) == (8, 1.0)
    assert f"45 reports would give {percent(dice.guess(45)).removesuffix(' %')}." in plain(README)
    one_time = mechanism("GRR", 4, eps=1.0)
    widths = [f"{196 * one_time.variance(0.25, people) ** 0.5:.0f}" for people in (1000, 10_000)]
    assert "a share to ± {} percentage points from 1 000 people, and to ± {} from 10 000".format(*widths) in plain(README)


def test_the_lesson_about_an_own_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", QUESTION, re.DOTALL)
    exec(program, {})  # our own document
    commands = re.findall(r"(?m)^    (ldpstream .*)$", QUESTION)
    assert [command.split()[1] for command in commands] == ["init", "check", "demo", "init", "demo", "check", "try"]
    shown = "\n".join(run(command) for command in commands[:-1])
    assert len(block(QUESTION)) >= 8
    assert all(row in shown for row in block(QUESTION))
    assert "mode · steps 8 to 15 · 2,436 reports" in shown
    assert "only 2 436 people answered this one" in plain(QUESTION)
    promise = plain(shown)
    assert all(f"{chance} %" in promise for chance in ("25.0", "47.5", "72.8"))
    (row,) = [line for line in shown.splitlines() if "8 steps" in line and line.count("│") == 6][-1:]
    assert row.split("│")[4].strip() == "1.3 %"


def test_the_times_and_the_crowd_in_the_lesson_about_a_device(dice: Mechanism) -> None:
    """tests/devices/python/test_device_example.py runs the lesson's commands and program."""
    assert "[default: 5]" in run("ldpstream rehearse --help")
    assert (dice.every_steps, dice.lifetime_reports) == (8, 8)
    assert "reports once in eight steps" in plain(DEVICE)
    assert f"After at most {8 * 5} seconds" in plain(DEVICE)
    assert round(196 * mechanism("GRR", 4, eps=1.0).variance(0.5, 2000) ** 0.5) == 7
    assert "about seven percentage points to each side" in plain(DEVICE)
