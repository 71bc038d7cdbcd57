"""The comparison of memoized mechanisms with the spaced level on values that change often."""

import numpy as np
import pytest
from rich.console import Console

from lab.bench.stream_memos import QUICK, Setting, evolving, measure_memos, spaced_reports
from lab.bench.stream_tables import memo_table
from ldpstream.mechanisms import LONGITUDINAL, mechanism

SMALL = Setting(2000, 10, 24, 0.25, 6, (2.0,))


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
