"""ALLOMFREE's tables: computed numbers equal the printed ones, and the error of drawn numbers has its mean."""

import numpy as np
import pytest

from lab.datasets import generated
from lab.papers import allomfree, allomfree_surveys
from lab.papers.allomfree_printed import TABLE_1
from lab.papers.allomfree_surveys import BEST, METHODS, averaged_mse, mechanisms_of
from lab.papers.reproduction import Outcome, Plan, Target

TARGETS = {target.name: target for target in allomfree.TARGETS}
TINY = generated("tiny", 4000, (2, 5, 30), seed=1)


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


@pytest.mark.parametrize("method", [*METHODS, BEST])
def test_the_mean_error_of_the_matrix_inversion_is_known(method: str) -> None:
    """Without clipping, the exact variances and the sampling of people determine the mean of MSE_avg.

    Each person reports attribute j with probability 1/d, and n_j people report attribute j. The sample's frequencies have the
    variance f(1-f)(1/n_j - 1/n). The variance for people drawn at random has the term f(1-f)/n_j, but lacks the finite
    population's term -f(1-f)/n. The mean of 60 runs must be within five estimated standard deviations of the computed mean: one
    false alarm in 10^5 tests. The control is a mechanism with 1.5 times the error.
    """
    rng = np.random.default_rng(20_240_601)
    chosen = mechanisms_of(method, TINY.sizes, 2.0, 1.0)
    n, d = TINY.values.shape
    runs = [averaged_mse(TINY, chosen, "none", rng) for _ in range(60)]
    expected = 0.0
    for column, m in zip(TINY.values.T, chosen, strict=True):
        f = np.bincount(column, minlength=m.k) / n
        expected += float(np.mean([m.variance(float(x), n // d) for x in f] - f * (1 - f) / n)) / d
    chance = float(np.std(runs, ddof=1) / np.sqrt(len(runs)))
    assert abs(np.mean(runs) - expected) < 5 * chance
    assert abs(np.mean(runs) - 1.5 * expected) > 5 * chance
