"""Estimates at levels with `every_steps`: a step counts a sample of the people, and a window counts everybody."""

import numpy as np
import pytest

from estimators import combined_inversion, combined_mle, matrix_inversion, mle
from estimators.diagnostics import fit
from estimators.publishing.publication import conclude, spent
from mechanisms import LONGITUDINAL, ONE_TIME, OneTime, mechanism
from producers.population import Population
from producers.values import MarkovValues
from surveys import parse_survey
from tests.producers.samples import level, make_survey

EPS, W = 1.0, 6
SPACED = {**level("GRR", eps_1=EPS), "every_steps": 3}


@pytest.mark.parametrize("name", ONE_TIME)
def test_the_errors_count_the_reports_of_a_person(name: str) -> None:
    """In w steps a person makes one report, in 2w steps two reports."""
    m = mechanism(name, 8, eps=EPS)
    assert isinstance(m, OneTime)
    table = m.tabulate(m.simulate(np.arange(4000) % 3, np.random.default_rng(1)))
    for estimator in (matrix_inversion, mle):
        for steps, reports in ((1, 1), (W, 1), (2 * W - 1, 2), (2 * W, 2)):
            spaced, plain = estimator(m.spaced(W), table, steps=steps), estimator(m, table, steps=reports)
            assert np.array_equal(spaced.frequencies, plain.frequencies)
            assert np.array_equal(spaced.standard_errors, plain.standard_errors)
    assert fit(m.spaced(W), table, W) == fit(m, table, 1)


def test_levels_of_both_kinds_are_weighted_by_their_own_people() -> None:
    rng, values = np.random.default_rng(2), np.arange(3000) % 4
    once, memoized = ONE_TIME["OUE"](k=4, eps=EPS), mechanism("L-OSUE", 4, eps_inf=2.0, eps_1=1.0)
    groups = [
        (once.spaced(W), once.tabulate(once.simulate(values, rng))),
        (memoized, memoized.tabulate(memoized.simulate(values, rng, steps=W))),
    ]
    own = [matrix_inversion(once, groups[0][1], steps=1), matrix_inversion(memoized, groups[1][1], steps=W)]
    weights = [1 / once.variance(1 / 4, 3000), 1 / memoized.variance(1 / 4, 3000, W)]
    together = combined_inversion(groups, steps=W)
    expected = sum(w * e.frequencies for w, e in zip(weights, own, strict=True)) / sum(weights)
    np.testing.assert_allclose(together.frequencies, expected)
    errors = np.sqrt(sum((w * e.standard_errors) ** 2 for w, e in zip(weights, own, strict=True))) / sum(weights)
    np.testing.assert_allclose(together.standard_errors, errors)
    assert (combined_mle(groups, W).standard_errors < own[1].standard_errors).all()


@pytest.mark.parametrize("k", [2, 10, 100])
def test_a_window_beats_a_memoized_window_of_equal_eps_inf(k: int) -> None:
    """At f = 0. A window of a memoized mechanism is never better than its first round, which is a one-time mechanism."""
    best = min(ONE_TIME[name](k=k, eps=EPS).variance() for name in ("GRR", "OUE", "OLH"))
    for name in LONGITUDINAL:
        for eps_1 in (0.1, 0.4):
            memoized = mechanism(name, k, eps_inf=EPS, eps_1=eps_1)
            windows = [memoized.variance(steps=steps) for steps in (1, W, 1000 * W)]
            assert windows == sorted(windows, reverse=True)
            assert best < windows[-1]


def test_steps_and_windows_are_estimates_of_the_whole_population() -> None:
    """Mean of z² over 120 histograms of 6 values: below 1.35, with a false-alarm rate below 1e-4.

    The truth is the histogram of all people. The control gives a step the errors of a window, which counts everybody.
    """
    survey = make_survey({"zone": (6, [SPACED])})
    m, n = survey.mechanisms[0][0], 3000
    of_steps, of_windows, control = [], [], []
    for seed in range(120):
        source = MarkovValues(survey, n, 3, seed)
        population = Population(survey, source, seed)
        tables = [m.tabulate(next(population.reports(step)).reports) for step in range(3)]
        truths = [np.bincount(source.at(step, 0)[1], minlength=6) / n for step in range(3)]
        assert sum(table.n for table in tables) == n
        step = conclude(survey, 0, 2, "step", [tables[2:]], True).estimators["mi"].estimate()
        window = conclude(survey, 0, 2, "window", [[table] for table in tables], True).estimators["mi"].estimate()
        of_steps.append((step.frequencies - truths[2]) / step.standard_errors)
        of_windows.append((window.frequencies - np.mean(truths, axis=0)) / window.standard_errors)
        control.append((step.frequencies - truths[2]) / window.standard_errors)
    assert 0.6 < np.mean(np.square(of_steps)) < 1.35
    assert 0.6 < np.mean(np.square(of_windows)) < 1.35
    assert np.mean(np.square(control)) > 1.35


def test_the_published_losses_are_those_of_the_possible_reports() -> None:
    m = ONE_TIME["GRR"](k=4, eps=EPS)
    limited = spent(m.spaced(24, 10), 100)
    assert (limited.t, limited.eps_t, limited.eps_sequence, limited.eps_sequence_exact) == (5, 5.0, 5.0, True)
    assert (limited.every_steps, limited.eps_window, limited.eps_lifetime, limited.eps_inf) == (24, 1.0, 10.0, None)
    assert spent(m.spaced(24, 10), 10_000).eps_sequence == 10.0
    assert (spent(m, 7).t, spent(m, 7).every_steps, spent(m, 7).eps_window, spent(m, 7).eps_lifetime) == (7, 1, 1.0, None)
    memoized = spent(mechanism("L-OSUE", 4, eps_inf=2.0, eps_1=1.0), 7)
    assert (memoized.t, memoized.every_steps, memoized.eps_window, memoized.eps_lifetime) == (7, 1, None, None)


def test_fake_data_and_a_split_budget_keep_the_spacing() -> None:
    attributes = {name: (5, [SPACED]) for name in ("one", "two")}
    for collection, eps in (("rs+fd", EPS), ("spl", EPS / 2)):
        m = parse_survey(make_survey(attributes, collection).model_dump(by_alias=True, mode="python")).mechanisms[0][0]
        assert (m.every_steps, m.eps_window, m.device.every_steps) == (3, eps, 3)
