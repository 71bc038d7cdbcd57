"""Tests of the smoothing pass: dense references, the mixture, levels that start anew, coverage."""

import math

import numpy as np
import pytest

from ldpstream.estimators import smoothing
from ldpstream.estimators.local_level import DRIFTS, LocalLevel
from ldpstream.estimators.smoothing import _check, _mixed, _pass, smooth
from ldpstream.mechanisms.arguments import FloatArray

from .dense_levels import DenseLevel

K, STEPS = 3, 12


@pytest.mark.parametrize("q", [0.0, 0.01])
@pytest.mark.parametrize("lasting", [0.0, 0.3])
def test_the_pass_for_one_q_equals_the_dense_posterior(lasting: float, q: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are missing at the first step, at the last step, and at a step where a level starts anew."""
    monkeypatch.setattr(smoothing, "DRIFTS", np.array([[q]]))
    rng = np.random.default_rng(1)
    observed, fresh = rng.normal(size=(STEPS, K)), rng.uniform(0.5, 2, (STEPS, K))
    observed[[0, 2, 4, -1]] = np.nan
    anew = np.zeros((STEPS, K), dtype=bool)
    anew[5, 0] = anew[4, 1] = True
    found = smooth(observed, fresh, np.full((STEPS, K), lasting), anew)
    for j in range(K):
        starts = tuple(int(t) for t in np.flatnonzero(anew[:, j]))
        mean, square = DenseLevel(q, fresh[:, j], lasting, starts).levels(observed[:, j])
        np.testing.assert_allclose(found.frequencies[:, j], mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.standard_errors[:, j], np.sqrt(square), rtol=1e-9)


def test_the_mixture_weighs_every_q_by_its_likelihood() -> None:
    rng = np.random.default_rng(2)
    observed, variance = 0.1 * rng.normal(size=(30, K)).cumsum(axis=0), np.full((30, K), 0.02)
    found = smooth(observed, variance)
    likelihood = np.zeros((DRIFTS.size, K))
    for i, q in enumerate(DRIFTS[:, 0]):
        for j in range(K):
            dense = DenseLevel(float(q), variance[:, j])
            for t in range(1, 30):
                mean, square = dense.next(observed[:t, j])
                likelihood[i, j] -= 0.5 * (math.log(square) + (observed[t, j] - mean) ** 2 / square)
    levels, spreads = _pass(DRIFTS, _check(observed, variance, 0 * observed, None))
    weights = _mixed(likelihood)
    mean = (weights * levels).sum(axis=1)
    np.testing.assert_allclose(found.frequencies, mean, rtol=1e-9, atol=1e-12)
    expected = np.sqrt((weights * (spreads + (levels - mean[:, None]) ** 2)).sum(axis=1))
    np.testing.assert_allclose(found.standard_errors, expected, rtol=1e-9)


def test_a_level_that_was_never_observed_is_unknown() -> None:
    observed, variance = np.full((4, 2), 0.3), np.full((4, 2), 0.01)
    anew = np.zeros((4, 2), dtype=bool)
    observed[2:] = np.nan
    anew[2, 0] = True
    found = smooth(observed, variance, anew=anew)
    assert (np.isnan(found.frequencies) == [[False, False]] * 2 + [[True, False]] * 2).all()
    assert (np.isnan(found.standard_errors) == np.isnan(found.frequencies)).all()
    assert np.isinf(found.standard_errors).sum() == 0
    nothing = smooth(observed * np.nan, variance)
    assert np.isnan(nothing.frequencies).all()
    assert np.isnan(nothing.standard_errors).all()


def drifting(seed: int, jump: bool = False) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns the truth, the observations and the variances of 10 values in 120 steps; the first value may jump at step 60."""
    rng = np.random.default_rng([seed, 7])
    truth = 0.1 + 0.003 * rng.normal(size=(120, 10)).cumsum(axis=0)
    truth[60:, 0] += 0.06 * jump
    return truth, truth + 0.01 * rng.normal(size=truth.shape), np.full(truth.shape, 1e-4)


def test_smoothed_intervals_cover_and_are_narrower_than_filtered_ones() -> None:
    """In 8 runs, at least 92 % of the intervals contain the truth.

    Control: with a third less width, fewer than 92 % do. The filter's mean squared error is at least 1.3 times that of the
    smoothing pass.
    """
    inside, narrow, squares = [], [], []
    for seed in range(8):
        truth, observed, variance = drifting(seed)
        found, level = smooth(observed, variance), LocalLevel(10)
        filtered = np.array([level.step(z, v).frequencies for z, v in zip(observed, variance)])
        off = np.abs(found.frequencies - truth) / found.standard_errors
        inside.append(off <= 1.96)
        narrow.append(off <= 1.96 * 2 / 3)
        squares.append([((each - truth) ** 2).mean() for each in (filtered, found.frequencies)])
    assert np.mean(inside) >= 0.92
    assert np.mean(narrow) < 0.92
    before, after = np.mean(squares, axis=0)
    assert before > 1.3 * after


def test_a_detected_jump_stays_a_jump() -> None:
    """The filter finds the jump. With `anew` the pass keeps the jump sharp; without `anew` the pass blurs the jump."""
    truth, observed, variance = drifting(3, jump=True)
    level, anew = LocalLevel(10), np.zeros(truth.shape, dtype=bool)
    for t in range(120):
        change = level.step(observed[t], variance[t]).change
        if change is not None:
            anew[change.step] |= change.moved
    assert np.flatnonzero(anew[:, 0]) == [60]
    sharp, blurred = smooth(observed, variance, anew=anew), smooth(observed, variance)
    near = slice(57, 63)
    errors = [np.abs(each.frequencies[near, 0] - truth[near, 0]).mean() for each in (sharp, blurred)]
    assert errors[0] < errors[1] / 1.5


def test_wrong_arguments_are_refused() -> None:
    z, v = np.full((4, 2), 0.3), np.full((4, 2), 0.01)
    for arguments, reason in (
        ((z[0], v), "n_steps, k"),
        ((z, v[:2]), "fresh must have the shape"),
        ((z, -v), "must be at least 0"),
        ((z, v, v[:2]), "lasting must have the shape"),
        ((z, v, -v), "lasting must be at least 0"),
        ((z, v, None, np.zeros(4, dtype=bool)), "anew must have the shape"),
    ):
        with pytest.raises(ValueError, match=reason):
            smooth(*arguments)
