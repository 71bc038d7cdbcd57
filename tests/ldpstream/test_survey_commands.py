"""The command `diff`: its output, and one line for each mistake."""

import json
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
