"""Tests the estimate with plateaus: its posterior against all paths, and its gain for shares with jumps."""

import itertools
import math

import numpy as np
import pytest

from ldpstream.estimators.bayes.value_likelihood import Observation, value_likelihood
from ldpstream.estimators.smooth.plateau_kernels import forward_backward
from ldpstream.estimators.smooth.plateaus import plateaus, shares_with_plateaus
from ldpstream.estimators.smooth.smooth_prior import smooth_posterior

from .test_empirical_bayes import entries


@pytest.mark.parametrize("jump", [0.0001, 0.3, 1.0])
def test_the_posterior_is_that_of_all_paths(jump: float) -> None:
    """The last of four values is far away, so its window of the grid differs. Every path of levels is enumerated."""
    z, k = np.array([0.1, 0.12, 0.05, 0.6]), 4
    values = value_likelihood([Observation(z, np.full(k, 4e-4))], k, 0.3).apart()
    points = values.points.size
    prior = np.linspace(1, 2, points) / np.linspace(1, 2, points).sum()
    like = np.exp(values.log_like)
    chances, alone, posterior, drawn = np.empty(k), np.empty(points), np.empty_like(like), np.empty(points)
    forward_backward(like, values.start, values.first, prior, jump, chances, alone, np.empty(0))
    value = np.log(chances).sum()
    forward_backward(like, values.start, values.first, prior, jump, chances, drawn, posterior)
    np.testing.assert_array_equal(drawn, alone)
    assert np.log(chances).sum() == value

    dense = np.zeros((k, points))
    dense[entries(values)] = like
    total, marginal, new = 0.0, np.zeros((k, points)), np.zeros(points)
    for draws in itertools.product([False, True], repeat=k - 1):
        begins = [0, *(v + 1 for v, drawn_anew in enumerate(draws) if drawn_anew), k]
        chance = jump ** sum(draws) * (1 - jump) ** (k - 1 - sum(draws))
        parts = [prior * dense[a:b].prod(axis=0) for a, b in itertools.pairwise(begins)]
        path = chance * math.prod(float(part.sum()) for part in parts)
        total += path
        for (a, b), part in zip(itertools.pairwise(begins), parts, strict=True):
            if path:
                marginal[a:b] += path * part / part.sum()
                new += path * part / part.sum()
    assert value == pytest.approx(math.log(total), abs=1e-9)
    found = np.zeros((k, points))
    found[entries(values)] = posterior
    np.testing.assert_allclose(found, marginal / total, atol=1e-9)
    np.testing.assert_allclose(drawn, new / total, atol=1e-9)


def test_shares_with_jumps_gain_and_smooth_shares_lose() -> None:
    """In 8 runs, error and evidence prefer the same estimate: plateaus for shares with jumps, the smooth estimate for a
    hill."""
    k, rng = 150, np.random.default_rng(4)
    jumps = np.repeat([0.0, 1.0, 0.0, 1.0, 1.0], k // 5) / (3 * k // 5)
    hill = np.exp(-(((np.arange(k) / k - 0.4) / 0.15) ** 2) / 2)
    variance = np.full(k, 9e-6)
    for shares, factor in ((jumps, 0.5), (hill / hill.sum(), 2.0)):
        errors, evidence = np.zeros(2), 0.0
        for _ in range(8):
            z = shares + 0.003 * rng.standard_normal(k)
            smooth, stepped = smooth_posterior(z, lambda f: variance), plateaus(z, variance)
            errors += [np.square(each.frequencies - shares).sum() for each in (stepped, smooth)]
            evidence += stepped.log_evidence - smooth.log_evidence
        assert (errors[0] < factor * errors[1]) == (factor < 1), errors
        assert (evidence > 0) == (factor < 1), evidence


def test_the_evidence_is_a_density_of_the_shares() -> None:
    """Over all pairs of shares, the smooth model's evidence integrates to nearly 1. With plateaus, G and ρ are fitted, and the
    condition that the shares sum to 1 is left out, so the integral is only between 0.5 and 1.
    """
    step, variance = 0.1, np.full(2, 0.01)
    grid = np.arange(-0.4, 1.4 + step / 2, step)
    pairs = [np.array(pair) for pair in itertools.product(grid, grid)]
    smooth = sum(math.exp(smooth_posterior(z, lambda f: variance).log_evidence) for z in pairs) * step**2
    stepped = sum(math.exp(plateaus(z, variance).log_evidence) for z in pairs) * step**2
    assert smooth == pytest.approx(1, abs=0.1)
    assert 0.5 < stepped < 1
    outside = plateaus(np.array([1.3, -0.3]), variance).log_evidence
    assert outside < -math.log(2 * np.pi * 0.01) - 9  # the density at the nearest possible shares, three errors away each


@pytest.mark.parametrize("k", [2, 3, 40])
@pytest.mark.parametrize("error", [1e-6, 0.01, 10.0])
def test_the_laws_hold(k: int, error: float) -> None:
    z = np.random.default_rng(k).dirichlet(np.ones(k))
    found = plateaus(z, np.full(k, error**2))
    assert found.frequencies.sum() == pytest.approx(1, abs=1e-12)
    assert (found.frequencies >= 0).all()
    np.testing.assert_array_equal(found.frequencies, shares_with_plateaus(z, np.full(k, error**2)))
    low, high = found.posterior.interval(0.95)
    assert ((low >= 0) & (low <= high) & (high <= 1)).all()
    if error < 1e-4:
        np.testing.assert_allclose(found.frequencies, z, atol=5 * error)
