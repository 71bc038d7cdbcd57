"""Tests every estimator with every mechanism: with no reports, and with tables of other mechanisms."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest

from lab.papers.free_will_estimators import combine_mechanisms, combine_results
from ldpstream import estimators
from ldpstream.estimators import Estimate, empirical_bayes, ems, ibu, matrix_inversion, mle
from ldpstream.estimators.diagnostics import drift, fit, mass_below_zero
from ldpstream.estimators.estimate import Group
from ldpstream.estimators.post_processing import NAMES as POST_NAMES
from ldpstream.mechanisms import LONGITUDINAL, NAMES, NUMERIC, CountTable, Mechanism, mechanism
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.estimates.publication import Publication
from tests.small_survey import small_survey

K = 6
# Functions that call each estimator on a table, for every name that `estimators` exports and every variant.
LIKELIHOOD: dict[str, Callable[[Mechanism, CountTable], Estimate]] = {
    "ibu": ibu,
    "mle": mle,
    "ems": ems,
    "ibu of two levels": lambda m, table: ibu([(m, table), (m, table)]),
    "mle of a list": lambda m, table: mle([(m, table)], steps=3),
    "ems of two levels": lambda m, table: ems([(m, table), (m, table)]),
    "ibu of supports": lambda m, table: ibu(m, table, likelihood="support"),
    "mle of supports": lambda m, table: mle(m, table, likelihood="support"),
}
INVERSION: dict[str, Callable[[Mechanism, CountTable], Estimate]] = {
    "empirical_bayes": empirical_bayes,
    "empirical_bayes of two levels": lambda m, table: empirical_bayes([(m, table), (m, table)], steps=3),
    "ordered": partial(empirical_bayes, ordered=True),
    "ordered, of two levels": lambda m, table: empirical_bayes([(m, table), (m, table)], ordered=True, steps=3),
    "matrix_inversion": matrix_inversion,
    "matrix_inversion of two levels": lambda m, table: matrix_inversion([(m, table), (m, table)], steps=3),
    **{post: partial(matrix_inversion, post=post) for post in POST_NAMES},
}
OTHERS: dict[str, Callable[[Mechanism, CountTable], Any]] = {
    "fit": fit,
    "combine_results": lambda m, table: combine_results([(m, table)], "INV"),
    "combine_mechanisms": lambda m, table: combine_mechanisms([(m, table)], "INV"),
}


def build(name: str) -> Mechanism:
    if name.endswith(" with fake data"):
        return build(name.removesuffix(" with fake data")).with_fake_data(3)
    return mechanism(name, k=K, eps_inf=2.0, eps_1=1.0) if name in LONGITUDINAL else mechanism(name, k=K, eps=1.0)


ALL = (*NAMES, *NUMERIC, *(f"{name} with fake data" for name in (*NAMES, *NUMERIC)))


def test_no_estimator_is_left_out() -> None:
    assert {"Estimate", "Number", "mean", "post_process", "quantiles", *LIKELIHOOD, *INVERSION} >= set(estimators.__all__)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("combine", [ibu, mle, ems, matrix_inversion, empirical_bayes, partial(empirical_bayes, ordered=True)])
def test_a_level_without_people_changes_no_estimate(name: str, combine: Callable[[list[Group]], Estimate]) -> None:
    """Tests an empty level both before and after a level with reports."""
    m, other = build(name), mechanism("GRR", k=K, eps=0.5)
    group = (other, other.tabulate(other.simulate(np.arange(300) % 4, np.random.default_rng(1))))
    alone = combine([group])
    for groups in ([group, (m, m.empty_table())], [(m, m.empty_table()), group]):
        found = combine(groups)
        np.testing.assert_array_equal(found.frequencies, alone.frequencies)
        np.testing.assert_array_equal(found.standard_errors, alone.standard_errors)


@pytest.mark.parametrize("name", ALL)
def test_no_reports_give_nan_without_warnings(name: str) -> None:
    """Every estimator returns NaN with `converged` false, and emits no warning."""
    m = build(name)
    for estimator in (LIKELIHOOD | INVERSION).values():
        found = estimator(m, m.empty_table())
        assert np.isnan(found.frequencies).all()
        assert np.isnan(found.standard_errors).all()
        assert (found.n, found.iterations, found.converged) == (0, 0, False)
        assert np.isnan([found.gap, found.log_likelihood]).all()
        assert np.isnan(mass_below_zero(found))
        assert np.isnan(found.interval()[0]).all()
        assert drift(found, found) is None
    assert np.isnan(fit(m, m.empty_table()).z)


@pytest.mark.parametrize("name", [*NAMES, *NUMERIC])
def test_a_publication_without_reports_has_no_numbers(name: str) -> None:
    """Every number and diagnostic is None. The publication's JSON decodes to an equal publication."""
    eps = {"eps_inf": 2.0, "eps_1": 1.0} if name in LONGITUDINAL else {"eps": 1.0}
    survey = small_survey({"name": "a", "size": K, "level": ({"name": "b", "mechanism": name, **eps},)})
    nothing = [survey.mechanisms[0][0].empty_table()]
    p = conclude(survey, 0, 1, "window", [nothing, nothing], True, nothing)
    assert (p.reports, p.panes) == (0, 0)
    for result in p.estimators.values():
        assert result.frequencies == result.standard_errors == [None] * K
        assert (result.converged, result.gap) == (False, None)
    assert all(said in (None, {"b": None}, ()) for said in msgspec.to_builtins(p.diagnostics).values())
    assert msgspec.json.decode(msgspec.json.encode(p), type=Publication) == p


def taken_from(name: str) -> Mechanism:
    """Returns another mechanism on the same number of values."""
    return mechanism("GRR", k=K, eps=0.123) if name != "GRR" else mechanism("OUE", k=K, eps=1.0)


@pytest.mark.parametrize("name", ALL)
def test_the_table_of_another_mechanism_is_refused(name: str) -> None:
    m, other = build(name), taken_from(name)
    with pytest.raises(ValueError, match="count tables of different mechanisms cannot be added"):
        m.empty_table() + other.empty_table()
    for estimator in (LIKELIHOOD | INVERSION | OTHERS).values():
        with pytest.raises(ValueError, match=r"expected a count table of|groups must report one of the k values"):
            estimator(m, other.empty_table())


@pytest.mark.parametrize("name", ALL)
def test_invalid_counts_are_refused(name: str) -> None:
    """`Mechanism.table` refuses invalid stored counts. Every estimator refuses such counts in a handmade table."""
    m = build(name)
    good = np.zeros(m.table_shape, np.int64)
    wrong: list[np.ndarray] = [
        good - 1, good + 0.5, good.astype(float), np.full(m.table_shape, np.nan), np.zeros(0, np.int64),
        np.zeros((*m.table_shape, 1), np.int64), good[..., :-1], good + 11, good.astype(bool),
    ]  # fmt: skip
    for counts in wrong:
        with pytest.raises(ValueError, match="counts of"):
            m.table(10, counts)
        for estimator in (LIKELIHOOD | INVERSION).values():
            with pytest.raises(ValueError, match="counts of"):
                estimator(m, CountTable(m.signature, 10, counts))
        with pytest.raises(ValueError, match="counts of"):
            fit(m, CountTable(m.signature, 10, counts))
    for n in list[Any]([-1, 1.5, True, float("nan"), "1"]):
        with pytest.raises(ValueError, match="n must be"):
            m.table(n, good)
