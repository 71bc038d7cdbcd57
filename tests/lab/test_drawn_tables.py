"""Count tables that are drawn directly have the distribution of tables of drawn reports."""

import math

import numpy as np
import pytest

from lab.drawn_tables import drawn_table, tabulate
from ldpstream.mechanisms import LONGITUDINAL, NAMES, Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray

PEOPLE = np.array([120, 60, 20])
TABLES = 4000
LIMIT = 5.5  # standard errors; a normal mean is beyond this limit with probability 4e-8


CROWD = np.array([700, 200, 100, 0, 0])
AT_ONCE = ("GRR", "SUE", "OUE", "THE", "L-GRR", "L-SUE", "L-OSUE", "L-SOUE", "L-OUE")


def build(name: str, k: int = 3, eps: float = 1.5) -> Mechanism:
    return mechanism(name, k=k, eps_inf=2 * eps, eps_1=eps) if name in LONGITUDINAL else mechanism(name, k=k, eps=eps)


def distances(m: Mechanism, steps: int, counts: FloatArray) -> FloatArray:
    """Distances of the support counts' means and mean squares from their expectations, in standard errors.

    The expectations hold for these people, and for memos that each person keeps over all steps.
    """
    memo_p, memo_q, p, q = m.rounds()
    n = PEOPLE.sum()
    has, other = memo_p * (p - q) + q, memo_q * (p - q) + q
    mean = steps * (PEOPLE * has + (n - PEOPLE) * other)

    def variance(one: float) -> float:
        """Variance of the number of supporting reports of a person whose memo supports the value with this probability."""
        return steps * (one * p * (1 - p) + (1 - one) * q * (1 - q)) + steps**2 * (p - q) ** 2 * one * (1 - one)

    deviations = (counts - mean) ** 2
    variances = PEOPLE * variance(memo_p) + (n - PEOPLE) * variance(memo_q)
    far = (counts.mean(axis=0) - mean) / np.sqrt(variances / len(counts))
    return np.abs([far, (deviations.mean(axis=0) - variances) / (deviations.std(axis=0) / np.sqrt(len(counts)))])


@pytest.mark.parametrize("name", ["GRR", "OUE", "L-GRR", "L-OSUE"])
def test_windows_have_the_exact_mean_and_variance(name: str) -> None:
    """24 numbers in all: a false alarm in one of a million test runs."""
    m, rng = build(name), np.random.default_rng(20240601)
    counts = np.array([drawn_table(m, PEOPLE, rng, 4).counts for _ in range(TABLES)])
    assert distances(m, 4, counts).max() < LIMIT


@pytest.mark.parametrize("name", NAMES)
def test_every_report_is_counted(name: str) -> None:
    m, rng = build(name, k=100), np.random.default_rng(1)
    assert tabulate(m, np.arange(500) % 100, rng).n == 500
    assert drawn_table(m, np.full(100, 5), rng, steps=2).n == 1000


def moments(m: Mechanism) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance of the support counts of CROWD: from the dense channel if reports are symbols, else bit by bit."""
    supports = np.full((m.k, m.k), m.q) + (m.p - m.q) * np.eye(m.k)  # probabilities of [value, supported value]
    variances = np.diag(CROWD @ (supports * (1 - supports)))
    if m.name.endswith("GRR"):
        rows = m.channel()
        np.testing.assert_allclose(rows, supports)
        variances = sum((n * (np.diag(row) - np.outer(row, row)) for n, row in zip(CROWD, rows, strict=True)), np.zeros(()))
    return CROWD @ supports, variances


def farthest(m: Mechanism, tables: FloatArray) -> float:
    """Largest distance of the tables' mean and covariance from the expected values, in standard deviations."""
    mean, covariance = moments(m)
    n, spread = len(tables), np.sqrt(np.diag(covariance))
    found = np.cov(tables.T)
    wide = np.sqrt((np.outer(spread, spread) ** 2 + covariance**2) / n)
    of_mean = np.abs(tables.mean(axis=0) - mean) / (spread / math.sqrt(n))
    return float(max(of_mean.max(), (np.abs(found - covariance) / wide).max()))


@pytest.mark.parametrize("name", AT_ONCE)
def test_directly_drawn_tables_follow_the_reports_law(name: str) -> None:
    """The test checks 20 numbers for each of 9 mechanisms.

    With probability 1e-5, some number differs from its expected value by more than 5.5 standard deviations.
    """
    m, rng = build(name, k=5), np.random.default_rng(7)
    tables = np.array([m.support(drawn_table(m, CROWD, rng)) for _ in range(4000)])
    assert farthest(m, tables) < LIMIT
    assert farthest(build(name, k=5, eps=1.6), tables) > LIMIT
