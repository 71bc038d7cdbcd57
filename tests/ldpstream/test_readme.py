"""Checks that the README's commands and files exist and that its example runs."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ldpstream.cli import app
from surveys import load_survey

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = [line[4:] for line in README.splitlines() if line.startswith("    ")]
MENTIONED = [*re.findall(r"`(ldpstream [^`]+)`", README), *BLOCKS]
COMMANDS = sorted({re.sub(r"\s{2,}.*", "", text) for text in MENTIONED if text.startswith("ldpstream ")})
FOLDERS = "mechanisms|surveys|producers|agents|estimators|ldpstream|experiments|deploy|tests|docs"


def test_there_are_commands_to_test() -> None:
    assert len(COMMANDS) >= 8


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_option_exists(command: str) -> None:
    _, name, *rest = command.split()
    shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
    assert shown.exit_code == 0, shown.output
    for word in rest:
        if word.startswith("--"):
            assert word in shown.output


@pytest.mark.parametrize("target", sorted(set(re.findall(r"make (\w+)", README + (ROOT / "CONTRIBUTING.md").read_text()))))
def test_every_make_target_exists(target: str) -> None:
    assert re.search(rf"(?m)^{target}:", (ROOT / "Makefile").read_text())


def test_the_notebook_example_runs() -> None:
    lines = README.split("## In a notebook")[1].split("##")[0].splitlines()
    code = "\n".join(line[4:] for line in lines if line.startswith("    "))
    names: dict[str, Any] = {}
    exec(code, names)  # our own README
    assert names["estimate"].frequencies.shape == (100,)


def test_all_links_and_paths_exist() -> None:
    for text in (README, (ROOT / "CONTRIBUTING.md").read_text()):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            assert (ROOT / target).exists(), target
        for path in re.findall(
            r"`((?:mechanisms|surveys|producers|agents|estimators|ldpstream|experiments|deploy|tests|docs)/[\w/.]*)`", text
        ):
            assert (ROOT / path).exists(), path


def test_the_demo_shows_what_the_readme_shows() -> None:
    shown = CliRunner().invoke(app, ["demo"], env={"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"})
    assert shown.exit_code == 0, shown.output
    rows = [line.strip() for line in BLOCKS if line.startswith(("│", "240,000", "screen ·", "privacy loss"))]
    assert len(rows) == 9
    lines = [line.strip() for line in shown.output.splitlines()]
    assert all(row in lines for row in rows)


def test_the_readmes_chances_are_those_of_the_demo_survey() -> None:
    survey = load_survey(ROOT / "surveys" / "samples" / "demo.toml")
    for attribute, mechanisms in zip(survey.attributes, survey.mechanisms, strict=True):
        for level, m in zip(attribute.levels, mechanisms, strict=True):
            row = next(line for line in README.splitlines() if line.startswith(f"| {attribute.name}, {level.name} |"))
            chances = re.findall(r"([\d.]+) %", row)
            assert chances == [f"{100 * chance:.1f}" for chance in (1 / m.k, m.guess(), m.guess(math.inf))] + ["100"]
            assert m.guess_any_values(survey.steps_a_year) == 1
    words = " ".join(text.lower() for text in (README, *(path.read_text() for path in (ROOT / "docs").glob("*.md"))))
    assert not any(claim in words for claim in ("never sees anybody", "nobody's own answer", "nobody but the device"))
