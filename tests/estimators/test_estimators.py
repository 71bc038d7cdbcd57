"""Tests properties of the estimators, and compares each fast implementation with a dense reference."""

import math
from typing import Any

import numpy as np
import pytest

from ldpstream.estimators import empirical_bayes, ems, ibu, matrix_inversion, mle
from ldpstream.mechanisms import NAMES, CountTable, Mechanism

from .sample_terms import make


def collect(m: Mechanism, values: np.ndarray, rng: np.random.Generator, steps: int = 1) -> CountTable:
    """Returns the table of people who all report at every step with unchanged values."""
    return m.tabulate(m.simulate(values, rng, steps))


@pytest.fixture(params=NAMES)
def m(request: pytest.FixtureRequest) -> Mechanism:
    return make(request.param, 6)


def test_inversion_returns_the_truth_from_expected_counts(m: Mechanism) -> None:
    f, n = np.array([0.5, 0.25, 0.125, 0.0625, 0.0625, 0.0]), 2**52
    expected = f @ m.channel() * n
    if m.table_shape == (m.k,) and len(expected) != m.k:  # tables of bits count each bit
        expected = expected @ (np.arange(2**m.k)[:, None] >> np.arange(m.k) & 1)
    counts = np.rint(expected).astype(np.int64).reshape(m.table_shape)
    if m.marks:
        counts.flat[counts.argmax()] += n * m.marks - counts.sum()  # corrects the rounding of the sum
    table = m.table(n, counts)
    np.testing.assert_allclose(matrix_inversion(m, table).frequencies, f, atol=1e-12)
    np.testing.assert_allclose(mle(m, table).frequencies, f, atol=1e-9)  # it stops at a gap of 1e-9 nats per report


def test_one_group_equals_ibu_and_split_groups_equal_one(m: Mechanism) -> None:
    rng = np.random.default_rng(5)
    first, second = (collect(m, rng.integers(0, m.k, 500), rng) for _ in range(2))
    whole = ibu(m, first + second)
    np.testing.assert_array_equal(ibu([(m, first + second)]).frequencies, whole.frequencies)
    split = ibu([(m, first), (m, second), (m, m.empty_table())])
    np.testing.assert_allclose(split.frequencies, whole.frequencies, atol=1e-12)
    np.testing.assert_allclose(split.standard_errors, whole.standard_errors, rtol=1e-6)
    combined = matrix_inversion([(m, first), (m, m.empty_table()), (m, second)])
    np.testing.assert_allclose(combined.frequencies, matrix_inversion(m, first + second).frequencies, atol=1e-12)


def test_wrong_arguments_are_refused(m: Mechanism) -> None:
    table, other = collect(m, np.arange(20) % 6, np.random.default_rng(13)), make("GRR", 7)
    c: Any = table.counts
    for call in (matrix_inversion, ibu, mle):
        with pytest.raises(ValueError, match="expected a count table of"):
            call(other, table)
        with pytest.raises(ValueError, match="steps"):
            call(m, table, steps=0)
        for wrong in (c - 21, c.astype(float), c * math.nan, c[:1], c + 21):
            with pytest.raises(ValueError, match="counts"):
                call(m, CountTable(m.signature, table.n, wrong))
    with pytest.raises(ValueError, match="n must be an integer"):
        mle(m, CountTable(m.signature, -1, table.counts))
    with pytest.raises(ValueError, match="likelihood must be one of exact, support"):
        mle(m, table, likelihood="true")
    with pytest.raises(ValueError, match="delta must be"):
        ibu(m, table, delta=-1e-9)
    with pytest.raises(ValueError, match="post must be one of none"):
        matrix_inversion(m, table, post="norm-add")
    with pytest.raises(ValueError, match="max_iter"):
        ibu(m, table, max_iter=0)
    with pytest.raises(ValueError, match="tol"):
        ibu(m, table, tol=-1.0)
    with pytest.raises(ValueError, match="level"):
        matrix_inversion(m, table).interval(1.5)


@pytest.mark.parametrize("estimate", [matrix_inversion, ibu, mle, ems, empirical_bayes])
def test_one_function_takes_one_level_or_several(estimate: Any) -> None:
    m, other = make("OUE", 6), make("GRR", 7)
    table = m.tabulate(m.simulate(np.arange(300) % 4, np.random.default_rng(1)))
    one, listed, lazy = estimate(m, table), estimate([(m, table)]), estimate(zip([m], [table], strict=True))
    for found in (listed, lazy):
        np.testing.assert_array_equal(found.frequencies, one.frequencies)
        np.testing.assert_array_equal(found.standard_errors, one.standard_errors)
    with pytest.raises(ValueError, match="at least one"):
        estimate([])
    with pytest.raises(ValueError, match="k = 6 and k = 7"):
        estimate([(m, table), (other, other.empty_table())])
    for wrong, got in (
        ((m,), "UnaryEncoding, NoneType"), (([(m, table)], table), "list, CountTable"), (("OUE", table), "str, CountTable"),
        (((m, table),), "UnaryEncoding"), (([(m, table), table],), "CountTable"), ((table,), "CountTable, NoneType"),
        (([(table, m)],), "CountTable, UnaryEncoding"), (([(m, table, 1)],), "UnaryEncoding, CountTable, int"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=f"or a list of such pairs alone, got {got}$"):
            estimate(*wrong)


@pytest.mark.parametrize("estimate", [matrix_inversion, ibu, mle, empirical_bayes])
def test_each_level_has_its_own_steps(estimate: Any) -> None:
    m = make("L-OSUE", 6)
    groups = [(m, m.tabulate(m.simulate(np.arange(300) % 4, np.random.default_rng(1), steps=3)))] * 2
    found = [estimate(groups, steps=steps).standard_errors for steps in (3, [3, 3], [1, 3])]
    np.testing.assert_array_equal(found[0], found[1])
    assert (found[0] > found[2]).all()
    with pytest.raises(ValueError, match="one number or one for each of 2 groups, got 3"):
        estimate(groups, steps=[1, 1, 3])


def test_widths_need_an_order() -> None:
    m = make("OUE", 6)
    with pytest.raises(ValueError, match="ordered=True"):
        empirical_bayes(m, m.empty_table(), widths=np.ones(6))


def exceedances(m: Mechanism, method: str, steps: int, runs: int, people: int, scale: float = 1.0) -> int:
    """Returns the number of repetitions, out of `runs`, in which the 95 % interval of one bin misses the population's share."""
    f = np.array([0.35, 0.25, 0.2, 0.1, 0.07, 0.03])
    rng = np.random.default_rng([sum(m.signature.encode()), steps])
    estimate = matrix_inversion if method == "mi" else mle
    misses = 0
    for run in range(runs):
        table = collect(m, rng.choice(m.k, people, p=f), rng, steps)
        found = estimate(m, table, steps=steps)
        v = run % 3
        misses += abs(found.frequencies[v] - f[v]) > scale * 1.959964 * found.standard_errors[v]
    return misses


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("method", ["mi", "mle"])
@pytest.mark.parametrize("name", NAMES)
def test_intervals_cover_as_often_as_stated(name: str, method: str, steps: int) -> None:
    """In 400 repetitions, the expected number of misses is 20. In each of 56 cases, the number of misses is outside [5, 38]
    with a probability below 1e-4."""
    m = make(name, 6, eps_1=2.0)
    assert 5 <= exceedances(m, method, steps, 400, 3000) <= 38


@pytest.mark.parametrize("name", ["L-GRR", "L-OSUE", "L-OLH"])
def test_control_a_window_as_independent_steps_undercovers(name: str) -> None:
    """If intervals assume that the memo's noise averages out, they are too narrow, and would fail the coverage test."""
    m = make(name, 6, eps_1=2.0)
    narrow = math.sqrt(m.variance(0.2, 1, 1) / 4 / m.variance(0.2, 1, 4))
    assert exceedances(m, "mi", 4, 400, 3000, scale=narrow) > 38


def test_few_exact_reports_do_not_worsen_many_noisy_ones() -> None:
    """A small group's weight depends on the group's sampling noise, not only on the mechanism's noise."""
    rng = np.random.default_rng(3)
    sharp, blunt = make("GRR", 10, 8.0), make("GRR", 10, 1.0)
    few, many = collect(sharp, rng.integers(0, 10, 100), rng), collect(blunt, rng.integers(0, 10, 100_000), rng)
    alone = matrix_inversion(blunt, many).standard_errors
    both = matrix_inversion([(sharp, few), (blunt, many)]).standard_errors
    assert (both < alone).all()
