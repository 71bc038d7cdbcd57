"""Tests the matrix inversion: location mechanisms and mixed groups in repeated surveys, and no reports."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.papers.free_will_estimators import combine_mechanisms, combine_results
from lab.papers.location import LOCATION
from lab.papers.location.dense import DenseReading
from ldpstream.estimators import matrix_inversion, post_processing
from ldpstream.estimators.diagnostics import drift, fit, mass_below_zero
from ldpstream.estimators.estimate import Estimate, Group
from ldpstream.estimators.maximum.likelihood import ibu, mle
from ldpstream.mechanisms import NAMES, ChannelMechanism, CountTable, Mechanism, mechanism

from .sample_terms import make
from .test_estimators import collect

LINE = np.abs(np.subtract.outer(np.arange(6), np.arange(6))).astype(float)
F = np.array([0.35, 0.25, 0.2, 0.1, 0.07, 0.03])


PLACES: list[ChannelMechanism] = [
    LOCATION["truncated-geometric"](k=6, eps=1.0),
    LOCATION["planar-geometric"](shape=(3, 2), eps=1.5),
    LOCATION["Shokri"](prior=np.arange(1, 7) / 21, distance=LINE, max_loss=0.8, loss=LINE**2),
]
EVERY: list[Mechanism] = [*(make(name, eps_1=2.0) for name in NAMES), *PLACES]


def invertible(m: Mechanism) -> bool:
    return not isinstance(m, ChannelMechanism) or bool(np.linalg.matrix_rank(m.channel()) == m.k)


@pytest.mark.parametrize("m", PLACES, ids=repr)
@pytest.mark.parametrize("steps", [1, 4])
def test_estimates_and_errors_match_repeated_surveys(m: ChannelMechanism, steps: int) -> None:
    """Uses 400 surveys of 500 people. The mean and variance of every bin differ from the stated mean and variance by less than
    6 standard errors. A larger difference has probability 1e-8. The control divides a single step's variance by the number of
    steps; it differs by more. A singular channel has the bias of least squares: the mean is A⁺A f.
    (`tests/mechanisms/test_variance.py` tests the pure mechanisms.)
    """
    rng = np.random.default_rng([steps, m.k, len(m.signature)])
    found = [matrix_inversion(m, collect(m, rng.choice(6, 500, p=F), rng, steps), steps=steps) for _ in range(400)]
    estimates = np.array([e.frequencies for e in found])
    stated = m.reading.inversion_variances(F, 500, steps)
    expected = F @ m.channel() @ m.reading.inverse()
    assert np.abs((estimates.mean(axis=0) - expected) / np.sqrt(stated / 400)).max() < 6
    spread = np.sqrt(6 / 399)  # relative error of a sample variance, for tails somewhat heavier than normal
    assert np.abs(estimates.var(axis=0, ddof=1) / stated - 1).max() < 6 * spread
    plugged_in = np.mean([e.standard_errors**2 for e in found], axis=0)
    np.testing.assert_allclose(plugged_in, stated, rtol=0.1)
    if invertible(m) and steps > 1:
        averaged_out = m.reading.inversion_variances(F, 500) / steps
        assert np.abs(estimates.var(axis=0, ddof=1) / averaged_out - 1).max() > 6 * spread


@pytest.mark.parametrize("k", [2, 3, 7, 40])
@pytest.mark.parametrize("eps", [0.05, 1.0, 5.0])
def test_the_lines_inversion_equals_the_dense_one(k: int, eps: float) -> None:
    m, rng = LOCATION["truncated-geometric"](k=k, eps=eps), np.random.default_rng(k)
    observed, f = rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k))
    dense, table = DenseReading(m), CountTable(m.signature, 10**15, (10**15 * observed).astype(np.int64))
    slow = dense.inversion(table)
    np.testing.assert_allclose(m.reading.inversion(table), slow, rtol=1e-8, atol=1e-10 * np.abs(slow).max())
    expected = CountTable(m.signature, 10**15, (10**15 * (f @ m.channel())).astype(np.int64))
    np.testing.assert_allclose(m.reading.inversion(expected), f, atol=1e-10)
    for steps in (1, 5):
        slow = dense.inversion_variances(f, 9, steps)
        np.testing.assert_allclose(m.reading.inversion_variances(f, 9, steps), slow, rtol=1e-7)


@pytest.mark.parametrize("m", PLACES[:2], ids=repr)
def test_fake_data_are_inverted(m: ChannelMechanism) -> None:
    """The inversion of expected counts is exact. If one report in d = 3 is true, the variance is d² times the variance of the
    device's mechanism. This variance is taken at the frequencies of real and fake values together."""
    m.reading.inverse()
    mixed = m.with_fake_data(3)
    table = CountTable(mixed.signature, 10**15, (10**15 * (F @ mixed.channel())).astype(np.int64))
    np.testing.assert_allclose(mixed.reading.inversion(table), F, atol=1e-11)
    put_in = (F + 2 / 6) / 3
    np.testing.assert_allclose(
        mixed.reading.inversion_variances(F, 5, 1), 9 * m.reading.inversion_variances(put_in, 5, 1), rtol=1e-9
    )
    np.testing.assert_allclose(
        mixed.reading.inversion_variances(F, 5, 4), 9 * m.reading.inversion_variances(put_in, 5, 4), rtol=1e-9
    )


def test_mixed_groups_combine_without_bias_and_more_accurately() -> None:
    """Uses 300 surveys with a pure mechanism and both geometric mechanisms. The mean of every bin is correct to within 6
    standard errors. A larger difference has probability 1e-8."""
    rng, kinds = np.random.default_rng(5), [make("L-OSUE"), *PLACES[:2]]
    found = []
    for _ in range(300):
        groups: list[Group] = [(m, collect(m, rng.choice(6, 600, p=F), rng)) for m in kinds]
        found.append(matrix_inversion(groups))
        for group in groups:
            assert (found[-1].standard_errors < 1.02 * matrix_inversion(*group).standard_errors).all()
    estimates, errors = (np.array([getattr(e, name) for e in found]) for name in ("frequencies", "standard_errors"))
    assert np.abs((estimates.mean(axis=0) - F) / (errors.mean(axis=0) / np.sqrt(300))).max() < 6
    assert np.abs(estimates.std(axis=0, ddof=1) / errors.mean(axis=0) - 1).max() < 6 / np.sqrt(2 * 299)


def test_a_group_without_information_is_left_out() -> None:
    told, untold = make("GRR", eps_1=2.0), mechanism("L-GRR", 6, eps_inf=2.0, eps_1=1.0)
    untold.q = untold.p  # calibration="paper" can give p and q that are equal as doubles
    groups: list[Group] = [(told, told.table(3, [1, 2, 0, 0, 0, 0])), (untold, untold.table(2, [0, 0, 0, 0, 2, 0]))]
    np.testing.assert_array_equal(matrix_inversion(groups).frequencies, matrix_inversion(*groups[0]).frequencies)
    nothing = matrix_inversion(*groups[1], post="norm-sub")
    assert np.isnan([nothing.frequencies, nothing.standard_errors]).all()
    assert nothing.n == 2


# ---- no reports, and tables that reports cannot make


def estimates_of(m: Mechanism, steps: int) -> list[Estimate]:
    group: Group = (m, m.empty_table())
    found = [
        ibu(*group, steps=steps),
        mle(*group, steps=steps),
        ibu([group, group], steps=steps),
        mle([group], steps=steps),
    ]
    return found + [matrix_inversion(*group, post=post, steps=steps) for post in post_processing.NAMES]


@pytest.mark.parametrize("m", EVERY, ids=repr)
@settings(max_examples=3)
@given(steps=st.integers(1, 40))
def test_no_reports_give_nan(m: Mechanism, steps: int) -> None:
    """Every estimator returns NaN with `converged` false, without a crash or a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        group: Group = (m, m.empty_table())
        for estimate in estimates_of(m, steps):
            assert np.isnan(estimate.standard_errors).all()
            assert np.isnan(estimate.interval()).all()
            assert estimate.n == 0
            assert np.isnan(estimate.frequencies).all()
            assert not estimate.converged
        assert math.isnan(fit(*group, steps).z)
        assert math.isnan(mass_below_zero(matrix_inversion(*group)))
        assert drift(matrix_inversion(*group), matrix_inversion(*group)) is None
        assert np.isnan(combine_results([group], "INV")).all()
        if m.table_shape == (m.k,) and not m.report_dtype.shape:
            assert np.isnan(combine_mechanisms([group], "IBU")).all()


def test_sums_of_counts_beyond_64_bits_are_distinguished() -> None:
    m, n = mechanism("SS", 6, eps=1.0, omega=4), 2**62
    half = np.array([n, n, n, n, 0, 0])
    assert m.table(n, half).n == n
    with pytest.raises(ValueError, match="must sum to"):
        m.table(n, np.zeros(6, np.int64))  # the true sum, 4 · 2^62, overflows to 0 in 64 bits
