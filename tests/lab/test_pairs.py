"""The benchmark of pairs: its tables, and the product of two reports."""

import numpy as np

from lab.bench.pairs import CELLS, coverage_table, error_table, measure_one, product, shares_of
from ldpstream.mechanisms import mechanism


def test_a_setting_is_measured_and_shown() -> None:
    row = measure_one(0, 30, seed=1)
    assert (row.rows, row.columns, row.eps, row.people) == CELLS[0]
    assert row.alone < row.error < row.product
    assert min(row.cells, row.margins, row.within) > 0.8
    for table in (error_table([row]), coverage_table([row])):
        assert table.row_count == 1


def test_the_product_of_two_reports_is_unbiased() -> None:
    """The limit is at least 5.8 standard errors: a false alarm of the six shares has a probability below 1e-7.

    Control: a table of independent attributes is farther away.
    """
    rng, truth = np.random.default_rng(2), shares_of(2, 3, 0.5)
    m = [mechanism("GRR", k, eps=2.0) for k in (2, 3)]
    values = rng.choice(6, 40_000, p=truth.ravel())
    found = product(m, values // 3, values % 3, rng)
    assert np.abs(found - truth).max() < 0.02
    assert np.abs(np.outer(truth.sum(axis=1), truth.sum(axis=0)) - truth).max() > 0.05
