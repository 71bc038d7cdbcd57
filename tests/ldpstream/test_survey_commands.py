"""The commands `surveys` and `diff`: their output, and one line for each mistake."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ldpstream.surveys import load_survey

from .conftest import RunCommand

SURVEY = """
name = "{name}"
start = {start:%Y-%m-%dT%H:%M:%SZ}
step_seconds = 86400
window_steps = 8
lateness_steps = 1
collection = "smp"
{more}
[[attribute]]
name = "mode"
values = [{values}]
{of_values}
[[attribute.level]]
name = "standard"
mechanism = "GRR"
eps = 1.0
every_steps = 8
lifetime_reports = 45
"""
NOW = datetime.now(UTC)
Ran = tuple[int, str, list[str], Any]
Command = Callable[..., Ran]


def write(path: Path, name: str, days: int, more: str = "", values: str = '"car", "bike"', of_values: str = "") -> str:
    """Writes a survey that began this number of days ago, and returns its fingerprint."""
    start = NOW - timedelta(days=days, hours=1)
    path.write_text(SURVEY.format(name=name, start=start, more=more, values=values, of_values=of_values))
    return load_survey(path).fingerprint.hex()


@pytest.fixture
def command(tmp_path: Path, run_command: RunCommand) -> Command:
    """Runs a command line. Returns the exit status, the output, the lines of standard error, and the JSON document."""

    def ran(*arguments: str | Path) -> Ran:
        out = tmp_path / "out.json"
        done = run_command(*arguments, "--json", out)
        return *done, json.loads(out.read_text()) if out.exists() else None

    return ran


def test_surveys_lists_states_steps_and_owners(tmp_path: Path, command: Command) -> None:
    folder = tmp_path / "surveys"
    folder.mkdir()
    old = write(folder / "a.toml", "old", 9, 'ends = 20\nowner = "Team [red]A"')
    write(folder / "b.toml", "new", 2, f'replaces = "{old}"\ntitle = "New"')
    write(folder / "c.toml", "short", 9, "ends = 4")
    write(folder / "d.toml", "next", -3)
    (folder / ".hidden.toml").write_text("no survey")
    status, out, err, document = command("surveys", folder)
    assert (status, err, document["broken"]) == (0, [], {})
    rows = {row["name"]: row for row in document["surveys"]}
    told = {name: (row["state"], row["steps"], row["of_steps"]) for name, row in rows.items()}
    assert told == {
        "old": ("replaced", 10, 20),
        "new": ("open", 3, None),
        "short": ("ended", 4, 4),
        "next": ("not begun", 0, None),
    }
    assert (rows["old"]["fingerprint"], rows["old"]["replaced_by"], rows["new"]["title"]) == (old, "new", "New")
    survey = load_survey(folder / "a.toml")
    assert (
        rows["old"]["ends"] == f"{datetime.fromtimestamp((survey.start_ms + 20 * survey.step_ms) / 1000, UTC):%Y-%m-%d %H:%M}"
    )
    for word in ("old", "replaced", "10 of 20", "Team [red]A", old, "not begun", "ended"):
        assert word in out


def test_surveys_shows_the_good_files_and_one_line_for_each_broken_file(tmp_path: Path, command: Command) -> None:
    folder = tmp_path / "surveys"
    folder.mkdir()
    write(folder / "good.toml", "good", 1)
    (folder / "broken.toml").write_text("name = ")
    write(folder / "circle.toml", "circle", 1)
    own = load_survey(folder / "circle.toml").fingerprint.hex()
    write(folder / "circle.toml", "circle", 1, f'replaces = "{own}"')
    write(folder / "unknown.toml", "unknown", 1, f'replaces = "{"0" * 16}"')
    write(folder / "zwin.toml", "good", 1, "ends = 9")
    before = {path: path.read_text() for path in folder.iterdir()}
    status, out, err, document = command("surveys", folder)
    assert status == 2
    assert "good" in out
    words = {
        "broken.toml": "not TOML", "circle.toml": "replace each other: circle replaces circle",
        "unknown.toml": f"no survey with the fingerprint {'0' * 16}", "zwin.toml": "two different surveys are named good",
    }  # fmt: skip
    assert len(err) == len(words) == len(document["broken"])
    for (name, word), line in zip(words.items(), sorted(err), strict=True):
        assert line.startswith(f"ldpstream: {folder / name}: ")
        assert word in line
    assert len(document["surveys"]) == 4
    assert {path: path.read_text() for path in folder.iterdir()} == before


def test_surveys_names_a_file_whose_name_is_not_utf_8(tmp_path: Path, command: Command) -> None:
    folder = tmp_path / "surveys"
    folder.mkdir()
    (folder / os.fsdecode(b"\xff.toml")).write_text("name = ")
    status, _, err, document = command("surveys", folder)
    assert (status, len(err)) == (2, 1)
    assert err[0].startswith(f"ldpstream: {folder}/\ufffd.toml: not TOML")
    assert list(document["broken"]) == [f"{folder}/\ufffd.toml"]


def test_surveys_needs_a_folder_with_surveys(tmp_path: Path, command: Command) -> None:
    for path, word in ((tmp_path, "no survey found"), (tmp_path / "missing", "is not a folder")):
        status, _, err, document = command("surveys", path)
        assert (status, document) == (2, None)
        assert len(err) == 1
        assert str(path) in err[0]
        assert word in err[0]


def test_diff_shows_keys_budgets_and_histories(tmp_path: Path, command: Command) -> None:
    old, new = tmp_path / "old.toml", tmp_path / "new.toml"
    first = write(old, "old", 9, "ends = 16")
    second = write(new, "new", 9, f'replaces = "{first}"', '"car", "bicycle", "foot"', 'aliases = { bike = "bicycle" }')
    status, out, err, document = command("diff", old, new)
    assert (status, err) == (0, [])
    assert {one["key"]: one["fingerprint"] for one in document["differences"]} == {
        "name": True, "ends": True, "attribute.mode.values": True, "replaces": False, "attribute.mode.aliases": False,
    }  # fmt: skip
    assert document["same_devices"] is False
    assert f"the fingerprint changes from {first} to {second}" in out
    # 16 steps have two reports of 1 nat, and a lifetime 45
    assert "at most 2 nats in the earlier survey and 45 nats in the new survey, together 47 nats" in out
    assert "from all reports in both surveys: mode at most" in out
    assert load_survey(new).mechanisms[0][0].guess(47) < document["guess_both"]["mode"] < 0.9999
    assert document["histories"] == {"mode": "joined: bike is now bicycle; added: foot; earlier shares unknown"}
    assert "without bike" in out
    assert "with bicycle, foot" in out


def test_diff_of_many_values(tmp_path: Path, command: Command) -> None:
    old, new = tmp_path / "old.toml", tmp_path / "new.toml"
    values = [f'"v{i}"' for i in range(20_000)]
    write(old, "old", 9, values=", ".join(values))
    write(new, "new", 9, values=", ".join([*values, '"more"']))
    status, out, *_ = command("diff", old, new)
    assert (status, "with more" in out) == (0, True)


def test_diff_says_what_stays_and_what_is_missing(tmp_path: Path, command: Command) -> None:
    old, new = tmp_path / "old.toml", tmp_path / "new.toml"
    first = write(old, "same", 9)
    write(new, "same", 9, 'title = "T"')
    _, out, _, document = command("diff", old, new)
    assert document["same_devices"] is True
    assert f"the fingerprint stays {first}" in out
    assert document["histories"] == {"mode": "goes on"}
    write(new, "same", 9, "ends = 20")
    _, out, _, document = command("diff", old, new)
    assert document["histories"] == {"mode": f'joined; it needs replaces = "{first}"'}
    assert "Both surveys are named same: give the new survey a name of its own" in out
    write(new, "new", 9, f'replaces = "{first}"', '"car", "foot"')
    assert command("diff", old, new)[3]["histories"] == {"mode": "not joined: removed: bike"}
    status, _, err, _ = command("diff", old, tmp_path / "missing.toml")
    assert status == 2
    assert len(err) == 1
