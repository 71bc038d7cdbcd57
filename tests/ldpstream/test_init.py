"""`ldpstream init`: questions with several answers, bins of numbers, and a survey from the sample to the estimates."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ldpstream.commands.cli import app
from ldpstream.planning.advise import AdviceError
from ldpstream.planning.columns import Domain, Dropped, propose, read_columns
from ldpstream.planning.forecast import INTERVAL
from ldpstream.surveys import load_survey

AGES = np.random.default_rng(20240601).normal(20, 8, 600).clip(-10, 40)


def table(folder: Path, cells: list[str], name: str = "apps") -> Path:
    path = folder / "people.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([name, "mode"])
        writer.writerows([cell, ("car", "bus")[i % 2]] for i, cell in enumerate(cells))
    return path


COMMON = ["chat;mail", "mail; maps ;chat", ";", "maps"] * 50


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (COMMON, {"values": ["chat", "mail", "maps"], "choices": 3}),
        ([*COMMON, *["8x7secret;chat"] * 9], {"values": ["chat", "mail", "maps", "other"], "unlisted": "other", "choices": 3}),
        ([*COMMON[:180], *["a;b;c;d"] * 9], {"values": ["chat", "mail", "maps", "other"], "unlisted": "other", "choices": 3}),
        (["chat", "mail"] * 50 + ["chat;mail"] * 9, {"values": ["chat", "mail", "other"], "unlisted": "other"}),
        (["a;", "a"] * 50, None),
        ([";".join(f"v{(i + j) % 40}" for j in range(9)) for i in range(400)], None),
        (["8x7a;8x7b"] * 9 + [";"] * 50, None),
    ],
    ids=["sets", "a rare value", "rare large sets", "few sets", "one value", "many values", "few people"],
)  # fmt: skip
def test_a_column_with_several_answers_is_recognised(tmp_path: Path, cells: list[str], expected: object) -> None:
    _, (column, _) = read_columns(table(tmp_path, cells))
    found = propose(column, least=10)
    if expected is None:
        assert isinstance(found, Dropped)
        assert "8x7" not in str(found)
    else:
        assert isinstance(found, Domain)
        assert found.keys == expected
        assert "8x7secret" not in str(found)


def test_init_proposes_a_memoized_level_for_several_answers(tmp_path: Path) -> None:
    data, out = table(tmp_path, COMMON), tmp_path / "s.toml"
    done = CliRunner().invoke(app, ["init", "--from", str(data), "-o", str(out), "--eps-inf", "16"], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    apps = load_survey(out).attributes[0]
    assert (apps.values, apps.choices) == (("chat", "mail", "maps"), 3)
    assert [(level.mechanism, level.eps_inf, level.eps_1) for level in apps.levels] == [("L-PS-GRR", 16, 8)]


def test_init_proposes_one_time_levels_for_values_that_change(tmp_path: Path) -> None:
    data, out = tmp_path / "people.csv", tmp_path / "s.toml"
    rows = (f"{age:.0f},{('car', 'bus')[i % 2]},{('a;b', 'a', ';')[i % 3]}\n" for i, age in enumerate(AGES))
    data.write_text("age,mode,apps\n" + "".join(rows))
    done = CliRunner().invoke(app, ["init", "--from", str(data), "-o", str(out), "--eps", "2"], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "All levels are one-time" in done.output
    survey = load_survey(out)
    assert [level.mechanism for a in survey.attributes for level in a.levels] == ["SW", "GRR", "PS-GRR"]
    assert all(
        (level.eps, level.every_steps, level.lifetime_reports) == (2.0, 8, 8) for a in survey.attributes for level in a.levels
    )
    assert survey.attributes[0].bins == tuple(range(3, 36))  # at most 50 bins
    assert "# integers in 32 bins;" in out.read_text()
    demo = ["demo", "--survey", str(out), "--data", str(data), "--steps", "24", "--json", str(tmp_path / "found.json")]
    for command in (["check", str(out)], ["check", str(out), "--people", "600"], demo):
        ran = CliRunner().invoke(app, command)
        assert ran.exit_code == 0, ran.output
    found = json.loads((tmp_path / "found.json").read_text())["estimates"]
    windows = [e for e in found if e["attribute"] == "age" and e["span"] == "window" and e["step"] == 23]
    mean = windows[-1]["numbers"]["mean"]
    error = (mean["high"] - mean["low"]) / 2 / INTERVAL
    assert abs(mean["value"] - AGES.mean()) < 5 * error < 20
    other = ["init", "--from", str(data), "-o", str(tmp_path / "t.toml")]
    both = CliRunner().invoke(app, [*other, "--eps", "2", "--eps-inf", "2"])
    assert isinstance(both.exception, AdviceError)
    assert "not both" in str(both.exception)
    assert not (tmp_path / "t.toml").exists()
