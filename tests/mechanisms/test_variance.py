"""Compares `variance` and `support_covariance` with enumeration of all outcomes and with simulated surveys."""

import math

import numpy as np
import numpy.typing as npt
import pytest

from ldpstream.mechanisms import NAMES, Longitudinal, Mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.families.local_hashing import LocalHashing
from ldpstream.mechanisms.families.unary import thresholded

from . import reference
from .reference import Floats, build, grid

SMALL = [m for m in grid((2, 3), ((0.6, 0.3), (6.0, 3.0))) if getattr(m, "g", 2) <= 4]


def moments(m: Mechanism, frequencies: Floats, steps: int) -> tuple[Floats, Floats]:
    """Mean and covariance matrix of one random person's support counts over `steps` steps, by enumeration."""
    weights = np.tensordot(frequencies, reference.sequences(m, steps), 1).ravel()
    counts = reference.supports(m, steps).reshape(weights.size, m.k)
    mean = weights @ counts
    return mean, counts.T @ (weights[:, None] * counts) - np.outer(mean, mean)


@pytest.mark.parametrize("m", SMALL, ids=repr)
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_variance_is_the_enumerated_second_moment(m: Mechanism, steps: int) -> None:
    if len(reference.all_reports(m)[0]) ** steps > 10_000:
        steps = 2
    frequencies = np.array([0.85, 0.15]) if m.k == 2 else np.array([0.5, 0.2, *[0.3 / (m.k - 2)] * (m.k - 2)])
    mean, covariance = moments(m, frequencies, steps)
    np.testing.assert_allclose(mean, steps * (m.q + frequencies * (m.p - m.q)), rtol=1e-9)
    np.testing.assert_allclose(m.reading.support_variances(frequencies, steps), np.diag(covariance), rtol=1e-9)
    np.testing.assert_allclose(m.reading.support_covariance(frequencies, steps).matrix(), covariance, rtol=1e-8, atol=1e-12)
    for n in (1, 10_000):
        one_by_one = [m.variance(f, n, steps) for f in frequencies]
        np.testing.assert_allclose(one_by_one, np.diag(covariance) / (n * (steps * (m.p - m.q)) ** 2), rtol=1e-9)


@pytest.mark.parametrize("name", ["OLH", "L-OLH"])
@pytest.mark.parametrize(("k", "g"), [(6, 8), (4, 4), (6, 5), (9, 3), (10, 3), (7, 2)])
def test_hashed_values_on_a_line_are_supported_together(name: str, k: int, g: int) -> None:
    """All values of a line collide under the functions that are constant on the line: for k <= g, under the zero form alone."""
    m = build(name, k, 4.0, 2.0, g=g)
    frequencies = np.arange(k) / (k * (k - 1) / 2)
    for steps in (1, 2) if k <= 6 else (1,):
        _, covariance = moments(m, frequencies, steps)
        np.testing.assert_allclose(m.reading.support_covariance(frequencies, steps).matrix(), covariance, atol=1e-12)
        fakes = m.with_fake_data(3).reading.support_covariance(frequencies, steps).matrix()
        np.testing.assert_allclose(fakes, moments(m, (frequencies + 2 / k) / 3, steps)[1], atol=1e-12)
    if k <= g:
        apart = ~np.eye(k, dtype=bool)
        assert (m.reading.support_covariance(np.eye(k)[0]).matrix()[1:, 1:][apart[1:, 1:]] > 0).all()


def test_sums_of_many_hashed_values_have_nearly_their_variance() -> None:
    """For more than 128 values, the stated covariance is an average over lines. A control without lines is far off."""
    m = build("OLH", 200, 4.0, 2.0)
    assert isinstance(m, LocalHashing)
    assert m.pool.m > 1
    frequencies = 1 / np.arange(1, m.k + 1)
    frequencies /= frequencies.sum()
    hit = np.array([m.pool.hash(np.arange(m.pool.size), np.full(m.pool.size, v)) for v in range(m.k)])[..., None]
    hit = (hit == np.arange(m.g)).reshape(m.k, -1).astype(float)
    chance = (m.other_symbol + (m.p - m.other_symbol) * (frequencies @ hit)) / m.pool.size
    exact = (hit * chance) @ hit.T - np.outer(hit @ chance, hit @ chance)
    stated = m.reading.support_covariance(frequencies)
    halves = np.array([np.arange(m.k) < 100, np.arange(m.k) % 2 == 0, np.arange(m.k) >= 150], float)
    true = np.diag(halves @ exact @ halves.T)
    np.testing.assert_allclose(np.diag(stated.of_sums(halves)), true, rtol=0.03)
    assert (halves @ m.reading.support_variances(frequencies, 1) < 0.9 * true).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_variance_matches_repeated_surveys(name: str) -> None:
    """Simulates 1000 surveys of 100 people with the same memos over 4 steps.

    A sample variance of nearly normal estimates differs by more than 6 standard errors with probability 1.4e-8. For one of the
    6 × 14 variances here, the probability is 1.2e-6. The control for longitudinal mechanisms is a single step's variance
    divided by 4: it differs in every bin.
    """
    people, steps, surveys = 100, 4, 1000
    m = build(name, 6, 2.0, 1.0)
    frequencies = np.array([0.4, 0.3, 0.15, 0.1, 0.05, 0.0])
    rng = np.random.default_rng(20240608)
    values = rng.choice(6, people * surveys, p=frequencies)
    reports = m.simulate(values, rng, steps).reshape(steps, surveys, people, *m.report_dtype.shape)
    support = np.array([sum(m.support(m.tabulate(part)) for part in reports[:, i]) for i in range(surveys)])
    estimates = (support / (people * steps) - m.q) / (m.p - m.q)
    stated = np.array([m.variance(f, people, steps) for f in frequencies])
    spread = np.sqrt(2 / (surveys - 1))
    assert np.abs((estimates.mean(axis=0) - frequencies) / np.sqrt(stated / surveys)).max() < 6
    assert np.abs(estimates.var(axis=0, ddof=1) / stated - 1).max() < 6 * spread
    if isinstance(m, Longitudinal):
        naive = np.array([m.variance(f, people) for f in frequencies]) / steps
        assert np.abs(estimates.var(axis=0, ddof=1) / naive - 1).min() > 6 * spread


@pytest.mark.parametrize("eps", [0.01, 0.5, 2.0, 10.0, 100.0])
def test_the_threshold_of_the_has_the_smallest_variance(eps: float) -> None:
    """No threshold of a fine grid has a smaller variance. The neighbours of the best threshold have a larger variance."""

    def variance(theta: npt.ArrayLike) -> FloatArray:
        ones, zeros = 1 - np.exp(eps * (np.asarray(theta) - 1) / 2) / 2, np.exp(-eps * np.asarray(theta) / 2) / 2
        return np.asarray(zeros * (1 - zeros) / (ones - zeros) ** 2)

    bit = thresholded(eps)
    theta = -2 / eps * math.log(2 * bit.q)
    best = bit.q * bit.not_q / (bit.p - bit.q) ** 2
    assert best == pytest.approx(variance(theta), rel=1e-9)
    assert best <= variance(np.linspace(0.5, 1, 100_001)).min() * (1 + 1e-12)
    assert best < variance([theta - 1e-4, theta + 1e-4]).min()
