"""Tests properties of IBU, GIBU and the maximum likelihood, and compares results with dense and closed-form references."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lab.papers.location.geometric import TruncatedGeometric
from ldpstream.estimators import ibu, matrix_inversion, mle
from ldpstream.estimators.estimate import Group
from ldpstream.estimators.maximum.likelihood import PROVEN_GAP, em
from ldpstream.estimators.maximum.optimum import duality_gap, evaluate, separable_maximum
from ldpstream.estimators.maximum.standard_errors import standard_errors
from ldpstream.mechanisms import NAMES, Mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.counts.terms import Term
from ldpstream.mechanisms.families.score_moments import MAX_DENSE_K
from ldpstream.mechanisms.families.subset import Subsets

from .sample_terms import DenseTerm, K, closed_form, collect, make, support_term, tables, value

COUNTS = arrays(np.int64, K, elements=st.integers(0, 1000)).filter(lambda c: c.any())


@pytest.fixture(params=NAMES)
def m(request: pytest.FixtureRequest) -> Mechanism:
    return make(request.param)


def support_channel(m: Mechanism) -> FloatArray:
    return np.full((m.k, m.k), m.q) + np.eye(m.k) * (m.p - m.q)


def dense_em(terms: list[DenseTerm], f: FloatArray, iterations: int) -> FloatArray:
    for _ in range(iterations):
        f = f * np.sum([t.channel @ (t.counts / (f @ t.channel)) for t in terms], axis=0)
        f = f / f.sum()
    return f


# ---- terms


@given(tables(), arrays(np.float64, K, elements=st.floats(0.01, 1)))
def test_a_support_term_equals_its_dense_form(group: Group, f: FloatArray) -> None:
    m, table = group
    term = support_term(m, table)
    dense = DenseTerm(support_channel(m), replace(table, counts=m.support(table)))
    (found, gradient), (expected, dense_gradient) = term(f), dense(f)  # the sum of f need not be 1
    assert found == pytest.approx(expected, rel=1e-10, abs=1e-10)
    np.testing.assert_allclose(gradient, dense_gradient, rtol=1e-10)
    assert (f * gradient).sum() == pytest.approx(term.support.sum(), rel=1e-10)  # (1) of mechanisms.counts.terms


# ---- IBU: the plain EM


@given(COUNTS, COUNTS, st.integers(1, 60), st.sampled_from(["GRR", "L-GRR", "OUE", "L-OSUE"]))
def test_the_fast_em_step_equals_the_dense_one(first: FloatArray, second: FloatArray, iterations: int, name: str) -> None:
    sharp, blunt = make(name, eps_1=3.0), make(name, eps_1=0.5)
    groups = [(m, m.table(int(counts.sum()) if m.marks else 6000, counts)) for m, counts in ((sharp, first), (blunt, second))]
    terms = [DenseTerm(support_channel(m), table) for m, table in groups]
    for some in (1, 2):
        fast = ibu(groups[:some], max_iter=iterations, tol=0.0)
        expected = dense_em(terms[:some], np.full(K, 1 / K), fast.iterations)
        np.testing.assert_allclose(fast.frequencies, expected, atol=1e-10)


@pytest.mark.parametrize("tol", [0.0, 1e-5])
def test_values_with_equal_counts_and_starts_stay_equal(tol: float) -> None:
    """The 97 values have at most 32 combinations of counts and start. A loop over these kinds gives the same result as a loop
    over values."""
    rng, k = np.random.default_rng(11), 97
    sharp, blunt = make("OUE", k, 3.0), make("L-OSUE", k, 0.5)
    groups = [(m, m.table(400, rng.integers(100, 104, k))) for m in (sharp, blunt)]
    start = rng.integers(1, 3, k) / 1.0
    start /= start.sum()
    found = em([support_term(m, table) for m, table in groups], start, 500, tol)
    dense: list[Term] = [DenseTerm(support_channel(m), table) for m, table in groups]
    expected = em(dense, start, 500, tol)
    assert found[1:] == expected[1:]
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-10)
    assert len(np.unique(found[0])) <= 32


def test_em_stops_when_the_likelihood_gains_less_than_delta() -> None:
    m = make("OUE", 20)
    table = collect(m, 2000, 6)
    found = ibu(m, table, delta=1e-6)
    gains = np.diff([ibu(m, table, max_iter=found.iterations + i).log_likelihood for i in (-2, -1, 0)]) / table.n
    assert found.converged
    assert gains[1] < 1e-6 <= gains[0]
    assert not ibu(m, table, max_iter=found.iterations - 1, delta=1e-6).converged
    same = ibu(m, table, max_iter=found.iterations).frequencies
    np.testing.assert_allclose(found.frequencies, same, rtol=1e-12)


# ---- the maximum


@given(tables())
def test_the_maximum_of_one_term_equals_the_closed_form(group: Group) -> None:
    m, table = group
    found = mle(m, table, likelihood="support")
    support = m.support(table).astype(float)
    if not support.any():
        assert np.isnan(found.frequencies).all()
        return
    assert found.converged
    assert found.frequencies.sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(found.frequencies, closed_form(m, support), atol=1e-10 * max(1, m.q / (m.p - m.q)))


@given(st.lists(tables(), min_size=1, max_size=4))
def test_the_maximum_of_any_mix_is_proven(groups: list[Group]) -> None:
    found = mle(groups, likelihood="support")
    terms: list[Term] = [support_term(m, table) for m, table in groups]
    assume(any(m.support(table).any() for m, table in groups))
    f, n = found.frequencies, sum(table.n for _, table in groups)
    gradient = evaluate(terms, f)[1]
    assert found.converged
    assert found.gap <= PROVEN_GAP
    assert found.gap * n == pytest.approx(duality_gap(f, gradient), abs=1e-9 * n)
    assert (f >= 0).all()
    assert f.sum() == pytest.approx(1, abs=1e-12)
    slack = 1e-12 * (abs(found.log_likelihood) + n)
    for other in (np.full(K, 1 / K), ibu(groups, max_iter=50, likelihood="support").frequencies, *np.eye(K)):
        assert value(terms, np.asarray(other)) <= found.log_likelihood + found.gap * n + slack


@given(tables(), tables(), st.permutations(range(K)))
def test_the_order_of_groups_and_values_does_not_matter(one: Group, other: Group, order: list[int]) -> None:
    terms = [support_term(*one), support_term(*other)]
    assume(any(term.support.any() for term in terms))
    found = separable_maximum(terms)[0]
    backward = separable_maximum(terms[::-1])[0]
    for term in terms:
        term.support = term.support[order]
    permuted = separable_maximum(terms)[0]
    coarse = max(term.q / term.slope for term in terms)  # scale of a bin's rounding error
    np.testing.assert_allclose(backward, found, atol=1e-9 * max(1, coarse))
    np.testing.assert_allclose(permuted, found[order], atol=1e-9 * max(1, coarse))


def test_the_gap_of_an_unfinished_estimate_bounds_the_missing_log_likelihood() -> None:
    mix = [("GRR", 0.5), ("L-OSUE", 1.0), ("OUE", 2.0)]
    groups = [(make(name, 6, eps), collect(make(name, 6, eps), 3000, i)) for i, (name, eps) in enumerate(mix)]
    found = mle(groups)
    for iterations in (1, 10, 100, 1000):
        early = ibu(groups, max_iter=iterations, tol=0.0)
        missing = (found.log_likelihood - early.log_likelihood) / 9000
        assert 0 < missing <= early.gap
    assert ibu(groups, max_iter=1).gap > 1e-3


def test_two_groups_of_one_mechanism_equal_their_sum(m: Mechanism) -> None:
    first, second, none = collect(m, 300, 9), collect(m, 500, 10), m.empty_table()
    for likelihood in ("exact", "support"):
        whole = mle(m, first + second, likelihood=likelihood)
        split = mle([(m, first), (m, none), (m, second)], likelihood=likelihood)
        assert whole.n == split.n == 800
        np.testing.assert_allclose(split.frequencies, whole.frequencies, atol=1e-6)
        assert split.log_likelihood == pytest.approx(whole.log_likelihood, abs=1e-6)


def test_em_converges_to_the_maximum(m: Mechanism) -> None:
    table = collect(m, 3000, 11)
    for likelihood in ("exact", "support"):
        best, iterated = (f(m, table, likelihood=likelihood) for f in (mle, ibu))
        assert iterated.log_likelihood <= best.log_likelihood + 3000 * best.gap + 1e-8
        assert best.log_likelihood - iterated.log_likelihood <= 3000 * iterated.gap + 1e-8
        np.testing.assert_allclose(iterated.frequencies, best.frequencies, atol=1e-2)


# ---- true likelihoods that are not those of the support counts


@pytest.mark.parametrize("name", ["BLH", "OLH", "L-OLH"])
def test_a_mix_uses_each_mechanisms_own_channel(name: str) -> None:
    hashed, place, symbols = make(name, 9), TruncatedGeometric(k=9, eps=0.5), make("GRR", 9)
    rng = np.random.default_rng(16)
    values = rng.choice(9, 500, p=np.arange(9) / 36)
    groups = [
        (hashed, collect(hashed, 400, 17)),
        (place, place.tabulate(place.report(values, rng))),
        (symbols, symbols.tabulate(symbols.simulate(values, rng))),
    ]
    dense = [DenseTerm(m.channel().reshape(9, -1), table) for m, table in groups]
    found = ibu(groups, max_iter=50, tol=0.0)
    np.testing.assert_allclose(found.frequencies, dense_em(dense, np.full(9, 1 / 9), 50), atol=1e-10)
    assert found.log_likelihood == pytest.approx(value([*dense], found.frequencies))
    best = mle(groups)
    assert best.converged
    assert duality_gap(best.frequencies, evaluate([*dense], best.frequencies)[1]) <= 1400 * PROVEN_GAP + 1e-9
    assert np.isfinite(best.standard_errors).all()
    by_supports = mle(groups, likelihood="support")  # the location mechanism has only its true likelihood
    assert by_supports.converged
    assert np.abs(by_supports.frequencies - best.frequencies).max() > 1e-4


# ---- edges


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("k", "eps"), [(2, 1e-9), (5, 1e-3), (2, 30.0), (5, 340.0)])
def test_no_count_and_no_eps_overflows(name: str, k: int, eps: float) -> None:
    m = make(name, k, eps)
    for counts in (np.zeros(m.table_shape, np.int64), np.arange(math.prod(m.table_shape)).reshape(m.table_shape) % 2):
        huge = counts.astype(np.int64) * (2**62 // counts.size)
        if isinstance(m, Subsets):
            huge[:] = 0
            huge[: m.omega] = 2**62 * counts.any()
        table = m.table(int(huge[0]) if isinstance(m, Subsets) else 2**62 if m.marks is None else int(huge.sum()), huge)
        for found in (ibu(m, table, max_iter=200), mle(m, table)):
            if not m.support(table).any():  # nobody reported, or no report supports any value
                assert np.isnan(found.frequencies).all()
                continue
            assert np.isfinite(found.frequencies).all()
            assert found.frequencies.sum() == pytest.approx(1)
            assert np.isfinite([found.log_likelihood, found.gap]).all()
            assert not np.isinf(found.standard_errors).any()


def test_a_mechanism_without_information_gives_no_estimate() -> None:
    """A group with information has the same estimate alone as together with a mechanism without information."""
    m = copy.copy(make("GRR"))
    m.p = m.q = 1 / K  # calibration="paper" can give p = q
    table = m.table(60, np.array([60, 0, 0, 0, 0, 0]))
    telling = make("GRR")
    other = telling.table(60, np.array([30, 20, 10, 0, 0, 0]))
    for estimate in (ibu, mle):
        found = estimate([(m, table)])
        assert np.isnan(found.frequencies).all()
        assert np.isnan(found.standard_errors).all()
        assert not found.converged
        assert (found.n, found.iterations) == (60, 0)
        np.testing.assert_array_equal(
            estimate([(m, table), (telling, other)]).frequencies, estimate([(telling, other)]).frequencies
        )


def test_reports_that_support_no_value_give_no_estimate() -> None:
    m = make("OUE")
    table = m.table(60, np.zeros(K, np.int64))
    for found in (ibu(m, table), mle(m, table)):
        assert np.isnan(found.frequencies).all()
        assert (found.n, found.converged) == (60, False)
    assert np.isfinite(matrix_inversion(m, table).frequencies).all()  # the inversion also uses the lack of support


def test_errors_of_a_mix_with_many_locations_are_nan() -> None:
    k = MAX_DENSE_K + 1
    place, grr = TruncatedGeometric(k=k, eps=0.5), make("GRR", k)
    groups = [(grr, collect(grr, 50, 14)), (place, place.tabulate(np.arange(k, dtype=place.report_dtype)))]
    assert np.isnan(standard_errors(groups, np.full(k, 1 / k), 1)).all()
    groups[1] = (place, place.empty_table())
    assert np.isfinite(standard_errors(groups, np.full(k, 1 / k), 1)).all()
