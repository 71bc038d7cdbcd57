"""A small year of the study of recipes: the intervals contain the truth."""

import msgspec
from scipy.stats import binom

from lab.bench.usage import Checked, Year, sample, totals, year

STEPS, FALSE_ALARM = 8, 1e-4


def covered(checked: Checked, part: float) -> bool:
    """True if the truth lies in this part of the interval around the estimate."""
    low, high = checked.value - part * (checked.value - checked.low), checked.value + part * (checked.high - checked.value)
    return low <= checked.truth <= high


def test_the_intervals_of_a_year_hold_and_narrower_ones_do_not() -> None:
    """One-time levels, whose noise is new at each step: misses are as in tosses, with 5 % each at most."""
    found = year(6000, 7, STEPS, sample(level=[{"name": "once", "mechanism": "GRR", "eps": 2.0}]))
    n, missed = len(found.checked), sum(not covered(checked, 1.0) for checked in found.checked)
    most = int(binom.isf(FALSE_ALARM, n, 0.05))
    assert n >= 70
    assert missed <= most
    assert sum(not covered(checked, 0.4) for checked in found.checked) > most  # the control
    assert all(value == true for value, true in found.people)
    assert sum(true > 0 for _, true in found.people) >= 2 * STEPS  # the control: versions come, and old ones stay
    assert "wrong in 0 cases" in totals([found])
    assert msgspec.convert(msgspec.to_builtins(found), Year) == found  # as `--json` writes it
