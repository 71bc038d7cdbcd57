"""Tests the shapes and tables of `bench number-estimates`, and the variances of mechanisms for a mean."""

from lab.bench import means
from lab.bench.number_estimates import (
    INTERVALS,
    MEASURES,
    Cell,
    cells,
    coverage_table,
    measure,
    ratio_table,
)


def test_the_small_grid_does_not_depend_on_the_processes() -> None:
    rows = measure(cells(quick=True), 2, 1, lambda _: None, 1)
    assert [row.cell for row in rows] == [Cell("smooth", 16, 1000, 1.0), Cell("ages", 16, 1000, 1.0)]
    assert all(set(row.errors) == set(row.ems) == set(row.wavelets) == set(MEASURES) for row in rows)
    assert all(0 <= row.covered[kind] <= 1 and row.width[kind] > 0 for row in rows for kind in INTERVALS)
    assert {t.row_count for t in (ratio_table(rows), ratio_table(rows, "wavelets"), coverage_table(rows))} == {4}


def test_no_mechanism_is_better_than_the_least() -> None:
    for eps in (0.5, 3.0):
        found = [one(eps) for one in (means.square_wave, means.laplace, means.duchi, means.piecewise)]
        assert means.least(eps) < 1.002 * min(found)
        assert means.least(eps) > 0.8 * min(found)
