"""The accuracy and coverage experiments on small grids are reproducible and complete, and their tables show their rows."""

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from experiments.bench.accuracy import SHAPES, Result, Row, Setting, build, errors, measure, population, settings, tabulate
from experiments.bench.accuracy_tables import as_csv, columns, markdown, ratios, summary, table, wins
from experiments.bench.coverage import NOMINAL, SHARES, WINDOW, coverage_of, coverage_table, measure_one, slack
from experiments.bench.estimators import measure as bench_estimators
from experiments.bench.estimators import timing_table
from mechanisms import NAMES

SMALL = [Setting(mechanism=name, k=10, eps=1.0, shape="poisson", n=2000) for name in ("GRR", "L-OLH")]


def test_the_grid_is_complete() -> None:
    grid = settings()
    assert len(grid) == len(set(grid)) == 14 * 4 * 4 * 5 * 2
    assert {s.mechanism for s in grid} == set(NAMES)
    assert set(settings(quick=True)) <= set(grid)


@pytest.mark.parametrize("shape", SHAPES)
def test_populations_fill_their_domain(shape: str) -> None:
    values = population(shape, 20, 5000, np.random.default_rng(1))
    assert (values.min(), values.max()) == (0, 19)
    assert population(shape, 20, 1, np.random.default_rng(1)).tolist() == [0]  # a single sample is in the first bin


@pytest.mark.parametrize("name", NAMES)
def test_every_mechanism_counts_every_report(name: str) -> None:
    m = build(Setting(mechanism=name, k=100, eps=1.0, shape="uniform", n=500))
    assert tabulate(m, np.arange(500) % 100, np.random.default_rng(1)).n == 500


def test_rows_are_reproducible_and_name_the_best() -> None:
    result = measure(SMALL, 2, 7, False, lambda said: None, processes=1)
    assert result.rows == [errors(setting, 2, 7) for setting in SMALL]
    assert result.rows != [errors(setting, 2, 8) for setting in SMALL]
    for row in result.rows:
        assert row.mse[row.best] == min(row.mse.values())
    assert "mle exact" in result.rows[1].mse
    assert "mle exact" not in result.rows[0].mse
    assert sum(wins(result).values()) == len(SMALL)
    assert ratios(result) == {}
    assert len(summary(result)) == 2
    assert table(result).row_count == 2
    lines = markdown(result).splitlines()
    assert len(lines) == 4
    assert all(line.count("|") == 5 + len(columns(result)) for line in lines)
    assert all(line.count("**1.00**") == 1 for line in lines[2:])
    rows = list(csv.DictReader(io.StringIO(as_csv(result))))
    assert float(rows[0]["mi"]) == pytest.approx(result.rows[0].mse["mi"], rel=1e-3)


def test_the_other_library_is_compared_where_it_ran() -> None:
    small, large = (Setting(mechanism="GRR", k=10, eps=1.0, shape="uniform", n=n) for n in (100, 10_000))
    rows = [
        Row(setting=small, mse={"mi": 4.0, "multi-freq-ldpy: MI": 8.0}, best="mi"),
        Row(setting=large, mse={"mi": 1.0}, best="mi"),
    ]
    ((*_, means),) = summary(Result(repeats=1, seed=1, rows=rows))
    # the library's error is twice our error where both exist
    assert means == pytest.approx({"mi": 2.0, "multi-freq-ldpy: MI": 4.0})


@pytest.mark.parametrize("steps", [1, 4])
def test_local_hashing_intervals_hold_the_truth_95_percent(steps: int) -> None:
    """The ten intervals of a run depend on each other, but the 200 runs are independent.

    With probability 6e-5, a share of intervals is more than 4 standard deviations from its mean.
    """
    for row in measure_one("L-OLH", steps, 200, seed=3):
        assert abs(row.covered - NOMINAL) < slack(200)
        assert 0.9 < row.spread < 1.1


def test_narrow_intervals_are_caught() -> None:
    noise = np.random.default_rng(4).normal(0, 0.01, (200, SHARES.size))
    right, narrow = (coverage_of("none", "none", 1, SHARES + noise, np.full(noise.shape, error)) for error in (0.01, 0.0066))
    assert abs(right.covered - NOMINAL) < slack(200)
    assert abs(narrow.covered - NOMINAL) > slack(200)


def test_the_timings_are_complete() -> None:
    rows = bench_estimators(True, False, lambda said: None)
    assert len(rows) == len({row.task for row in rows}) == 20
    assert all(row.value > 0 for row in rows)
    assert timing_table(rows).row_count == len(rows)
    assert coverage_table([c for steps in (1, WINDOW) for c in measure_one("GRR", steps, 2, 1)]).row_count == 4


def test_other_libraries_are_timed_in_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def accuracy(tasks: list[dict[str, Any]], seen: Callable[[str], None]) -> Iterator[dict[str, Any]]:
        yield {"seconds": {"IBU": 8.0}}

    def counting(task: dict[str, Any], seen: Callable[[str], None]) -> Iterator[dict[str, Any]]:
        assert set(task["mechanisms"]) == {"GRR", "OUE", "OLH", "L-OLH"}
        about = {"library": "pure-ldp", "mechanism": "OUE"}
        yield about | {"what": "report", "per_s": 3e6, "n": 7}
        yield about | {"what": "tabulate", "per_s": 2e6, "n": 7}
        yield {"library": "pure-ldp", "mechanism": "OLH", "error": "TypeError: no"}

    monkeypatch.setattr("experiments.bench.estimators.accuracy_of_peers", accuracy)
    monkeypatch.setattr("experiments.bench.estimators.time_peers", counting)
    found = {row.task: (row.value, row.unit) for row in bench_estimators(True, True, lambda said: None)[-2:]}
    assert found == {
        "multi-freq-ldpy 0.2.5: IBU, OUE, k=100, 10 000 iterations": (8.0, "s"),
        "pure-ldp 1.2.0: counting, OUE, k=100": (2.0, "M reports/s"),
    }
