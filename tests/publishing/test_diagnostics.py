"""Tests of the fit and of the drift: the rate of false alarms, the detection of forgers, and drift after a change."""

import math

import numpy as np
import pytest
from scipy.stats import binom, chi2, norm

from ldpstream.estimators import matrix_inversion
from ldpstream.estimators.diagnostics import (
    Fit,
    _below_the_floor,
    _floor,
    _floor_together,
    drift,
    fit,
)
from ldpstream.mechanisms import LONGITUDINAL, NAMES, CountTable, Longitudinal, Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.counts.fit_tests import log_gamma_tail, ones
from tests.mechanisms import reference

K = 12
MIXED = np.array([0.4, 0.3, 0.2, 0.1] + [0.0] * 8)
POINT = np.eye(K)[3]  # all people have one value; all other values are at the floor, where false alarms are most frequent


def build(name: str, k: int = K) -> Mechanism:
    return mechanism(name, k=k, eps_inf=2.0, eps_1=1.0) if name in LONGITUDINAL else mechanism(name, k=k, eps=1.0)


def surveys(
    m: Mechanism, rng: np.random.Generator, runs: int, people: int, steps: int = 1, f: FloatArray = MIXED
) -> list[CountTable]:
    """Returns the tables of `runs` surveys. In each survey, all people report at every step with unchanged values."""
    values = rng.choice(m.k, people * runs, p=f)
    reports = m.simulate(values, rng, steps).reshape(steps, runs, people, *m.report_dtype.shape)
    return [sum(map(m.tabulate, reports[:, run]), m.empty_table()) for run in range(runs)]


@pytest.mark.parametrize("name", NAMES)
def test_honest_counts_raise_alarms_as_rarely_as_stated(name: str) -> None:
    """1000 surveys of 300 people who all have the same value, over one step or over three steps from memos. Alarms at 5 % and
    0.1 % are not more frequent than stated. A correct test fails with probability 1e-6. A rate of 12 % in place of 5 %, or of 3
    % in place of 0.1 %, passes with probability at most 4e-4.

    `functions` is exact, so its alarms are not rarer than stated either: another test in this file checks its rate.
    """
    m, rng, steps = build(name), np.random.default_rng(NAMES.index(name)), 3 if name in LONGITUDINAL else 1
    fits = [fit(m, table, steps) for table in surveys(m, rng, 1000, 300, steps, POINT)]
    for level in (0.05, 0.001):
        most = binom.ppf(1 - 1e-6, 1000, level)
        assert sum(found.p <= level for found in fits) <= most
        for test in fits[0].tests:
            assert sum(found.tests[test] <= level for found in fits) <= most


FEW_ONES = [
    ("SUE", 2, 12.0, 5, 1),
    ("SUE", 3, 6.0, 7, 1),
    ("OUE", 4, 10.0, 30, 1),
    ("L-SUE", 3, 12.0, 10, 4),
    ("L-OSUE", 2, 8.0, 4, 3),
]


def unlikely(name: str, k: int, eps: float) -> Mechanism:
    """Returns a mechanism whose reports rarely have a one for another value."""
    return mechanism(name, k=k, eps_inf=eps, eps_1=0.9 * eps) if name in LONGITUDINAL else mechanism(name, k=k, eps=eps)


def ones_by_enumeration(m: Mechanism, people: int, steps: int) -> FloatArray:
    """Returns the probabilities of 0, 1, … ones, convolved bit by bit."""
    p1, q1, p2, q2 = m.rounds()
    times, chances = np.arange(steps + 1), np.ones(1)
    for memo, bits in ((p1, people), (q1, people * (m.k - 1))):
        one_bit = memo * binom.pmf(times, steps, p2) + (1 - memo) * binom.pmf(times, steps, q2)
        for _ in range(bits):
            chances = np.convolve(chances, one_bit)
    return chances


@pytest.mark.parametrize(("name", "k", "eps", "people", "steps"), FEW_ONES)
def test_the_chance_of_ones_is_bounded(name: str, k: int, eps: float, people: int, steps: int) -> None:
    """Both tails, by enumeration. The bound is at least the tail, and nearly its rate."""
    m = unlikely(name, k, eps)
    chances = ones_by_enumeration(m, people, steps)
    up_to, from_on = chances.cumsum(), chances[::-1].cumsum()[::-1]
    for found in range(people * steps * k + 1):
        counts = np.full(k, found // k) + (np.arange(k) < found % k)
        log_p, side = ones(m, m.rounds(), m.table(people * steps, counts), steps) or (0.0, 0)
        exact = (from_on if side > 0 else up_to)[found]
        if exact > 1e-280:
            assert 0.999 * exact <= math.exp(log_p) / 2 <= 20 * exact**0.9, found


@pytest.mark.parametrize(("name", "k", "eps", "people", "steps"), FEW_ONES)
def test_few_almost_exact_reports_raise_alarms_as_stated(name: str, k: int, eps: float, people: int, steps: int) -> None:
    """In 3000 surveys, alarms at 5 %, 0.1 % and 1e-6 are not more frequent than stated.

    A correct test fails with probability 1e-6. The control uses the normal distribution. About one survey in forty has a single
    false report, which gives the control a score above 6.
    """
    m = unlikely(name, k, eps)
    tables = surveys(m, np.random.default_rng([30, people]), 3000, people, steps, np.eye(k)[0])
    fits = [fit(m, table, steps) for table in tables]
    for level in (0.05, 0.001, 1e-6):
        assert sum(found.p <= level for found in fits) <= binom.ppf(1 - 1e-6, 3000, level)
    if (name, k) == ("SUE", 2):
        scores = [abs(float(t.counts.sum()) - t.n) / math.sqrt(t.n * 2 * m.q * (1 - m.q)) for t in tables]
        assert sum(score > 6 for score in scores) > 30


@pytest.mark.parametrize(("name", "k", "eps"), [("OLH", 6, 2.0), ("L-OLH", 16, 4.0), ("BLH", 2, 1.0)])
def test_counts_that_rise_together_raise_alarms_as_rarely_as_stated(name: str, k: int, eps: float) -> None:
    """All values of a line of hash functions rise and fall together. 4000 surveys of 3000 people with one value.

    The control treats the counts as independent: its alarms at 0.1 % are several times as frequent as stated.
    """
    m = unlikely(name, k, eps)
    rng, rounds = np.random.default_rng([40, k]), 4000
    tables = surveys(m, rng, rounds, 3000, 1, np.eye(k)[0])
    fits = [fit(m, table) for table in tables]
    for level in (0.05, 0.001):
        most = binom.ppf(1 - 1e-6, rounds, level)
        for test in fits[0].tests:
            assert sum(found.tests[test] <= level for found in fits) <= most
    if k > 2:
        independent = [_floor(_below_the_floor(m, table, 1)[0]) for table in tables]
        assert sum(found[0] <= math.log(0.001) for found in independent if found) > binom.ppf(1 - 1e-6, rounds, 0.001)


def test_reports_that_people_repeat_are_no_further_evidence_of_too_much_support() -> None:
    """Control: as reports of five times as many people, they are."""
    m = mechanism("L-OLH", 6, eps_inf=2.0, eps_1=1.0)
    counts = np.zeros(m.table_shape, np.int64)
    counts[0, 0] = 20  # supports every value
    once = fit(m, m.table(20, counts)).tests["total"]
    assert fit(m, m.table(100, 5 * counts), steps=5).tests["total"] == pytest.approx(once)
    assert fit(m, m.table(100, 5 * counts)).tests["total"] < once / 2


def test_the_bound_for_correlated_counts_holds() -> None:
    """Compares 4000 sums Σ min(z, 0)² of normal numbers with one correlation with the bound, at several levels."""
    rng = np.random.default_rng(6)
    for k, correlation in ((3, 0.4), (40, 0.3), (40, 0.9)):
        z = math.sqrt(correlation) * rng.normal(size=(4000, 1)) + math.sqrt(1 - correlation) * rng.normal(size=(4000, k))
        tests = [_floor_together(row, k * correlation) for row in np.minimum(z, 0)]
        for level in (0.3, 0.05, 0.001):
            assert sum(test[0] <= math.log(level) for test in tests if test) <= binom.ppf(1 - 1e-6, 4000, level)
    found = _floor_together(np.full(40, -10.0), 40 * 0.3)
    assert found is not None
    assert found[0] < -50  # the bound still finds a common loss of support


def exceeding(m: Mechanism, tables: list[CountTable], steps: int) -> int:
    return sum(fit(m, table, steps).p <= 0.05 for table in tables)


@pytest.mark.parametrize("name", ["L-OSUE", "L-OLH", "OUE"])
def test_a_window_of_new_people_at_every_step_raises_no_alarm(name: str) -> None:
    """For new people the bounds are conservative on both sides, because counts are more even than with the same people."""
    m, rng = build(name), np.random.default_rng(3)
    tables = [sum(parts, m.empty_table()) for parts in zip(*(surveys(m, rng, 400, 300) for _ in range(6)), strict=True)]
    assert exceeding(m, tables, 6) <= binom.ppf(1 - 1e-6, 400, 0.05)


def test_the_floor_follows_the_mixture_of_chi_squares() -> None:
    """Compares 4000 sums Σ min(z, 0)² of independent normal numbers with the mixture, at several quantiles."""
    rng = np.random.default_rng(5)
    for k in (3, 40):
        below = np.minimum(rng.normal(size=(4000, k)), 0)
        tests = [test for row in below if (test := _floor(row)) is not None]
        assert len(tests) == 4000
        log_p = np.array([test[0] for test in tests])
        for level in (0.3, 0.05, 0.001):
            low, high = binom.ppf([1e-6, 1 - 1e-6], 4000, level)
            assert low <= (log_p <= math.log(level)).sum() <= high
    assert _floor(np.zeros(5)) == pytest.approx((0.0, -1), abs=0.05)


def test_gamma_tails_are_right_far_out() -> None:
    shapes = np.array([0.5, 3.0, 40.0])
    np.testing.assert_allclose(log_gamma_tail(30.0, shapes), chi2.logsf(60.0, 2 * shapes), rtol=1e-10)
    far = log_gamma_tail(5000.0, shapes)
    np.testing.assert_allclose(far, (shapes - 1) * math.log(5000) - 5000 - [math.lgamma(a) for a in shapes], rtol=1e-4)
    assert (log_gamma_tail(0.0, shapes) == 0).all()


# ---- forgers


def forge(m: Mechanism, table: CountTable, forged: int) -> CountTable:
    """Returns the table plus `forged` reports that raise value K - 1 as much as a report can."""
    return table + m.table(forged, forged * m.tabulate(reference.forged(m)).counts)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_one_forged_report_in_twenty_is_detected(name: str, steps: int) -> None:
    """The score is beyond ±6 in each of 5 surveys of 5000 people (of 100 000 people for symbols and sets)."""
    m, rng = build(name), np.random.default_rng([NAMES.index(name), steps])
    people = 100_000 if m.marks and len(m.table_shape) == 1 else 5000
    for table in surveys(m, rng, 5, people, steps):
        assert abs(fit(m, table, steps).z) < 5.5
        found = fit(m, forge(m, table, table.n // 19), steps)
        assert abs(found.z) > 6, found


def test_empty_and_full_reports_are_detected_by_sign() -> None:
    m = build("L-OSUE")
    (table,) = surveys(m, np.random.default_rng(7), 1, 5000)
    empty = fit(m, table + m.table(300, np.zeros(K, np.int64)))
    full = fit(m, forge(m, table, 250))
    assert (empty.z < -6, full.z > 6, full.sign) == (True, True, "ones")
    assert empty.sign in ("ones", "floor")


def test_a_too_frequent_symbol_is_detected() -> None:
    m = build("OLH")
    (table,) = surveys(m, np.random.default_rng(9), 1, 5000)
    counts = np.zeros(m.table_shape, np.int64)
    counts[:, 2] = 20  # equally many reports from every function
    found = fit(m, table + m.table(int(counts.sum()), counts))
    assert found.tests["symbols"] < 1e-6 < found.tests["functions"]


# ---- the edges


def test_fit_and_drift_are_undefined_without_reports() -> None:
    for name in NAMES:
        m = build(name)
        nothing = fit(m, m.empty_table())
        assert math.isnan(nothing.z)
        assert math.isnan(nothing.p)
        assert (nothing.sign, nothing.tests) == (None, {})
        (table,) = surveys(m, np.random.default_rng(1), 1, 100)
        assert drift(matrix_inversion(m, m.empty_table()), matrix_inversion(m, table)) is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("eps", [1e-6, 700.0])
def test_scores_are_finite_at_extreme_budgets(name: str, eps: float) -> None:
    m = mechanism(name, K, eps_inf=eps, eps_1=0.4 * eps) if name in LONGITUDINAL else mechanism(name, K, eps=eps)
    for table in (*surveys(m, np.random.default_rng(11), 1, 50), *surveys(m, np.random.default_rng(11), 1, 1)):
        for counts in (table, forge(m, table, 1000)):
            found = fit(m, counts, 1)
            assert math.isfinite(found.z) or found == Fit(found.z, found.p, None, {})


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="expected a count table"):
        fit(build("GRR"), build("OUE").empty_table())
    with pytest.raises(ValueError, match="steps"):
        fit(build("GRR"), build("GRR").empty_table(), 0)


# ---- drift


@pytest.mark.parametrize("name", ["GRR", "OUE", "OLH", "L-GRR", "L-OSUE", "L-OLH"])
def test_drift_without_change_is_as_rare_as_stated(name: str) -> None:
    """2000 pairs of surveys of different people: p <= 5 % in at most 5 % of pairs; a correct test fails with probability 1e-6.

    If the same people report from kept memos, p <= 5 % is far rarer, because the memos' errors cancel.
    """
    m, rng = build(name), np.random.default_rng([20, NAMES.index(name)])
    apart = [matrix_inversion(m, table) for table in surveys(m, rng, 4000, 200)]
    moves = [drift(a, b) for a, b in zip(apart[::2], apart[1::2], strict=True)]
    assert sum(move.p <= 0.05 for move in moves if move) <= binom.ppf(1 - 1e-6, 2000, 0.05)
    narrow = [move.sigma > 0.8 * norm.isf(0.025 / K) for move in moves if move]  # control: too small errors
    assert sum(narrow) > binom.ppf(1 - 1e-6, 2000, 0.05)
    if isinstance(m, Longitudinal):
        reports = m.simulate(rng.choice(K, 200 * 200, p=MIXED), rng, steps=2)
        steps = reports.reshape(2, 200, 200, *m.report_dtype.shape)
        pairs = [[matrix_inversion(m, m.tabulate(part)) for part in parts] for parts in zip(*steps, strict=True)]
        kept = [drift(a, b) for a, b in pairs]
        assert sum(move.p <= 0.05 for move in kept if move) <= 4


@pytest.mark.parametrize("name", ["GRR", "L-OSUE", "L-OLH"])
def test_drift_distinguishes_change_from_noise(name: str) -> None:
    """A quarter of the people change their value to one other value. Most scores exceed 4, and in more than 90 % of the pairs
    of surveys, `value` is one of the two values."""
    m, rng = build(name), np.random.default_rng(NAMES.index(name))
    moved = MIXED.copy()
    moved[[0, 11]] += [-0.25, 0.25]
    before, after = surveys(m, rng, 100, 3000), surveys(m, rng, 100, 3000, f=moved)
    found = [drift(matrix_inversion(m, a), matrix_inversion(m, b)) for a, b in zip(before, after, strict=True)]
    assert np.median([move.sigma for move in found if move]) > 4
    assert np.mean([move.value in (0, 11) for move in found if move]) > 0.9


def test_few_reports_of_many_hashed_values_raise_no_alarm() -> None:
    """With few reports, two reports with the same function move all support counts together. The distribution of the floor
    test's sum is then far from χ². With the floor test, the score exceeded 5 in 2 of these 60 runs, although the expected
    number was 3e-5."""
    m = mechanism("L-BLH", k=30_000, eps_inf=2.0, eps_1=1.0)
    assert isinstance(m, Longitudinal)
    for seed in range(50, 110):
        rng = np.random.default_rng(seed)
        assert abs(fit(m, m.tabulate(m.simulate(rng.integers(0, m.k, 500), rng))).z) < 5


def test_ones_of_very_many_reports_do_not_overflow() -> None:
    m = mechanism("OUE", k=100, eps=1.0)
    assert fit(m, m.table(2**60, np.full(100, 2**59))).z > 6
