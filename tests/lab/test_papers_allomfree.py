"""ALLOMFREE's tables: computed numbers equal the printed ones, and the error of drawn numbers has its mean."""

import pytest

from lab.papers import allomfree, allomfree_surveys
from lab.papers.allomfree_printed import TABLE_1
from lab.papers.reproduction import Outcome, Plan, Target

TARGETS = {target.name: target for target in allomfree.TARGETS}


def outcome(target: Target, plan: Plan) -> Outcome:
    """Runs a target's jobs in this process."""
    return target.finish(plan, [job.function(**job.arguments) for job in target.plan(plan)])


@pytest.mark.parametrize(("name", "rows"), [("allomfree-table-1", 168), ("allomfree-table-2", 20)])
def test_every_computed_number_equals_the_printed_one(name: str, rows: int) -> None:
    found = outcome(TARGETS[name], Plan()).rows
    assert [row.within for row in found] == [True] * rows
    assert all(row.gain is not None and row.gain >= 1 - 0.011 for row in found)  # L-OLH's variance may be 1 % above L-OSUE's
    assert max(row.gain or 0 for row in found) > 1e3 or name == "allomfree-table-2"
    assert all(row.best is None for row in outcome(TARGETS[name], Plan(best=False)).rows)


def test_a_wrong_calibration_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control is the exact calibration: with this calibration, L-GRR agrees only for k = 2."""
    monkeypatch.setitem(allomfree_surveys.PAPER, "L-GRR", "exact")
    found = outcome(TARGETS["allomfree-table-1"], Plan()).rows
    wrong = [row.label for row in found if not row.within]
    assert len(wrong) == 2 * len(TABLE_1)
    assert all("k = 32" in label or "k = 1024" in label for label in wrong)
