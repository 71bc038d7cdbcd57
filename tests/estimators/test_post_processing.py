"""Tests properties of the post-processing methods, and compares error metrics with their definitions."""

import math
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lab import error_measures as errors
from ldpstream.estimators import matrix_inversion, post_process, post_processing
from ldpstream.estimators.post_processing import NAMES
from ldpstream.mechanisms.families.unary import LongitudinalUnary

NON_NEGATIVE = {"base-pos", "norm-sub", "norm-mul", "norm-cut", "power", "power-ns"}
SUMS = {"norm", "norm-sub", "norm-mul", "norm-cut", "power-ns"}
estimates = arrays(np.float64, st.integers(1, 30), elements=st.floats(-5, 5))
names = st.sampled_from(NAMES)


def apply(x: np.ndarray, name: str) -> np.ndarray:
    return post_process(x, name, variance=0.01)


@settings(max_examples=300)
@given(estimates, names, st.randoms(use_true_random=False))
def test_each_method_keeps_its_guarantees(x: np.ndarray, name: str, random: Random) -> None:
    """Checks the sign, the sum, the order and idempotence. Also checks that the order of the values does not matter."""
    f = apply(x, name)
    if name in NON_NEGATIVE:
        assert (f >= 0).all()
    if name in SUMS:
        assert f.sum() == pytest.approx(1)
    order = np.argsort(x, kind="stable")
    assert (np.diff(f[order]) >= -1e-9).all() or name == "norm-cut"  # norm-cut may treat equal numbers differently
    if name == "norm-cut":
        assert all(f[i] >= f[j] - 1e-12 for i in range(len(x)) for j in range(len(x)) if x[i] > x[j])
    if name not in ("power", "power-ns"):  # a second application shrinks further
        np.testing.assert_allclose(apply(f, name), f, atol=1e-12)
    shuffled = np.array(random.sample(range(len(x)), len(x)))
    again = apply(x[shuffled], name)
    if name == "norm-cut":
        again, shuffled, f = np.sort(again), np.arange(len(x)), np.sort(f)
    np.testing.assert_allclose(again, f[shuffled], atol=1e-9)


@given(
    arrays(np.float64, st.integers(2, 12), elements=st.floats(-1, 2) | st.floats(-1e-3, 1e-3)),
    st.floats(-10, 1),
    st.floats(0, 12),
)
def test_power_keeps_the_order(x: np.ndarray, log_noise: float, log_scale: float) -> None:
    """Tests every method of computing the posterior, also for estimates far outside the range."""
    found = post_process(x * 10**log_scale, "power", variance=10 ** (2 * log_noise))
    assert (np.diff(found[np.argsort(x)]) >= -1e-9 / (100 * x.size)).all()


@settings(max_examples=300)
@given(estimates)
def test_norm_sub_is_the_projection_onto_the_simplex(x: np.ndarray) -> None:
    f = apply(x, "norm-sub")
    shift = (x - f)[f > 0]
    np.testing.assert_allclose(shift, shift.mean(), atol=1e-9)  # norm-sub subtracts one constant from all positive numbers
    assert (x[f == 0] <= shift.mean() + 1e-9).all()  # the other numbers are at most the constant, as a projection requires


@pytest.mark.parametrize("outliers", [[], [0.999, 1.001, 1.5], [-0.01, 1e-7, 2.6e-4]])
@pytest.mark.parametrize("noise", [0.03, 0.01, 1e-3, 1e-4, 1e-6])
def test_power_is_the_posterior_mean(noise: float, outliers: list[float]) -> None:
    """Compares with the definition: computes each integral on a fine grid around the estimate, and the exponent by a scan.

    With less noise, more estimates are many standard errors from zero, so the test covers every method of computing the
    posterior. Outliers are near and beyond the smallest possible true number, 1 / 4300, and the largest, 1.
    """
    rng = np.random.default_rng(8)
    truth = np.sort(rng.pareto(1.2, 40))[::-1]
    truth /= truth.sum()
    x = np.concatenate([truth + rng.normal(0, noise, 40), outliers])
    low, z = 1 / (100 * x.size), x / noise
    assert noise in (0.03, 1e-6) or ((z > 20).any() and (z < 20).any())
    near = np.clip((x[:, None] + noise * np.linspace(-9, 9, 120)).ravel(), low, 1)
    edge = np.geomspace(1e-15, low, 1500)
    nodes = np.sort(np.concatenate([np.geomspace(low, 1, 1500), near, low + edge, 1 - edge]))
    weights = np.diff(nodes, prepend=nodes[0]) / 2 + np.diff(nodes, append=nodes[-1]) / 2
    exponent = -((x[:, None] - nodes) ** 2) / (2 * noise**2)
    likelihood = np.exp(exponent - exponent.max(axis=1, keepdims=True))

    def posterior(a: float) -> tuple[float, np.ndarray]:
        prior = weights * nodes**-a / (weights * nodes**-a).sum()
        joint = likelihood * prior
        return np.log(joint.sum(axis=1)).sum(), (joint @ nodes) / joint.sum(axis=1)

    rough = max(np.arange(0, 4, 0.1), key=lambda a: posterior(a)[0])
    best = max((posterior(a) for a in np.arange(rough - 0.1, rough + 0.1, 0.004)), key=lambda found: found[0])
    np.testing.assert_allclose(post_process(x, "power", variance=noise**2), best[1], atol=1e-2 * noise)
    if noise > low / 100:  # without noise, power has no benefit, and raises true numbers below the bound
        assert errors.mse(truth, best[1][:40]) < errors.mse(truth, x[:40])


def test_power_fitted_to_a_sample_of_values_stays_accurate(monkeypatch: pytest.MonkeyPatch) -> None:
    """If very many different estimates are near zero, power fits the exponent to a sample (here a quarter) without loss of
    accuracy."""
    rng = np.random.default_rng(10)
    truth = 1 / np.arange(1, 8001) ** 1.3
    truth /= truth.sum()
    x = truth + rng.normal(0, 1e-4, truth.size)
    whole = post_process(x, "power", variance=1e-8)
    monkeypatch.setattr(post_processing, "_FITTED", 2000)
    thinned = post_process(x, "power", variance=1e-8)
    assert (thinned != whole).any()
    np.testing.assert_allclose(thinned, whole, atol=5e-3 * 1e-4)


def test_power_keeps_estimates_without_noise() -> None:
    x = np.array([0.7, 0.2, 0.1, 0.0])
    np.testing.assert_allclose(post_process(x, "power", variance=0.0), [0.7, 0.2, 0.1, 1 / 400], atol=1e-6)
    np.testing.assert_allclose(post_process(x, "power", variance=[0, 1e-3, 0, 0])[[0, 2]], [0.7, 0.1], atol=1e-6)


def test_power_uses_the_mechanisms_variance() -> None:
    m = LongitudinalUnary("L-OSUE", 50, eps_inf=2.0, eps_1=1.0)
    rng = np.random.default_rng(9)
    p = 1 / np.arange(1, 51) ** 1.5
    table = m.tabulate(m.simulate(rng.choice(50, 20_000, p=p / p.sum()), rng))
    raw = matrix_inversion(m, table)
    shrunk = matrix_inversion(m, table, post="power")
    np.testing.assert_allclose(shrunk.frequencies, post_process(raw.frequencies, "power", variance=raw.standard_errors**2))
    assert errors.mse(p / p.sum(), shrunk.frequencies) < errors.mse(p / p.sum(), raw.frequencies) / 2


def test_wrong_arguments_are_refused() -> None:
    wrong_ones: list[tuple[dict[str, Any], str]] = [
        ({"method": "norm-add"}, "norm-cut"),
        ({"method": "power"}, "variance must be at least 0 for power"),
        ({"method": "power", "variance": -1.0}, "variance"),
        ({"method": "power", "variance": math.nan}, "variance"),
        ({"method": "power", "variance": math.inf}, "variance"),
        ({"method": "power", "variance": [1.0, 1.0, 1.0]}, "variance"),
    ]
    for arguments, words in wrong_ones:
        with pytest.raises(ValueError, match=words):
            post_process([0.5, 0.5], **arguments)
    for wrong in ([], [[0.5]], [math.inf]):
        with pytest.raises(ValueError, match="finite"):
            post_process(wrong, "norm")
    assert np.isnan(post_process([math.nan, 1.0], "norm-sub")).all()


def test_metrics_equal_hand_computed_values() -> None:
    f, g = [0.5, 0.3, 0.2, 0.0], [0.4, 0.3, 0.2, 0.1]
    assert errors.mse(f, g) == pytest.approx(0.02 / 4)
    assert errors.mae(f, g) == pytest.approx(0.2 / 4)
    assert errors.l1(f, g) == pytest.approx(0.2)
    assert errors.l2(f, g) == pytest.approx(math.sqrt(0.02))
    assert errors.kl(f, g) == pytest.approx(0.5 * math.log(0.5 / 0.4))
    assert errors.kl(g, f) == math.inf
    assert errors.kl(f, f) == 0
    assert errors.emd_line(f, g) == pytest.approx(0.3)  # a tenth of the mass moves by three places
    for wrong in ([0.5], [[0.5, 0.3, 0.2, 0.0]]):
        with pytest.raises(ValueError, match="one length"):
            errors.mse(f, wrong)


DISTANCES = (
    errors.mse,
    errors.mae,
    errors.l1,
    errors.l2,
    errors.kl,
    errors.emd_line,
)


def test_metrics_treat_zero_nan_and_negatives_as_stated() -> None:
    truth = [0.5, 0.5, 0.0]
    negative = [0.6, 0.5, -0.1]
    assert errors.kl(truth, [0.5, 0.4, -0.1]) == pytest.approx(0.5 * math.log(0.5 / 0.4))  # the true share is 0
    assert errors.kl(truth, [0.5, 0.0, 0.5]) == errors.kl(truth, [1.1, -0.1, 0.0]) == math.inf
    assert errors.mae(truth, negative) == pytest.approx(0.2 / 3)
    assert errors.emd_line(truth, negative) == pytest.approx(0.2)
    assert errors.emd_line(truth, [0.5, 0.5, 0.5]) == pytest.approx(0.5)  # the excess mass moves beyond the end
    for metric in DISTANCES:
        assert metric(truth, truth) == 0
        assert math.isnan(metric(truth, [math.nan, 0.5, 0.5]))
        assert math.isnan(metric([0.5, math.nan, 0.5], truth))
        with pytest.raises(ValueError, match="finite"):
            metric(truth, [math.inf, 0, 0])
    with pytest.raises(ValueError, match="truth must be at least 0"):
        errors.kl(negative, truth)
