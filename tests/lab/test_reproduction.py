"""Reproductions: how jobs run, which results are kept, and how published values are compared."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.panels import Curve, Panel
from lab.papers.reproduction import Job, Outcome, Plan, ReproductionError, Row, Target, reproduce

from .jobs import fail, square


def squares(log: Path, numbers: Sequence[int]) -> Target:
    def finish(plan: Plan, results: Sequence[Any]) -> Outcome:
        rows = [Row(label=f"{x}²", ours=y, published=x * x) for x, y in zip(numbers, results, strict=True)]
        return Outcome(rows, [Panel("squares", "x", "x²", [Curve("ours", numbers, results)])], ["That was all."])

    def jobs(plan: Plan) -> list[Job]:
        return [Job(square, {"x": x, "seed": plan.seed, "log": str(log)}) for x in numbers]

    return Target("squares", "Squares", jobs, finish)


def test_a_job_with_a_kept_result_does_not_run_again(tmp_path: Path) -> None:
    log, told = tmp_path / "log", []
    plan = Plan(seed=0)
    reproduce([squares(log, (1, 2))], plan, tmp_path / "kept", lambda *seen: told.append(seen), processes=2)
    (more,) = reproduce([squares(log, (1, 2, 3))], plan, tmp_path / "kept", processes=1)
    assert [row.ours for row in more.outcome.rows] == [1, 4, 9]
    assert sorted(log.read_text().split()) == ["1", "2", "3"]
    assert told[-1] == (2, 2, "squares")
    (other,) = reproduce([squares(log, (1,))], Plan(seed=5), tmp_path / "kept", processes=1)  # the control: another seed runs
    assert other.outcome.rows[0].ours == 6


def test_a_failed_job_is_named_and_other_results_are_kept(tmp_path: Path) -> None:
    bad = Target("bad", "Bad", lambda _: [Job(fail, {"x": 7})], lambda *_: Outcome([]))
    with pytest.raises(ReproductionError, match=r"^bad: fail\(x=7\): no 7$"):
        reproduce([squares(tmp_path / "log", (2,)), bad], Plan(seed=0), tmp_path / "kept", processes=1)
    reproduce([squares(tmp_path / "log", (2,))], Plan(seed=0), tmp_path / "kept", processes=1)
    assert (tmp_path / "log").read_text().split() == ["2"]


@pytest.mark.parametrize(
    ("row", "within"),
    [
        (Row(label="", ours=1.0), None),
        (Row(label="", ours=1.24, published=1.2, digit=0.05), True),
        (Row(label="", ours=1.26, published=1.2, digit=0.05), False),
        (Row(label="", ours=1.5, published=1.2, spread=0.11), True),
        (Row(label="", ours=1.5, published=1.2, spread=0.09), False),
        (Row(label="", ours=math.nan, published=1.2, spread=9.0), False),
    ],
)
def test_a_published_value_agrees_within_chance_and_its_digits(row: Row, within: bool | None) -> None:
    assert row.within is within
