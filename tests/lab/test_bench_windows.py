"""The benchmark of windows: L-SS beside the former candidates of ``auto``, and `auto` now beside the former one."""

import pytest

from lab.bench import windows
from ldpstream.mechanisms.registry import LIKE_VARIANCE


def test_a_window_of_l_ss_needs_at_most_as_many_people_as_the_best_rival() -> None:
    """Five ratios are those of an independent computation; the largest of all is 1."""
    found = {(r.eps_inf, r.k, r.steps): r for r in windows.ratios() if (r.eps_inf, r.eps_1) != (4.0, 1.0)}
    expected = {(2.0, 20, 24): 0.78, (1.0, 7, 1): 0.73, (4.0, 50, 24): 0.68, (2.0, 14, 8): 0.77, (8.0, 50, 24): 0.88}
    assert {cell: found[cell].ratio for cell in expected} == pytest.approx(expected, abs=0.005)
    assert max(row.ratio for row in found.values()) < 1 + 1e-6
    assert (found[2.0, 20, 1].memo_size, found[2.0, 20, 1].omega) == (2, 5)


def test_auto_is_nowhere_worse_than_before() -> None:
    ratios = windows.choices()
    assert max(ratios) < LIKE_VARIANCE
    assert min(ratios) < 0.2
