"""Comparisons of advice with fixed choices are complete and reproducible, and the command prints their tables."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lab import datasets
from lab.bench import advice as advice_gain
from lab.bench.__main__ import app
from lab.bench.advice import PAPERS, Case, Compared, Setting, best_fixed, cases, compared, gain, gains, settings
from lab.bench.advice_tables import gain_tables
from ldpstream.mechanisms import LONGITUDINAL, ONE_TIME

SMALL = Case(name="small", counts=[500, 200, 100], real=False)


def row(case: str, mse: dict[str, float]) -> Compared:
    return Compared(case=case, kind="one-time", eps=1.0, k=3, n=10, advice="A eb", mse=mse)


ROWS = [
    row("x", {"A eb": 1.0, "B ibu": 4.0, "C mle": 0.5}),
    row("y", {"A eb": 1.0, "B ibu": 1.0, "C mle": 9.0}),
    row("z", {"A eb": 1.0, "B ibu": 0.5, "C mle": 9.0}),
]


def test_a_gain_is_a_mean_of_ratios_and_names_the_worst() -> None:
    found = gain(ROWS, "B ibu")
    assert found.gain == pytest.approx(2 ** (1 / 3))
    assert found.better == pytest.approx(1 / 3)
    assert (found.least, found.where) == (0.5, "z, 1")
    assert best_fixed(ROWS) == "A eb"
    own = gain(ROWS, "", lambda r: min(r.mse, key=lambda name: r.mse[name]))
    assert own.gain == pytest.approx(0.25 ** (1 / 3))


def test_cases_are_the_attributes_of_the_data_sets() -> None:
    found = cases(None)
    assert {len(case.counts) for case in found} >= {*datasets.ADULT_SIZES, 128, 256, 10, 1234}
    assert max(sum(case.counts) for case in found) == advice_gain.MOST_PEOPLE
    assert not any(case.real or min(case.counts) == max(case.counts) for case in found)
    assert len(settings(found)) == len(found) * 2 * 4


@pytest.mark.parametrize("kind", advice_gain.KINDS)
def test_a_setting_is_compared_with_every_combination(kind: str) -> None:
    found = compared(Setting(case=SMALL, kind=kind, eps=1.0), 2, 4)
    names = ONE_TIME if kind == "one-time" else LONGITUDINAL
    assert len(found.mse) == len(names) * 11
    assert set(PAPERS[kind]) < set(found.mse)
    assert found.advice in ("GRR eb", "L-GRR eb")
    assert (found.n, found.case) == (800, "small (generated)")
    shown = gains([found], kind)
    assert len(shown) == len(PAPERS[kind]) + 2
    assert shown[-1].gain <= 1
    assert found == compared(Setting(case=SMALL, kind=kind, eps=1.0), 2, 4)


def test_the_command_shows_the_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = [
        Compared(
            case="one", kind=kind, eps=1.0, k=3, n=10, advice=PAPERS[kind][0],
            mse={name: 1.0 + j for j, name in enumerate(PAPERS[kind])},
        )
        for kind in advice_gain.KINDS
    ]  # fmt: skip
    monkeypatch.setattr(advice_gain, "compare", lambda *_: made)
    out = tmp_path / "gain.json"
    done = CliRunner().invoke(app, ["advice", "--dataset", "nursery", "--json", str(out)], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "one-time: 1 settings" in done.output
    assert [r["kind"] for r in json.loads(out.read_text())] == list(advice_gain.KINDS)
    assert [t.row_count for t in gain_tables(made)] == [len(PAPERS[kind]) + 2 for kind in advice_gain.KINDS]
    assert CliRunner().invoke(app, ["advice", "--dataset", "none"]).exit_code == 2
