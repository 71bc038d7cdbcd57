"""Comparisons of advice with fixed choices are complete and reproducible, and the commands print their tables."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lab import datasets
from lab.bench import advice as advice_gain
from lab.bench.__main__ import app
from lab.bench.advice import PAPERS, Case, Compared, Setting, best_fixed, cases, compared, gain, gains, settings
from lab.bench.advice_tables import gain_tables
from ldpstream import cli
from ldpstream.advice.question import AdviceError
from ldpstream.mechanisms import LONGITUDINAL, ONE_TIME
from ldpstream.outputs import OutputError
from ldpstream.surveys.errors import UserError

ROOT = Path(__file__).parents[2]
SMALL = Case(name="small", counts=[500, 200, 100], real=False)


def row(case: str, mse: dict[str, float], better: list[str]) -> Compared:
    return Compared(
        case=case, kind="one-time", eps=1.0, k=3, n=10, advice={"sample": "A mi"}, mse=mse, better={"sample": better}
    )


ROWS = [
    row("x", {"A mi": 1.0, "B ibu": 4.0, "C mle": 0.5}, ["C mle"]),
    row("y", {"A mi": 1.0, "B ibu": 1.0, "C mle": 9.0}, []),
    row("z", {"A mi": 1.0, "B ibu": 0.5, "C mle": 9.0}, []),  # better by chance
    row("w", {"A mi": 1.0, "B ibu": 0.995, "C mle": 9.0}, ["B ibu"]),  # significantly better, but by less than 1 %
]


def test_a_gain_counts_significant_losses_and_names_the_worst() -> None:
    found = gain(ROWS, "sample", "B ibu")
    assert (found.kept, found.near) == (1.0, 0.75)
    assert found.gain == pytest.approx((4 * 0.5 * 0.995) ** 0.25)
    assert (found.least, found.where) == (0.5, "z, 1")
    worst = gain(ROWS, "sample", "C mle")
    assert (worst.kept, worst.near, worst.least) == (0.75, 0.75, 0.5)
    assert best_fixed(ROWS) == "A mi"
    own = gain(ROWS, "sample", "", lambda r: min(r.mse, key=lambda name: r.mse[name]))
    assert own.gain == pytest.approx((0.5 * 1 * 0.5 * 0.995) ** 0.25)


def test_cases_are_the_attributes_of_the_data_sets() -> None:
    found = cases(None)
    assert len(found) == 9 + 9 + 1 + 1 + 1 + 1
    assert {len(case.counts) for case in found} >= {*datasets.ADULT_SIZES, 128, 256, 10, 1234}
    assert max(sum(case.counts) for case in found) == advice_gain.MOST_PEOPLE
    assert not any(case.real for case in found)
    assert len(settings(found)) == 22 * 2 * 4


@pytest.mark.parametrize("kind", advice_gain.KINDS)
def test_a_setting_is_compared_with_every_combination(kind: str) -> None:
    found = compared(Setting(case=SMALL, kind=kind, eps=1.0), 10, 4)
    names = ONE_TIME if kind == "one-time" else LONGITUDINAL
    assert len(found.mse) == len(names) * 11
    assert set(PAPERS[kind]) < set(found.mse)
    assert set(found.advice.values()) <= set(found.mse)
    assert found.n == 760  # 95 % of 800 people
    assert found.case == "small (generated)"
    for by, advised in found.advice.items():
        assert all(found.mse[name] < found.mse[advised] for name in found.better[by])
    assert len(gains([found], kind, "sample")) == len(PAPERS[kind]) + 2
    best = gains([found], kind, "sample")[-1]
    assert best.gain <= 1
    assert found == compared(Setting(case=SMALL, kind=kind, eps=1.0), 10, 4)


def test_the_command_shows_the_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = [
        Compared(
            case=f"{i}", kind=kind, eps=1.0, k=3, n=10, advice={"sample": PAPERS[kind][0], "shapes": PAPERS[kind][1]},
            mse={name: 1.0 + j + i for j, name in enumerate(PAPERS[kind])}, better={"sample": [], "shapes": [PAPERS[kind][0]]},
        )
        for i, kind in enumerate(advice_gain.KINDS)
    ]  # fmt: skip
    monkeypatch.setattr(advice_gain, "compare", lambda *_: made)
    out = tmp_path / "gain.json"
    done = CliRunner().invoke(app, ["advice", "--dataset", "nursery", "--json", str(out)], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "with a sample of 5 %: 1 settings" in done.output
    assert [r["kind"] for r in json.loads(out.read_text())] == list(advice_gain.KINDS)
    assert [t.row_count for t in gain_tables(made)] == [len(PAPERS[kind]) + 2 for kind in advice_gain.KINDS for _ in range(2)]
    assert CliRunner().invoke(app, ["advice", "--dataset", "none"]).exit_code == 2


def test_the_command_advises_on_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ldpstream.processes.cores", lambda: 1)
    sample, out, picture = tmp_path / "s.csv", tmp_path / "a.json", tmp_path / "a.svg"
    sample.write_text("who,answer\n" + "".join(f"{i},{'often' if i % 3 else 'never [b]'}\n" for i in range(60)))
    asked = ["advise", "--n", "900", "--eps-inf", "2", "--repeats", "10", "--sample", str(sample), "--column", "answer"]
    done = CliRunner().invoke(
        cli.app, [*asked, "--name", "how", "--json", str(out), "--picture", str(picture)], env={"COLUMNS": "160"}
    )
    assert done.exit_code == 0, done.output
    document = json.loads(out.read_text())
    assert document["survey"] in done.output
    assert 'values = ["never [b]", "often"]' in document["survey"]
    assert 'name = "how"' in document["survey"]
    assert document["question"]["k"] == 2
    assert document["sample"] == 60
    assert "<svg" in picture.read_text()
    again = CliRunner().invoke(cli.app, [*asked, "--k", "3", "--json", str(out)])
    assert "size = 3" in again.output  # the sample lacks some labels
    assert "on a line" in str(CliRunner().invoke(cli.app, [*asked, "--metric", "emd"]).exception)


@pytest.mark.parametrize("wrong", [
    ["--eps", "1"], ["--k", "5"], ["--k", "5", "--eps", "1", "--eps-inf", "2"], ["--k", "1", "--eps", "1"],
    ["--k", "5", "--eps", "1", "--metric", "best"], ["--k", "5", "--eps", "1", "--column", "x"],
    ["--k", "5", "--eps", "1", "--sample", "nowhere"], ["--k", "5", "--eps", "1", "--repeats", "1"],
    ["--k", "5", "--eps", "1", "--name", "no name"],
])  # fmt: skip
def test_bad_options_are_refused(wrong: list[str]) -> None:
    done = CliRunner().invoke(cli.app, ["advise", "--n", "100", *wrong])
    assert isinstance(done.exception, AdviceError)
    assert isinstance(done.exception, UserError)
    assert "\n" not in str(done.exception)


@pytest.mark.parametrize("output", [
    ["--json", ""], ["--json", "no/where.json"], ["--picture", ""], ["--picture", "no/where.png"], ["--picture", "x.xyz"],
    ["--picture", "."],
])  # fmt: skip
def test_an_unwritable_file_is_refused_before_the_work(output: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ldpstream.advice.advise.advise", lambda *_, **__: pytest.fail("worked"))
    done = CliRunner().invoke(cli.app, ["advise", "--n", "100", "--k", "5", "--eps", "1", *output])
    assert isinstance(done.exception, OutputError)
    assert output[0] in str(done.exception)


def test_a_bad_option_prints_one_line_and_exits_with_2() -> None:
    command = [sys.executable, "-m", "ldpstream", "advise", "--n", "100", "--eps", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("ldpstream: give --k")
