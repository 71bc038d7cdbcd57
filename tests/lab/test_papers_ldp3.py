"""LDP³: the transcribed tables, the tables' metric, and the effect of the toolkit's variance on Power."""

import math

import numpy as np
import pytest

from lab.drawn_tables import tabulate
from lab.error_measures import mae
from lab.papers.ldp3 import TABLES
from lab.papers.ldp3_runs import PROTOCOLS, toolkit_power, toolkit_variance
from ldpstream.estimators import matrix_inversion, post_process
from ldpstream.mechanisms import mechanism

PEOPLE = {"kosarak": (929_669, 128), "bms_pos": (500_000, 256), "porto": (1_620_157, 225)}


@pytest.mark.parametrize("name", TABLES)
def test_published_averages_match_published_columns(name: str) -> None:
    for protocol, row in TABLES[name].items():
        slip = (name, protocol) == ("bms_pos", "SS")  # the paper's average includes the column without post-processing
        assert row[1] == pytest.approx(np.mean([*row[:slip], *row[2:]]), abs=0.0101)
        assert not slip or row[1] != pytest.approx(np.mean(row[2:]), abs=0.04)


def test_portos_powerns_column_repeats_powers_numbers() -> None:
    same = {name: [row[-1] == row[-2] for row in rows.values()] for name, rows in TABLES.items()}
    assert all(same["porto"])
    assert not any(same["kosarak"] + same["bms_pos"])


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_published_l1_is_divided_by_k(name: str, protocol: str) -> None:
    """A count is nearly normal, so the mean absolute error is sqrt(2/π) standard deviations. The tolerance is 5 standard
    deviations of the mean."""
    n, k = PEOPLE[name]
    m = mechanism(PROTOCOLS[protocol], k, eps=1.0)
    expected = 1000 * math.sqrt(2 / math.pi * m.variance(1 / k, n))
    chance = 5 * math.sqrt(math.pi / 2 - 1) / math.sqrt(10 * k)
    assert TABLES[name][protocol][0] == pytest.approx(expected, rel=chance)
    assert TABLES[name][protocol][0] != pytest.approx(k * expected, rel=0.9)  # Eq. (22) as printed


def test_the_toolkits_variance_has_k_in_place_of_n() -> None:
    n, k = PEOPLE["kosarak"]
    true = {p: mechanism(name, k, eps=1.0).variance(0.0, n) * n**2 for p, name in PROTOCOLS.items()}
    for protocol in ("OUE", "RAPPOR", "BLH"):
        assert k * toolkit_variance(protocol, k, n) == pytest.approx(true[protocol], rel=1e-9)
    assert k * toolkit_variance("OLH", k, n) == pytest.approx(true["OLH"], rel=0.01)
    assert toolkit_variance("SS", k, n) == toolkit_variance("GRR", k, n)
    assert 0.2 < toolkit_variance("SS", k, n) / true["SS"] < 0.3  # the toolkit's two errors nearly cancel
    assert toolkit_variance("GRR", k, n) / true["GRR"] < 3 / k


def test_the_toolkits_power_raises_counts_far_below_zero() -> None:
    counts, n = np.array([6000.0, 3000.0, 1500.0, 40.0, 15.0, -900.0]), 10_000
    lifted = toolkit_power(counts, n, variance=50.0) * n
    assert lifted[:3] == pytest.approx(counts[:3] + 5, abs=6)
    assert lifted[-1] > 500  # with the true variance this value would be nearly zero
    assert toolkit_power(counts, n, variance=90_000.0)[-1] * n < 100
    nearer = np.array([*counts[:-1], -110.0])  # the likelihood of the count 1 is 1e-200; most other likelihoods underflow
    assert toolkit_power(nearer, n, variance=12.2)[-1] * n > 500


def test_the_true_variance_is_better_than_the_toolkits() -> None:
    """One run of OLH and Power on a distribution as steep as Kosarak's."""
    n, k = 100_000, 128
    rng = np.random.default_rng(1)
    values = rng.choice(k, n, p=(weights := np.arange(1.0, k + 1) ** -2) / weights.sum())
    m = mechanism("OLH", k, eps=1.0)
    found = matrix_inversion(m, tabulate(m, values, rng))
    truth = np.bincount(values, minlength=k) / n
    theirs = toolkit_power(found.frequencies * n, n, toolkit_variance("OLH", k, n))
    ours = post_process(found.frequencies, "power", variance=found.standard_errors**2)
    assert mae(truth, ours) < 0.7 * mae(truth, theirs)
