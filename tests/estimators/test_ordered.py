"""Tests the mean of the smooth estimate and the estimate without order: its weights, its input, and shares that are equal."""

import numpy as np
import pytest

from ldpstream.estimators import empirical_bayes, matrix_inversion
from ldpstream.estimators.bayes.value_likelihood import ValueLikelihood
from ldpstream.estimators.estimate import Group
from ldpstream.estimators.smooth import ordered, plateaus
from ldpstream.estimators.smooth.ordered import MOVE, _inversion, _percentiles, _risk, _without_order
from ldpstream.estimators.smooth.smooth_prior import EQUAL, smooth_posterior
from ldpstream.mechanisms import mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.families.local_hashing import Hashing

from .sample_terms import make
from .test_empirical_bayes import draw


def steps_of(k: int) -> FloatArray:
    """Three levels: 30 % of the values have 10 % of the people, the next 20 % have 70 %, and the others 20 %."""
    return np.repeat([1 / 3, 3.5, 0.4], [3 * k // 10, 2 * k // 10, 5 * k // 10]) / k


@pytest.mark.parametrize("slope", [0.3, 1.0])
def test_the_risk_of_a_linear_estimate_is_exact(slope: float) -> None:
    """For f = slope z, Σ ∂f/∂z = slope k. Control: derivatives of another slope."""
    z, noise, by = np.linspace(-0.1, 0.4, 12), np.linspace(0.01, 0.02, 12), np.tile([-0.05, 0.05, 0.05], 4)
    exact = ((slope - 1) ** 2 * z**2 / noise).sum() + 2 * slope * 12
    assert _risk(slope * z, slope * (z + by), by, z, noise) == pytest.approx(exact)
    assert _risk(slope * z, slope * z + 0.5 * by, by, z, noise) != pytest.approx(exact)


def surplus(name: str, eps: float, shares: FloatArray, n: int, tables: int) -> FloatArray:
    """Returns R - χ² - loss of the smooth estimate, of the estimate without order, and again with variances; (tables, 3).

    Stein's formula says that the mean is 0: loss = Σ (f - s)² / N and χ² = Σ (z - s)² / N, with s the shares among the people.
    The third number has posterior variances in place of derivatives.
    """
    m, k, found = make(name, shares.size, eps), shares.size, []
    for seed in range(tables):
        rng = np.random.default_rng(seed)
        values = rng.choice(k, n, p=shares)
        groups: list[Group] = [(m, m.tabulate(m.simulate(values, rng, 1)))]
        people = np.bincount(values, minlength=k) / n
        z, variances, noise_at = _inversion(groups, 1)
        h = MOVE * float(np.sqrt(np.median(variances(np.full(k, 1 / k)))))
        smooth, unordered = smooth_posterior(z, variances), empirical_bayes(groups)
        noise = noise_at(smooth.frequencies)
        s, u = smooth.frequencies, unordered.frequencies
        by = h * rng.choice([-1.0, 1.0], k)
        of_smooth = _risk(s, smooth.moved(z + by), by, z, noise)
        of_unordered = _risk(u, _without_order(groups, 1, by), by, z, noise)
        with_variances = ((u - z) ** 2 / noise).sum() + 2 * (unordered.standard_errors**2 / noise).sum()
        risks = np.array([of_smooth, of_unordered, with_variances])
        losses = [((f - people) ** 2 / noise).sum() for f in (s, u, u)]
        found.append(risks - losses - ((z - people) ** 2 / noise).sum())
    return np.array(found)


def test_the_risk_is_unbiased() -> None:
    """The allowance is 4 standard errors of 20 tables (for two means, a false alarm of 1 in 650; the seeds are fixed).

    Control: posterior variances fail.
    """
    found = surplus("L-SUE", 2.0, steps_of(100), 100_000, 20)
    mean, error = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert (np.abs(mean[:2]) < 4 * error[:2]).all(), (mean, error)
    assert mean[2] > 4 * error[2], (mean, error)


def test_shares_with_jumps_lose_little_by_the_order() -> None:
    """The smooth estimate alone has at least three times the error of the estimate without order."""
    m, shares = make("L-SUE", 100, 2.0), steps_of(100)
    errors = np.zeros(3)
    for seed in range(8):
        table = draw(m, shares, 100_000, seed)
        z, variances, _ = _inversion([(m, table)], 1)
        smooth = smooth_posterior(z, variances).frequencies
        found = (empirical_bayes(m, table, ordered=True).frequencies, empirical_bayes(m, table).frequencies, smooth)
        errors += [np.square(f - shares).sum() for f in found]
    assert errors[0] < 2 * errors[1], errors
    assert errors[2] > 3 * errors[1], errors


def test_plateaus_without_weight_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The estimate is that with their derivatives. Control: for shares with jumps, they are not left out."""
    m, tail = make("OUE", 1000, 1.0), 1 / (1 + np.arange(1000)) ** 1.1
    smooth, stepped = draw(m, tail / tail.sum(), 100_000, 1), draw(m, steps_of(1000), 100_000, 1)
    moved = plateaus.shares_with_plateaus
    calls: list[int] = []

    def counted(z: FloatArray, variance: FloatArray) -> FloatArray:
        calls.append(z.size)
        return moved(z, variance)

    monkeypatch.setattr(ordered, "shares_with_plateaus", counted)
    quick = empirical_bayes(m, smooth, ordered=True)
    assert not calls
    empirical_bayes(m, stepped, ordered=True)
    assert len(calls) == 1
    monkeypatch.setattr(ordered, "CERTAIN", np.inf)
    whole = empirical_bayes(m, smooth, ordered=True)
    assert len(calls) == 2
    np.testing.assert_allclose(quick.frequencies, whole.frequencies, atol=1e-7 * whole.standard_errors.max())
    np.testing.assert_allclose(quick.interval(), whole.interval(), atol=1e-7 * whole.standard_errors.max())


def test_tiny_variances_do_not_make_the_grid_of_levels_huge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares of zero have nearly no noise under GRR with a large ε. Control: the limit of the variances."""
    m, shares = mechanism("GRR", k=100, eps=16.0), np.repeat([0.0, 1 / 34, 0.0], [33, 34, 33])
    table, entries = draw(m, shares, 20_000, 1), []
    fitted = plateaus._fit

    def counted(z: FloatArray, variance: FloatArray) -> tuple[ValueLikelihood, FloatArray, float]:
        found = fitted(z, variance)
        entries.append(found[1].size)
        return found

    monkeypatch.setattr("ldpstream.estimators.smooth.plateaus._fit", counted)
    empirical_bayes(m, table, ordered=True)
    limited = max(entries)
    monkeypatch.setattr("ldpstream.estimators.smooth.ordered.LEAST_VARIANCE", 0.0)
    empirical_bayes(m, table, ordered=True)
    assert limited < 1050 * 100
    assert max(entries) > 1050 * 100


def test_equal_shares_are_found_under_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: without the prior odds of equal shares, the error is larger by half."""
    m, errors = make("OUE", 100, 0.5), []
    for odds in (EQUAL, -50.0):
        monkeypatch.setattr("ldpstream.estimators.smooth.smooth_prior.EQUAL", odds)
        found = [smooth_posterior(*_inversion([(m, draw(m, np.full(100, 0.01), 1000, seed))], 1)[:2]) for seed in range(12)]
        errors.append(sum(np.square(each.frequencies - 0.01).sum() for each in found))
    assert 1.5 * errors[0] < errors[1]


def test_only_injective_hash_functions_inform_the_smooth_estimate() -> None:
    """With g >= k, the input is that of the injective functions' reports, which are reports of GRR on g symbols."""
    m = mechanism("OLH", 5, eps=2.0)
    assert isinstance(m, Hashing)
    table = draw(m, np.array([0.1, 0.2, 0.3, 0.25, 0.15]), 5000, 1)
    symbols = m.separating_part(table)
    assert symbols[0] is m.symbols
    z, variances, noise = _inversion([(m, table)], 1)
    np.testing.assert_allclose(z, matrix_inversion(*symbols).frequencies[:5])
    assert np.abs(z - matrix_inversion(m, table).frequencies).max() > 1e-4
    f = np.full(5, 0.2)
    np.testing.assert_allclose(variances(f) - noise(f), f * (1 - f) / 5000)


def test_groups_have_the_variances_of_their_mean() -> None:
    """The inversions of 400 simulated pairs of tables vary as stated, on average over 20 values.

    The allowance is 5 standard errors. Control: the variances for given people are outside.
    """
    first, second, shares = mechanism("OUE", 20, eps=5.0), mechanism("GRR", 20, eps=4.0), steps_of(20)
    found = []
    for seed in range(400):
        groups: list[Group] = [(first, draw(first, shares, 60, seed)), (second, draw(second, shares, 140, 10_000 + seed))]
        z, variances, noise = _inversion(groups, 1)
        found.append(z)
    ratio = np.array(found).var(axis=0) / np.array([variances(shares), noise(shares)])
    assert abs(ratio[0].mean() - 1) < 5 * np.sqrt(2 / 400 / 20)
    assert ratio[1].mean() > 1.2


def test_drawn_shares_have_the_percentiles_of_the_intervals() -> None:
    """Of many values, 95 % lie in the 95 % interval, and more if its end is 0. Control: the interval of another table."""
    m = make("OUE", 20, 1.0)
    first, second = (empirical_bayes(m, draw(m, steps_of(20), 20_000, seed)) for seed in (1, 2))
    drawn = _percentiles(first.interval, 2000)
    inside = [float(((low <= drawn) & (drawn <= high)).mean()) for low, high in (first.interval(), second.interval())]
    assert 0.945 < inside[0] < 0.975
    assert inside[1] < 0.9


@pytest.mark.parametrize(("n", "seed"), [(20, 3), (1000, 12)])
def test_the_value_that_everybody_has_keeps_its_interval(n: int, seed: int) -> None:
    """The intervals of 199 empty values do not change the interval of the full one. With these seeds, the smooth estimate has
    no weight."""
    m = make("OUE", 200, 8.0)
    table = draw(m, np.eye(200)[100], n, seed)
    found, unordered = empirical_bayes(m, table, ordered=True), empirical_bayes(m, table)
    ends = np.array([found.interval(), unordered.interval()])[:, :, 100]
    assert ends[0] == pytest.approx(ends[1], abs=0.2 * (ends[1, 1] - ends[1, 0]))
    np.testing.assert_allclose(found.standard_errors[100], unordered.standard_errors[100], rtol=0.01)
