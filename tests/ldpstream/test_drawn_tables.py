"""Count tables that are drawn directly have the distribution of tables of drawn reports; populations fill their domain."""

import numpy as np
import pytest

from ldpstream.advice.drawn_tables import drawn_table, tabulate
from ldpstream.advice.populations import SHAPES, population
from ldpstream.mechanisms import LONGITUDINAL, NAMES, Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray

PEOPLE = np.array([120, 60, 20])
TABLES = 4000
LIMIT = 5.5  # standard errors; a normal mean is beyond this limit with probability 4e-8


def build(name: str, k: int = 3) -> Mechanism:
    return mechanism(name, k=k, eps_inf=3.0, eps_1=1.5) if name in LONGITUDINAL else mechanism(name, k=k, eps=1.5)


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
    """24 numbers in all: a false alarm in one of a million test runs. `test_advise.py` tests single steps."""
    m, rng = build(name), np.random.default_rng(20240601)
    counts = np.array([drawn_table(m, PEOPLE, rng, 4).counts for _ in range(TABLES)])
    assert distances(m, 4, counts).max() < LIMIT


def test_fresh_memos_at_every_step_are_noticed() -> None:
    m, rng = build("L-OSUE"), np.random.default_rng(20240601)
    fresh = np.array([sum(drawn_table(m, PEOPLE, rng).counts for _ in range(4)) for _ in range(TABLES)])
    assert distances(m, 4, fresh).max() > 2 * LIMIT


@pytest.mark.parametrize("name", NAMES)
def test_every_report_is_counted(name: str) -> None:
    m, rng = build(name, k=100), np.random.default_rng(1)
    assert tabulate(m, np.arange(500) % 100, rng).n == 500
    assert drawn_table(m, np.full(100, 5), rng, steps=2).n == 1000


@pytest.mark.parametrize("shape", SHAPES)
def test_populations_fill_their_domain(shape: str) -> None:
    values = population(shape, 20, 5000, np.random.default_rng(1))
    assert (values.min(), values.max()) == (0, 19)
    assert population(shape, 20, 1, np.random.default_rng(1)).tolist() == [0]  # a single sample is in the first bin
