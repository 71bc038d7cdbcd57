"""Tests properties of IBU, GIBU and the maximum likelihood, and compares results with dense and closed-form references."""

import copy
import itertools
import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from ldpstream.estimators import ibu, matrix_inversion, mle
from ldpstream.estimators.estimate import Group
from ldpstream.estimators.likelihood import PROVEN_GAP, em
from ldpstream.estimators.optimum import (
    _background,
    _nearest,
    _quasi_newton,
    duality_gap,
    evaluate,
    projected_maximum,
    separable_maximum,
)
from ldpstream.estimators.standard_errors import standard_errors
from ldpstream.mechanisms import NAMES, ONE_TIME, CountTable, Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.geometric import TruncatedGeometric
from ldpstream.mechanisms.local_hashing import Hashing
from ldpstream.mechanisms.score_moments import MAX_DENSE_K
from ldpstream.mechanisms.subset import SubsetSelection
from ldpstream.mechanisms.terms import SupportTerm, Term

K = 6
COUNTS = arrays(np.int64, K, elements=st.integers(0, 1000)).filter(lambda c: c.any())


@lru_cache
def make(name: str, k: int = K, eps_1: float = 1.0) -> Mechanism:
    return mechanism(name, k, eps=eps_1) if name in ONE_TIME else mechanism(name, k, eps_inf=2 * eps_1, eps_1=eps_1)


def collect(m: Mechanism, n: int, seed: int) -> CountTable:
    """Returns the reports of people whose values have shares proportional to 1/(1+v)²."""
    rng = np.random.default_rng(seed)
    shares = 1 / (1 + np.arange(m.k)) ** 2
    values = rng.choice(m.k, n, p=shares / shares.sum())
    return m.tabulate(m.simulate(values, rng))


@pytest.fixture(params=NAMES)
def m(request: pytest.FixtureRequest) -> Mechanism:
    return make(request.param)


@st.composite
def tables(draw: st.DrawFn, wild: bool = True) -> Group:
    """Draws a table of any pure mechanism with six values; honest people could not produce some of these tables."""
    name = draw(st.sampled_from(NAMES))
    eps = [0.5, 1.0, 2.0] + [1e-3] * wild + [300.0] * (wild and "LH" not in name)
    m = make(name, eps_1=draw(st.sampled_from(eps)))
    top = draw(st.sampled_from([1, 20, 10**6] + [2**62 // math.prod(m.table_shape)] * wild))
    if isinstance(m, SubsetSelection):  # any sets of ω values; each set occurs any number of times
        times = draw(st.lists(st.integers(0, top // K), min_size=1, max_size=K))
        sets = [draw(st.permutations(range(K)))[: m.omega] for _ in times]
        counts = sum((n * np.isin(np.arange(K), members) for n, members in zip(times, sets)), np.zeros(K, np.int64))
        return m, m.table(sum(times), counts)
    counts = draw(arrays(np.int64, m.table_shape, elements=st.integers(0, top)))
    return m, m.table(max(int(counts.sum()), int(m.marks is None)), counts)


def closed_form(m: Mechanism, support: FloatArray) -> FloatArray:
    """Returns max(0, c/λ - q/(p-q)), computed by one sort, as in the papers."""
    floor = m.q / (m.p - m.q)
    descending = np.sort(support)[::-1]
    scale = np.cumsum(descending) / (1 + np.arange(1, m.k + 1) * floor)
    last = np.flatnonzero(descending > scale * floor)[-1]
    f = np.maximum(support / scale[last] - floor, 0)
    return np.asarray(f / f.sum())


class DenseTerm:
    """A log-likelihood from a dense channel. The tests use it as the reference, and as a term that is not separable."""

    def __init__(self, channel: FloatArray, table: CountTable) -> None:
        self.k, self.n = len(channel), table.n
        self.channel, self.counts = channel, table.counts.ravel().astype(float)

    def __call__(self, f: FloatArray) -> tuple[float, FloatArray]:
        seen = self.counts > 0
        gamma = np.maximum((f @ self.channel)[seen], 1e-130)
        gradient = self.channel[:, seen] @ (self.counts[seen] / gamma)
        return float((self.counts[seen] * np.log(gamma)).sum()), gradient


def support_channel(m: Mechanism) -> FloatArray:
    return np.full((m.k, m.k), m.q) + np.eye(m.k) * (m.p - m.q)


def dense_em(terms: list[DenseTerm], f: FloatArray, iterations: int) -> FloatArray:
    for _ in range(iterations):
        f = f * np.sum([t.channel @ (t.counts / (f @ t.channel)) for t in terms], axis=0)
        f = f / f.sum()
    return f


def value(terms: list[Term], f: FloatArray) -> float:
    return evaluate(terms, f)[0]


# ---- terms


def support_term(m: Mechanism, table: CountTable) -> SupportTerm:
    return SupportTerm(m.support(table), table.n, m.p, m.q)


@given(tables(), arrays(np.float64, K, elements=st.floats(0.01, 1)))
def test_a_support_term_equals_its_dense_form(group: Group, f: FloatArray) -> None:
    m, table = group
    term = support_term(m, table)
    dense = DenseTerm(support_channel(m), replace(table, counts=m.support(table)))
    (found, gradient), (expected, dense_gradient) = term(f), dense(f)  # the sum of f need not be 1
    assert found == pytest.approx(expected, rel=1e-10, abs=1e-10)
    np.testing.assert_allclose(gradient, dense_gradient, rtol=1e-10)
    assert (f * gradient).sum() == pytest.approx(term.support.sum(), rel=1e-10)  # (1) of mechanisms.terms


def test_the_gradient_is_the_derivative() -> None:
    term, rng = support_term(make("OUE"), collect(make("OUE"), 1000, 1)), np.random.default_rng(2)
    f, direction = rng.dirichlet(np.ones(K)), rng.normal(size=K)
    h = 1e-6 * direction
    assert (term(f + h)[0] - term(f - h)[0]) / 2e-6 == pytest.approx((term(f)[1] * direction).sum(), rel=1e-6)


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


def test_ten_thousand_fast_steps_equal_dense_ones() -> None:
    m = make("OUE", 30)
    table = collect(m, 5000, 4)
    expected = dense_em([DenseTerm(support_channel(m), table)], np.full(30, 1 / 30), 10_000)
    np.testing.assert_allclose(ibu(m, table, tol=0.0).frequencies, expected, atol=1e-10)


@pytest.mark.parametrize(("tol", "delta"), [(0.0, 0.0), (1e-5, 0.0), (0.0, 1e-7)])
def test_values_with_equal_counts_and_starts_stay_equal(tol: float, delta: float) -> None:
    """The 97 values have at most 32 combinations of counts and start. A loop over these kinds gives the same result as a loop
    over values."""
    rng, k = np.random.default_rng(11), 97
    sharp, blunt = make("OUE", k, 3.0), make("L-OSUE", k, 0.5)
    groups = [(m, m.table(400, rng.integers(100, 104, k))) for m in (sharp, blunt)]
    start = rng.integers(1, 3, k) / 1.0
    start /= start.sum()
    found = em([support_term(m, table) for m, table in groups], start, 500, tol, delta * 800)
    dense: list[Term] = [DenseTerm(support_channel(m), table) for m, table in groups]
    expected = em(dense, start, 500, tol, delta * 800)
    assert found[1:] == expected[1:]
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-10)
    assert len(np.unique(found[0])) <= 32


def test_em_on_dense_terms_equals_em_on_support_terms() -> None:
    m = make("L-OSUE")
    table = collect(m, 500, 5)
    term = support_term(m, table)
    for tol, delta in [(0.0, 0.0), (1e-4, 0.0), (0.0, 1e-3)]:
        f, iterations, converged = em([DenseTerm(support_channel(m), table)], np.full(K, 1 / K), 300, tol, delta)
        fast, fast_iterations, fast_converged = em([term], np.full(K, 1 / K), 300, tol, delta)
        assert (iterations, converged) == (fast_iterations, fast_converged)
        assert converged == (tol + delta > 0)
        np.testing.assert_allclose(f, fast, atol=1e-10)


def test_every_em_step_raises_the_likelihood_of_any_mix() -> None:
    mix = [("GRR", 0.5), ("L-OSUE", 2.0), ("OLH", 1.0), ("L-SUE", 1.0)]
    groups = [(make(name, 6, eps), collect(make(name, 6, eps), 400, i)) for i, (name, eps) in enumerate(mix)]
    rising = [ibu(groups, max_iter=i, tol=0.0).log_likelihood for i in range(1, 40)]
    assert all(b >= a - 1e-9 for a, b in itertools.pairwise(rising))


def test_em_stops_when_the_likelihood_gains_less_than_delta() -> None:
    m = make("OUE", 20)
    table = collect(m, 2000, 6)
    found = ibu(m, table, delta=1e-6)
    gains = np.diff([ibu(m, table, max_iter=found.iterations + i).log_likelihood for i in (-2, -1, 0)]) / table.n
    assert found.converged
    assert gains[1] < 1e-6 <= gains[0]
    assert not ibu(m, table, max_iter=found.iterations - 1, delta=1e-6).converged
    np.testing.assert_array_equal(found.frequencies, ibu(m, table, max_iter=found.iterations).frequencies)


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


def test_the_certificate_is_valid_and_scipy_finds_nothing_higher() -> None:
    mix = [("GRR", 0.5), ("L-OSUE", 1.0), ("OUE", 2.0)]
    groups = [(make(name, 6, eps), collect(make(name, 6, eps), 3000, i)) for i, (name, eps) in enumerate(mix)]
    terms: list[Term] = [support_term(m, table) for m, table in groups]
    best = minimize(
        lambda f: -value(terms, f) / 9000, np.full(K, 1 / K), jac=lambda f: -evaluate(terms, f)[1] / 9000, bounds=[(0, 1)] * K,
        constraints={"type": "eq", "fun": lambda f: f.sum() - 1}, method="SLSQP", options={"ftol": 1e-14},
    )  # fmt: skip
    found = mle(groups)
    assert found.log_likelihood / 9000 == pytest.approx(-best.fun, abs=1e-10)
    np.testing.assert_allclose(found.frequencies, best.x, atol=1e-5)
    for iterations in (1, 10, 100, 1000):  # the gap of an unfinished estimate bounds the missing log-likelihood
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


def test_fake_data_have_a_true_likelihood() -> None:
    m = make("OLH", 9).with_fake_data(3)
    table = m.table(300, make("OLH", 9).tabulate(make("OLH", 9).simulate(np.arange(300) % 9, np.random.default_rng(18))).counts)
    found = ibu(m, table, max_iter=50, tol=0.0)
    expected = dense_em([DenseTerm(m.channel().reshape(9, -1), table)], np.full(9, 1 / 9), 50)
    np.testing.assert_allclose(found.frequencies, expected, atol=1e-10)


# ---- the maximum of terms that are not separable


def dense_terms() -> list[Term]:
    blurred, symbols = TruncatedGeometric(k=40, eps=0.5), make("GRR", 40, 2.0)
    rng = np.random.default_rng(12)
    values = rng.choice(40, 4000, p=np.r_[np.full(10, 0.08), np.zeros(20), np.full(10, 0.02)])
    return [
        DenseTerm(blurred.channel(), blurred.tabulate(blurred.report(values[:3000], rng))),
        support_term(symbols, symbols.tabulate(symbols.simulate(values[3000:], rng))),
    ]


def test_projected_steps_raise_the_likelihood_to_the_gap() -> None:
    terms, uniform = dense_terms(), np.full(40, 1 / 40)
    f, evaluations = projected_maximum(terms, uniform, 4000 * 1e-9, 10_000)
    best, gradient = evaluate(terms, f)
    assert duality_gap(f, gradient) <= 4000 * 1e-9
    assert (f == 0).any()  # the steps reach the boundary exactly
    path = [value(terms, projected_maximum(terms, uniform, 0.0, i)[0]) for i in range(1, evaluations, 3)]
    assert all(b >= a - 1e-12 * abs(a) for a, b in itertools.pairwise(path))
    assert path[-1] <= best + 4000 * 1e-9
    slow, steps, _ = em(terms, uniform, 20 * evaluations, 0.0, 0.0)
    assert steps == 20 * evaluations
    assert duality_gap(slow, evaluate(terms, slow)[1]) > 4000 * 1e-9  # plain EM needs more than 20 times as many steps


def test_projected_steps_reach_one_maximum_from_any_start() -> None:
    terms = dense_terms()
    ends = [
        projected_maximum(terms, start, 4000 * 1e-11, 10_000)[0]
        for start in (np.full(40, 1 / 40), 0.99 * np.eye(40)[39] + 0.01 / 40)
    ]
    assert value(terms, ends[0]) == pytest.approx(value(terms, ends[1]), abs=1e-6)
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-4)


@given(st.lists(tables(wild=False), min_size=1, max_size=3))
def test_the_maximum_of_true_likelihoods_is_proven_by_dense_channels(groups: list[Group]) -> None:
    """Also for tables that no honest people make, such as one report or equal counts."""
    exact = [(m, table) for m, table in groups if table.n and (isinstance(m, Hashing) or m.marks == 1)]
    assume(any(isinstance(m, Hashing) for m, _ in exact))
    found, n = mle(exact), sum(table.n for _, table in exact)
    dense = [DenseTerm(m.channel().reshape(K, -1), table) for m, table in exact]
    gap = duality_gap(found.frequencies, evaluate([*dense], found.frequencies)[1])
    assert found.converged
    assert gap <= n * (PROVEN_GAP + 1e-11)
    assert (found.frequencies >= 0).all()
    assert found.frequencies.sum() == pytest.approx(1, abs=1e-12)
    slow = em([*dense], np.full(K, 1 / K), 200)[0]
    assert value([*dense], slow) <= value([*dense], found.frequencies) + gap + 1e-12 * n


def test_hashed_reports_need_few_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: with the background 1/k in every step, the maximum needs at least three times as many."""
    m = make("OLH", 1000)
    table = collect(m, 10_000, 19)
    quick = mle(m, table)
    monkeypatch.setattr("ldpstream.estimators.optimum.POWERS", np.array([-1.0]))
    slow = mle(m, table)
    assert quick.converged
    assert slow.converged
    assert quick.iterations < 30
    assert slow.iterations > 3 * quick.iterations
    np.testing.assert_allclose(quick.frequencies, slow.frequencies, atol=1e-4)


@given(arrays(np.float64, st.integers(1, 8), elements=st.floats(-10, 10)), st.integers(0, 2**32 - 1))
def test_the_nearest_distribution_meets_its_conditions(x: FloatArray, seed: int) -> None:
    """A bin above zero has moved by one number μ times its metric; a bin at zero would have moved below zero."""
    metric = np.random.default_rng(seed).uniform(0.01, 1, x.size)
    y = _nearest(x, metric)
    on = y > 0
    mu = (x - y)[on] / metric[on]
    assert y.sum() == pytest.approx(1)
    np.testing.assert_allclose(mu, mu[0], atol=1e-11)
    assert (x[~on] - mu[0] * metric[~on] <= 1e-11).all()


def test_steps_with_large_directions_keep_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding would change the sum of the shares by 2e-7 if the directions had no limit."""
    farthest, sums = [0.0], []

    def far(*arguments: Any) -> FloatArray:
        direction = _quasi_newton(*arguments)
        farthest.append(float(np.abs(direction).max()))
        return direction

    def seen(terms: list[Term], f: FloatArray) -> tuple[float, FloatArray]:
        sums.append(float(f.sum()))
        return evaluate(terms, f)

    monkeypatch.setattr("ldpstream.estimators.optimum._quasi_newton", far)
    monkeypatch.setattr("ldpstream.estimators.optimum.evaluate", seen)
    hashing, grr = make("L-OLH", 4, 0.001), make("L-GRR", 4, 2.0)
    rng = np.random.default_rng(1313)
    hashed = hashing.tabulate(hashing.simulate(rng.integers(0, 4, 1000), rng))
    found = mle([(hashing, hashed), (grr, grr.table(2, np.array([1, 1, 0, 0])))])
    assert found.converged
    assert max(farthest) > 1e7
    np.testing.assert_allclose(sums, 1, rtol=0, atol=1e-14)


def test_directions_keep_the_sum_and_solve_the_first_hessian() -> None:
    ascent, metric = np.linspace(-1, 2, 5), np.linspace(0.1, 0.3, 5)
    first = _quasi_newton(ascent, metric, [])
    assert first.sum() == pytest.approx(0, abs=1e-15)
    np.testing.assert_allclose(np.ptp(first / metric - ascent), 0, atol=1e-14)
    step = np.array([0.3, -0.1, 0.1, -0.2, -0.1])
    bend = 5 * step / metric + 3
    np.testing.assert_allclose(_quasi_newton(bend, metric, [(step, bend)]), step)  # the secant equation
    one = np.array([0.2]), np.array([3.0])
    assert np.isfinite(_quasi_newton(np.ones(1), np.ones(1), [one])).all()  # a single free bin has no direction


@pytest.mark.parametrize("power", [-3, -2, -1, 0])
def test_the_background_is_that_of_the_curvature(power: int) -> None:
    f = np.array([0.5, 0.3, 0.19, 0.01, 0.0, 0.0, 0.0, 0.0])
    metric = f + 8.0**power
    step = metric * np.random.default_rng(20).standard_normal(8)
    step -= metric * (step.sum() / metric.sum())
    assert _background(f, step, 1e150 * step / metric) == 8.0**power


@pytest.mark.parametrize(("k", "eps"), [(40, 8.0), (40, 300.0), (6, 300.0)])
def test_projected_steps_that_go_too_far_are_shortened(k: int, eps: float) -> None:
    m = make("GRR", k, eps)
    table = m.table(953 + k, np.r_[954, np.ones(k - 1, np.int64)])
    terms: list[Term] = [DenseTerm(m.channel(), table)]
    for start in (np.full(k, 1 / k), 0.99 * np.eye(k)[-1] + 0.01 / k):
        f, evaluations = projected_maximum(terms, start, table.n * 1e-9, 1000)
        np.testing.assert_allclose(f, closed_form(m, table.counts.astype(float)), atol=1e-5)
        path = [value(terms, projected_maximum(terms, start, 0.0, i)[0]) for i in range(1, evaluations + 1)]
        assert all(b >= a - 1e-12 * abs(a) for a, b in itertools.pairwise(path))


def test_few_reports_beside_very_many_keep_their_digits() -> None:
    m = make("GRR", K, 300.0)
    counts = np.r_[2**54, np.ones(5, np.int64)]
    for groups in (
        [(m, m.table(2**54 + 5, counts))],
        [(m, m.table(int(half.sum()), half)) for half in (counts // 2, counts - counts // 2)],
    ):
        found = mle(groups)
        np.testing.assert_allclose(found.frequencies, counts / counts.sum(), rtol=1e-12)
        assert found.converged


@given(st.lists(tables(wild=False), min_size=1, max_size=3))
def test_projected_steps_reach_the_separable_maximum(groups: list[Group]) -> None:
    terms: list[Term] = [support_term(m, table) for m, table in groups]
    if not all(term.support.any() for term in terms if isinstance(term, SupportTerm)):
        return
    n = sum(term.n for term in terms)
    f, _ = projected_maximum(terms, np.full(K, 1 / K), 1e-9 * n, 10_000)
    assert duality_gap(f, evaluate(terms, f)[1]) <= 1e-9 * n


# ---- edges


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("k", "eps"), [(2, 1e-9), (5, 1e-3), (2, 30.0), (5, 340.0)])
def test_no_count_and_no_eps_overflows(name: str, k: int, eps: float) -> None:
    m = make(name, k, eps)
    for counts in (np.zeros(m.table_shape, np.int64), np.arange(math.prod(m.table_shape)).reshape(m.table_shape) % 2):
        huge = counts.astype(np.int64) * (2**62 // counts.size)
        if isinstance(m, SubsetSelection):
            huge[:] = 0
            huge[: m.omega] = 2**62 * counts.any()
        table = m.table(int(huge[0]) if m.name == "SS" else 2**62 if m.marks is None else int(huge.sum()), huge)
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


def test_an_empty_table_gives_no_estimate(m: Mechanism) -> None:
    table = m.empty_table()
    for found in (ibu(m, table), mle(m, table), mle([(m, table)] * 2)):
        assert np.isnan(np.array([*found.frequencies, *found.standard_errors, found.gap, found.log_likelihood])).all()
        assert (found.converged, found.iterations) == (False, 0)


def test_wrong_arguments_are_refused(m: Mechanism) -> None:
    table = collect(m, 20, 13)
    c: Any = table.counts
    for wrong in (c - 21, c.astype(float), c * math.nan, c[:1], c + 21):
        for call in (ibu, mle):
            with pytest.raises(ValueError, match="counts"):
                call(m, CountTable(m.signature, table.n, wrong))
    with pytest.raises(ValueError, match="n must be an integer"):
        mle(m, CountTable(m.signature, -1, table.counts))
    with pytest.raises(ValueError, match="likelihood must be one of exact, support"):
        mle(m, table, likelihood="true")
    with pytest.raises(ValueError, match="delta must be"):
        ibu(m, table, delta=-1e-9)


def test_errors_of_a_mix_with_many_locations_are_nan() -> None:
    k = MAX_DENSE_K + 1
    place, grr = TruncatedGeometric(k=k, eps=0.5), make("GRR", k)
    groups = [(grr, collect(grr, 50, 14)), (place, place.tabulate(np.arange(k, dtype=place.report_dtype)))]
    assert np.isnan(standard_errors(groups, np.full(k, 1 / k), 1)).all()
    groups[1] = (place, place.empty_table())
    assert np.isfinite(standard_errors(groups, np.full(k, 1 / k), 1)).all()
