"""The benchmark of questions with several answers: its tables, and the exact errors of the rivals."""

import math
from itertools import combinations

import numpy as np
import pytest

from lab.bench.sets import COVERED, _errors, _privset, coverage_of, coverage_table, error_table
from ldpstream.mechanisms.families.padded_sampling import SampledReading


def test_a_setting_is_measured_and_shown() -> None:
    row = coverage_of(0, 30, seed=1)
    assert (row.n, row.m, row.eps, row.people) == COVERED[0][:4]
    assert min(row.values, row.inversion, row.mean) > 0.8
    assert row.error == pytest.approx(row.stated, rel=0.2)
    exact = _errors(10, 3, 1.0)
    assert exact.privset <= exact.padded < min(exact.unary, exact.sampled)
    assert error_table([exact, _errors(100, 3, 4.0)]).row_count == 2
    assert coverage_table([row]).row_count == 1


@pytest.mark.parametrize("number", [number for number, row in enumerate(COVERED) if row[-1] == 7 and row[0] <= 10])
def test_intervals_of_windows_cover_what_they_state(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All people report several times in the window, without and with a kept memo. In 60 runs, the coverage of all shares
    together has a standard error below 0.9 points; the band is ± 4 of them. The control counts the drawn member as kept: its
    intervals are too wide, since the device draws anew."""
    row = coverage_of(number, 60, seed=2)
    for share in (row.values, row.inversion, row.likely):
        assert 0.914 < share < 0.986
    assert row.mean > 0.85
    if row.mechanism == "PS-GRR":
        once = SampledReading.given_memo
        for name in ("given_memo", "_kept_together", "_noise_at", "concentration"):
            monkeypatch.delattr(SampledReading, name)
        assert SampledReading.given_memo is not once
        assert coverage_of(number, 60, seed=2).values > row.values + 0.015


@pytest.mark.parametrize(("omega", "least"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_privset_loses_eps_and_has_the_stated_variance(omega: int, least: int) -> None:
    """The channel by enumeration of all subsets of the 3 + 2 symbols."""
    eps, subsets = 1.5, list(combinations(range(5), omega))
    sets = [{0, 1}, {0, 2}, {0, 3}, {3, 4}, {1, 3}]
    weights = np.array([[math.exp(eps) if len(s & set(out)) >= least else 1.0 for out in subsets] for s in sets])
    channel = weights / weights.sum(axis=1, keepdims=True)
    assert np.ptp(np.log(channel), axis=0).max() == pytest.approx(eps)
    has = np.array([[v in out for out in subsets] for v in range(3)])
    p, q = channel[0] @ has[0], channel[0] @ has[2]
    share = 1 / 3
    expected = (share * p * (1 - p) + (1 - share) * q * (1 - q)) / (p - q) ** 2
    assert _privset(3, 2, eps, omega, least) == pytest.approx(expected)
