"""Tests estimates at levels with `every_steps`: a sample of the people reports at a step, all people in a window."""

import numpy as np
import pytest
from msgspec.structs import replace

from ldpstream.estimators import matrix_inversion, mle
from ldpstream.mechanisms import ONE_TIME, CountTable, mechanism
from ldpstream.producers.population import Population
from ldpstream.promises.outlook import spent
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.estimates.publication import Span
from tests.producers.samples import WrittenValues, level, make_survey

EPS, W = 1.0, 6
SPACED = {**level("GRR", eps_1=EPS), "every_steps": 3}
LARGE = {**level("GRR", eps_1=6.0), "every_steps": 3}


def table_of(name: str, n: int) -> CountTable:
    m = mechanism(name, 4, eps=EPS)
    return m.tabulate(m.simulate(np.arange(n) % 4, np.random.default_rng(n)))


def test_the_errors_count_the_reports_of_one_device() -> None:
    """A device reports at every third step: once in a window of three steps, twice in six. Empty panes do not count."""
    survey = make_survey({"zone": (4, [{**level("GRR", eps_1=EPS), "every_steps": 3}])})
    m, few = survey.mechanisms[0][0], table_of("GRR", 400)
    empty = m.empty_table()
    for panes, reports in (
        ([few], 1), ([few, few], 1), ([few] * 3, 1), ([few] * 4, 2), ([few] * 6, 2), ([few] * 7, 3),
        ([few, empty, empty, few], 2), ([few, empty, few, empty, empty], 1), ([empty] * 5, 1),
    ):  # fmt: skip
        window = conclude(survey, 0, 20, "window", [[table] for table in panes], True)
        total = sum(panes, empty)
        for name, expected in (("mi", matrix_inversion(m, total, steps=reports)), ("mle", mle(m, total, steps=reports))):
            np.testing.assert_array_equal(window.estimators[name].estimate().standard_errors, expected.standard_errors)


def test_levels_of_both_kinds_are_weighted_by_their_own_people() -> None:
    rng, values = np.random.default_rng(2), np.arange(3000) % 4
    once, memoized = ONE_TIME["OUE"](k=4, eps=EPS), mechanism("L-OSUE", 4, eps_inf=2.0, eps_1=1.0)
    groups = [
        (once, once.tabulate(once.simulate(values, rng))),
        (memoized, memoized.tabulate(memoized.simulate(values, rng, steps=W))),
    ]
    own = [matrix_inversion(once, groups[0][1]), matrix_inversion(memoized, groups[1][1], steps=W)]
    weights = [1 / once.variance(1 / 4, 3000), 1 / memoized.variance(1 / 4, 3000, W)]
    together = matrix_inversion(groups, steps=[1, W])
    expected = sum(w * e.frequencies for w, e in zip(weights, own, strict=True)) / sum(weights)
    np.testing.assert_allclose(together.frequencies, expected)
    errors = np.sqrt(sum((w * e.standard_errors) ** 2 for w, e in zip(weights, own, strict=True))) / sum(weights)
    np.testing.assert_allclose(together.standard_errors, errors)
    assert (mle(groups, steps=[1, W]).standard_errors < own[1].standard_errors).all()
    with pytest.raises(ValueError, match="one for each of 2 groups, got 3"):
        matrix_inversion(groups, steps=[1, 1, W])


@pytest.mark.parametrize("active", [(0, 1, 2, 3, 4, 5), (0, 3)], ids=["always", "with pauses"])
def test_steps_and_windows_are_estimates_of_the_whole_population(active: tuple[int, ...]) -> None:
    """The mean of z² over 150 populations is below 1.5. A correct program fails with a probability below 1e-4.

    With pauses, a device reports twice in two panes. ε is large, so most of the variance comes from the sampling of people.
    Both controls must exceed 1.5: errors from the reports' noise alone, and a window's errors as if each device had reported
    once.
    """
    survey = replace(make_survey({"zone": (2, [LARGE])}), window_steps=6)
    m, n, share = survey.mechanisms[0][0], 300, 0.3
    found: dict[str, list[float]] = {"step": [], "window": [], "reports alone": [], "once": []}
    for seed in range(150):
        rng = np.random.default_rng(seed)
        values = (rng.random(n) < share).astype(int).tolist()
        population = Population(survey, WrittenValues([values if step in active else [None] * n for step in range(6)]), seed)
        tables = [sum((m.tabulate(p.reports) for p in population.reports(step)), m.empty_table()) for step in range(6)]
        reports = sum(table.n for table in tables)
        spans: tuple[tuple[Span, list[CountTable]], ...] = (("step", tables[:1]), ("window", tables))
        for span, used in spans:
            estimate = conclude(survey, 0, 5, span, [[table] for table in used], True).estimators["mi"].estimate()
            z = (estimate.frequencies[1] - share) / estimate.standard_errors[1]
            found[span].append(z**2)
        alone = m.p * (1 - m.p) / (reports * (m.p - m.q) ** 2)
        found["reports alone"].append((estimate.frequencies[1] - share) ** 2 / alone)
        once = matrix_inversion(m, sum(tables, m.empty_table())).standard_errors[1]
        found["once"].append((estimate.frequencies[1] - share) ** 2 / once**2)
    means = {name: float(np.mean(squares)) for name, squares in found.items()}
    assert means["step"] < 1.5
    assert means["window"] < 1.5
    assert means["reports alone"] > 1.5
    assert means["once"] > 1.5


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
        m = make_survey(attributes, collection).mechanisms[0][0]
        assert (m.every_steps, m.eps_window, m.device.every_steps) == (3, eps, 3)
