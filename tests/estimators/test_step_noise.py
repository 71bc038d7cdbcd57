"""Tests of the noise that the filter assumes, for every mechanism, with fake data, spaced reports, and several levels."""

import numpy as np
import pytest

from ldpstream.estimators.estimate import Group
from ldpstream.estimators.filter.local_level import LocalLevel
from ldpstream.estimators.filter.step_noise import step_noise
from ldpstream.estimators.matrix_inversion import matrix_inversion
from ldpstream.mechanisms import ChannelMechanism, OneTime, mechanism
from tests.publishing.test_every_mechanism import ALL, K, build

SHARES = np.array([0.4, 0.3, 0.2, 0.1, 0.0, 0.0])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_fresh_and_lasting_noise_give_the_variance_of_every_mean(name: str, steps: int) -> None:
    """The mean inversion of W steps of the same people has the variance fresh / W + lasting, for every W.

    The number of people is large, so that the least fresh noise, that of one report, is negligible.
    """
    m, people = build(name), 10**9
    noise = step_noise([(m, people)], SHARES)
    expected = m.reading.inversion_variances(SHARES, people, steps)
    np.testing.assert_allclose(noise.fresh / steps + noise.lasting, expected, rtol=1e-7)


@pytest.mark.parametrize("w", [2, 24])
def test_the_noise_of_a_spaced_level_is_mostly_fresh(w: int) -> None:
    """In w steps, everybody reports once: the mean of w steps has the variance of one collection from all people."""
    m = build("GRR")
    assert isinstance(m, OneTime)
    noise = step_noise([(m.spaced(w), 500)], SHARES)
    np.testing.assert_allclose(noise.fresh + noise.lasting, m.reading.inversion_variances(SHARES, 500), rtol=1e-9)
    np.testing.assert_allclose(noise.lasting, m.reading.inversion_variances(SHARES, 500, 2**31) / w, rtol=1e-9)


@pytest.mark.parametrize(("eps", "people", "w"), [(8.0, 20, 1), (8.0, 20, 24), (20.0, 1000, 1), (500.0, 100, 1)])
def test_a_rare_report_is_no_jump(eps: float, people: int, w: int) -> None:
    """Values that nobody has get a report now and then, or a handful of reports at once: at most one alarm in 600 steps.

    Control for ε = 8: with the variance of the counts alone, rare reports are jumps.
    """
    m, rng = mechanism("GRR", k=K, eps=eps), np.random.default_rng(1)
    assert isinstance(m, OneTime)
    asked = m.spaced(w)
    level, plain, alarms, jumps, values = LocalLevel(K), LocalLevel(K), 0, 0, rng.choice(K, people, p=SHARES)
    for _ in range(600):
        if w > 1:  # other people at each step
            values = rng.choice(K, people, p=SHARES)
        raw = matrix_inversion([(asked, asked.tabulate(m.report(values, rng)))]).frequencies
        noise = step_noise([(asked, people)], level.predicted if level.observed else raw)
        alarms += level.step(raw, noise.fresh, noise.lasting, noise.skewness).change is not None
        exact = m.reading.inversion_variances(np.clip(plain.predicted if plain.observed else raw, 0, 1), people)
        jumps += plain.step(raw, exact).change is not None
    assert alarms <= 1
    assert jumps > 1 or eps > 8


@pytest.mark.parametrize("name", ["GRR", "OUE"])
def test_the_skewness_of_a_spaced_level_is_that_of_new_people(name: str) -> None:
    """Simulates the supports of a value by 40 new people, 200 000 times. Control: the skewness for the same people differs."""
    m, rng, people, runs = mechanism(name, k=K, eps=4.0), np.random.default_rng(3), 40, 200_000
    assert isinstance(m, OneTime)
    noise, same = (step_noise([(each, people)], SHARES) for each in (m.spaced(24), m))
    chance = m.q + SHARES[3] * (m.p - m.q)
    supports = rng.binomial(people, chance, runs) - people * chance
    cubes = (supports / people / (m.p - m.q)) ** 3 / noise.fresh[3] ** 1.5
    error = 5 * cubes.std() / np.sqrt(runs)
    assert cubes.mean() == pytest.approx(noise.skewness[3], abs=error)
    assert cubes.mean() != pytest.approx(same.skewness[3], abs=error)


@pytest.mark.parametrize("name", ["GRR", "OUE", "L-GRR", "L-OSUE", "GRR with fake data", "L-OSUE with fake data"])
def test_the_skewness_is_that_of_simulated_reports(name: str) -> None:
    """Simulates the fresh noise of 40 people's reports, given their memos, 200 000 times.

    The third moment agrees within five standard deviations.

    Control: the skewness with the opposite sign does not agree, unless it is negligible.
    """
    m, rng, people, runs = build(name), np.random.default_rng(3), 40, 200_000
    encoded = (SHARES + (m.fakes - 1) / K) / m.fakes
    memo_p, memo_q, p2, q2 = m.device.rounds()
    noise = step_noise([(m, people)], SHARES)
    for v in (0, K - 1):
        hit = encoded[v] * memo_p + (1 - encoded[v]) * memo_q  # expected share of the memos that support v
        supports = rng.binomial(people, hit, runs)
        fresh = rng.binomial(supports, p2) + rng.binomial(people - supports, q2) - supports * p2 - (people - supports) * q2
        cubes = (fresh / people / (m.p - m.q) / np.sqrt(noise.fresh[v])) ** 3
        error = 5 * cubes.std() / np.sqrt(runs)
        assert cubes.mean() == pytest.approx(noise.skewness[v], abs=error)
        if abs(noise.skewness[v]) > error:
            assert cubes.mean() != pytest.approx(-noise.skewness[v], abs=error)


@pytest.mark.parametrize("name", ALL)
def test_several_levels_are_weighted_as_in_the_inversion(name: str) -> None:
    """The variance of two levels together equals the squared standard errors of their inversion at the same shares.

    A level without reports changes nothing.
    """
    m, other = build(name), build("L-OSUE")
    rng = np.random.default_rng(4)
    groups: list[Group] = [
        (each, each.tabulate(each.simulate(rng.choice(K, n, p=SHARES), rng))) for each, n in ((m, 300), (other, 200))
    ]
    found = matrix_inversion(groups)
    if isinstance(m, ChannelMechanism):  # its variances are at another distribution for each level
        return
    shares = [matrix_inversion([group]).frequencies for group in groups]
    variances = [step_noise([(each, table.n)], f) for (each, table), f in zip(groups, shares, strict=True)]
    weights = [table.n / each.reading.inversion_variances(np.full(K, 1 / K), 1) for each, table in groups]
    total = sum(w**2 * (noise.fresh + noise.lasting) for w, noise in zip(weights, variances, strict=True)) / sum(weights) ** 2
    np.testing.assert_allclose(np.sqrt(total), found.standard_errors, rtol=1e-7)
    together = step_noise([(each, table.n) for each, table in groups], SHARES)
    again = step_noise([(m, 300), (other, 200), (build("GRR"), 0)], SHARES)
    for part in ("fresh", "lasting", "skewness"):
        np.testing.assert_array_equal(getattr(together, part), getattr(again, part))
