"""Checks that the README's commands and files exist and that its example runs."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ldpstream.commands.cli import app
from ldpstream.surveys import load_survey

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = [line[4:] for line in README.splitlines() if line.startswith("    ")]
MENTIONED = [*re.findall(r"`(ldpstream [^`]+)`", README), *BLOCKS]
COMMANDS = sorted({re.sub(r"\s{2,}.*", "", text) for text in MENTIONED if text.startswith("ldpstream ")})
MODES = ["car", "bus", "bicycle", "walk"]
FOLDERS = "|".join(path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != ".")


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


@pytest.mark.parametrize("target", sorted(set(re.findall(r"make ([\w-]+)", README + (ROOT / "CONTRIBUTING.md").read_text()))))
def test_every_make_target_exists(target: str) -> None:
    assert re.search(rf"(?m)^(?:[\w-]+ )*{target}(?: [\w-]+)*:", (ROOT / "Makefile").read_text())


def test_all_paths_exist() -> None:
    for text in (README, (ROOT / "CONTRIBUTING.md").read_text()):
        for path in re.findall(rf"`((?:{FOLDERS})/[\w/.]*)`", text):
            assert (ROOT / path).exists(), path


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) < 160


def test_the_picture_of_the_page_is_small() -> None:
    png = (ROOT / "docs" / "pictures" / "page.png").read_bytes()
    assert int.from_bytes(png[16:20], "big") == 1200  # the width, in a PNG file's header
    assert len(png) < 150_000


def test_the_demo_shows_what_the_readme_shows() -> None:
    shown = CliRunner().invoke(app, ["demo"], env={"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"})
    assert shown.exit_code == 0, shown.output
    rows = [line.strip() for line in BLOCKS if line.startswith(("│", "133,318", "mode ·"))]
    assert len(rows) == 6
    lines = [line.strip() for line in shown.output.splitlines()]
    assert all(row in lines for row in rows)


def test_the_readmes_survey_runs_with_simulated_and_with_own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (toml,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    Path("commute.toml").write_text(toml)
    (columns,) = re.findall(r"has the columns `([\w,]+)`", README)
    people = [f"p{person},{step},{person % 50},{MODES[person % 4]}" for step in range(16) for person in range(300)]
    Path("answers.csv").write_text("\n".join([columns, *people, ""]))
    others = ("now.toml", " try ", " serve ")  # other tests run them
    commands = [command for command in COMMANDS if "commute.toml" in command and not any(word in command for word in others)]
    assert [command.split()[1] for command in commands] == ["check", "check", "demo", "demo"]
    for command in commands:
        fast = command.replace("--users 50000", "--users 300").split()[1:]
        shown = CliRunner().invoke(app, fast, env={"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"})
        assert shown.exit_code == 0, shown.output
        assert ("reports counted in 16 steps; rejected: 0." in shown.output) == (fast[0] == "demo")


def test_a_table_of_people_becomes_a_survey_and_a_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    people = [f"{person},{person % 50},{MODES[person % 4]}" for person in range(400)]
    Path("people.csv").write_text("\n".join(["id,distance_km,mode", *people, ""]))
    for name in ("init", "demo"):
        (command,) = [command for command in COMMANDS if command.startswith(f"ldpstream {name} ") and "people.csv" in command]
        shown = CliRunner().invoke(app, command.split()[1:], env={"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"})
        assert shown.exit_code == 0, shown.output
    assert load_survey("survey.toml").attributes[1].values == tuple(sorted(MODES))
    assert "people.csv: 400 people, one in each row, with the same values at all 12 steps." in shown.output
    assert "4,800 reports counted in 12 steps; rejected: 0." in shown.output
