"""The comparison of memoized mechanisms with the spaced level on values that change often."""

import numpy as np
import pytest
from rich.console import Console

from lab.bench.stream_memos import QUICK, Setting, evolving, measure_memos, memoized, spaced_reports
from lab.bench.stream_tables import memo_table
from ldpstream.mechanisms import LONGITUDINAL, Longitudinal, mechanism

SMALL = Setting(2000, 10, 24, 0.25, 6, (2.0,))


@pytest.mark.parametrize("name", LONGITUDINAL)
def test_a_memo_is_kept_while_its_value_is_unchanged(name: str) -> None:
    """For unchanged values, the histograms of two steps differ only by the noise of the second round.

    Both histograms have the same noise from the memos.

    The mean of 200 squared errors has a relative standard deviation of about 0.1: a difference of 0.45 has a probability below
    1e-4.
    Control: without memos the variance would be `variance() / 10`, less than half.
    """
    m = mechanism(name, k=10, eps_inf=2.0, eps_1=1.0)
    assert isinstance(m, Longitudinal)
    rng, values = np.random.default_rng(2), np.tile(np.arange(2000) % 10, (10, 1))
    errors = np.array([memoized(m, values, rng).mean(axis=0) - 0.1 for _ in range(20)])
    stated = m.variance(0.1, 2000, 10) - 0.1 * 0.9 / 2000  # the values are fixed
    assert np.mean(errors**2) == pytest.approx(stated, rel=0.45)
    assert m.variance(0.1, 2000) / 10 < 0.5 * stated


@pytest.mark.parametrize("name", ["OUE", "OLH"])
def test_the_spaced_level_is_unbiased_with_its_variances(name: str) -> None:
    """The mean of 240 squared scores is 1 ± 0.1, so a difference of 0.5 is five standard deviations."""
    values = evolving(SMALL, np.random.default_rng(3))
    truth = np.array([np.bincount(now, minlength=10) for now in values]) / 2000
    m = mechanism(name, k=10, eps=2.0)
    shares, reports = spaced_reports(m, values, 6, np.random.default_rng(4))
    assert reports[:6].sum() == 2000
    stated = np.array([[m.variance(f, n) for f in row] for row, n in zip(truth, reports.tolist(), strict=True)])
    assert ((shares - truth) ** 2 / stated).mean() == pytest.approx(1, abs=0.5)


def test_rows_state_the_loss_of_all_steps() -> None:
    rows = measure_memos(QUICK, 1, 5, lambda said: None)
    for row in rows:
        if row.mechanism in LONGITUDINAL:
            assert row.eps_1 == pytest.approx(1.0)
            assert row.mse_filtered is None
            assert row.eps_sequence > row.eps_inf
        else:
            assert (row.eps_1, row.eps_sequence, row.exact) == (2.0, 6.0, True)  # a device makes 3 reports in 12 steps
            assert row.mse_filtered is not None
            assert row.mse_filtered < row.mse_step
        assert 1 / QUICK.k < row.guess_once < row.guess_unchanged <= row.guess_any + 1e-9
    console = Console(width=200)
    with console.capture() as captured:
        console.print(memo_table(rows))
    assert all(row.mechanism in captured.get() for row in rows)
