"""Tests of the projected search for the maximum of a sum of terms."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ldpstream.estimators import mle
from ldpstream.estimators.estimate import Group
from ldpstream.estimators.maximum.likelihood import PROVEN_GAP, em
from ldpstream.estimators.maximum.optimum import _nearest, _quasi_newton, duality_gap, evaluate, projected_maximum
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.counts.terms import Term
from ldpstream.mechanisms.families.local_hashing import Hashing

from .sample_terms import DenseTerm, K, closed_form, collect, dense_terms, make, tables, value


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
    monkeypatch.setattr("ldpstream.estimators.maximum.optimum.POWERS", np.array([-1.0]))
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

    monkeypatch.setattr("ldpstream.estimators.maximum.optimum._quasi_newton", far)
    monkeypatch.setattr("ldpstream.estimators.maximum.optimum.evaluate", seen)
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
