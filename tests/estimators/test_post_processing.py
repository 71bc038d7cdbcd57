"""Laws of the post-processing methods, and metrics against their definitions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from estimators import matrix_inversion, metrics, post_process
from estimators.post_processing import NAMES
from mechanisms.unary import LongitudinalUnary

NON_NEGATIVE = {"base-pos", "norm-sub", "norm-mul", "norm-cut", "power", "power-ns"}
SUMS = {"norm", "norm-sub", "norm-mul", "norm-cut", "power-ns"}
estimates = arrays(np.float64, st.integers(1, 30), elements=st.floats(-5, 5))
names = st.sampled_from(NAMES)


def apply(x: np.ndarray, name: str, total: float = 1.0) -> np.ndarray:
    return post_process(x, name, variance=0.01 * total**2, total=total)


@settings(max_examples=500, deadline=None)
@given(estimates, names)
def test_each_method_keeps_its_promises(x: np.ndarray, name: str) -> None:
    f = apply(x, name)
    if name in NON_NEGATIVE:
        assert (f >= 0).all()
    if name in SUMS:
        assert f.sum() == pytest.approx(1)
    order = np.argsort(x, kind="stable")
    assert (np.diff(f[order]) >= -1e-9).all() or name == "norm-cut"  # equal numbers may be cut differently
    if name == "norm-cut":
        assert all(f[i] >= f[j] - 1e-12 for i in range(len(x)) for j in range(len(x)) if x[i] > x[j])
    if name not in ("power", "power-ns"):  # shrinking twice shrinks more
        np.testing.assert_allclose(apply(f, name), f, atol=1e-12)


@settings(max_examples=200, deadline=None)
@given(estimates, names, st.sampled_from([7.0, 1e6]))
def test_counts_are_treated_as_frequencies_are(x: np.ndarray, name: str, total: float) -> None:
    np.testing.assert_allclose(apply(x * total, name, total) / total, apply(x, name), atol=1e-6)


@settings(max_examples=300)
@given(estimates)
def test_norm_sub_is_the_projection_onto_the_simplex(x: np.ndarray) -> None:
    f = apply(x, "norm-sub")
    shift = (x - f)[f > 0]
    np.testing.assert_allclose(shift, shift.mean(), atol=1e-9)  # one number subtracted where positive,
    assert (x[f == 0] <= shift.mean() + 1e-9).all()  # and no less elsewhere: the conditions of the projection


def test_power_is_the_posterior_mean() -> None:
    """Against the definition, one value at a time and by brute force, with the fitted exponent found by a scan."""
    rng = np.random.default_rng(8)
    truth = np.sort(rng.pareto(1.2, 40))[::-1]
    truth /= truth.sum()
    x, variance = truth + rng.normal(0, 0.01, 40), 0.01**2
    grid = np.geomspace(1 / 4000, 1, 256)

    def posterior(a: float) -> tuple[float, np.ndarray]:
        prior = grid ** (1 - a) / (grid ** (1 - a)).sum()
        joint = np.exp(-((x[:, None] - grid) ** 2) / (2 * variance)) * prior
        return np.log(joint.sum(axis=1)).sum(), (joint * grid).sum(axis=1) / joint.sum(axis=1)

    best = max((posterior(a) for a in np.arange(0, 6, 0.001)), key=lambda found: found[0])
    np.testing.assert_allclose(post_process(x, "power", variance=variance), best[1], atol=1e-4)
    assert metrics.mse(truth, best[1]) < metrics.mse(truth, x)


def test_power_uses_the_mechanisms_noise() -> None:
    m = LongitudinalUnary("L-OSUE", 50, eps_inf=2.0, eps_1=1.0)
    rng = np.random.default_rng(9)
    p = 1 / np.arange(1, 51) ** 1.5
    table = m.tabulate(m.report(m.memoize(rng.choice(50, 20_000, p=p / p.sum()), rng), rng))
    raw = matrix_inversion(m, table)
    shrunk = matrix_inversion(m, table, post="power")
    np.testing.assert_allclose(shrunk.frequencies, post_process(raw.frequencies, "power", variance=raw.standard_errors**2))
    assert metrics.mse(p / p.sum(), shrunk.frequencies) < metrics.mse(p / p.sum(), raw.frequencies) / 2


def test_wrong_arguments_are_refused() -> None:
    for arguments, words in [
        ({"method": "norm-add"}, "norm-cut"),
        ({"method": "power"}, "variance must be positive for power"),
        ({"method": "power", "variance": 0.0}, "variance"),
        ({"method": "norm", "total": -1.0}, "total"),
    ]:
        with pytest.raises(ValueError, match=words):
            post_process([0.5, 0.5], **arguments)  # type: ignore[arg-type]
    for wrong in ([], [[0.5]], [math.inf]):
        with pytest.raises(ValueError, match="finite"):
            post_process(wrong, "norm")
    assert np.isnan(post_process([math.nan, 1.0], "norm-sub")).all()


def test_metrics_by_hand() -> None:
    f, g = [0.5, 0.3, 0.2, 0.0], [0.4, 0.3, 0.2, 0.1]
    assert metrics.mse(f, g) == pytest.approx(0.02 / 4)
    assert metrics.mae(f, g) == pytest.approx(0.2 / 4)
    assert metrics.l1(f, g) == pytest.approx(0.2)
    assert metrics.l2(f, g) == pytest.approx(math.sqrt(0.02))
    assert metrics.kl(f, g) == pytest.approx(0.5 * math.log(0.5 / 0.4))
    assert metrics.kl(g, f) == math.inf
    assert metrics.kl(f, f) == 0
    assert metrics.emd_line(f, g) == pytest.approx(0.3)  # a tenth moved three places
    square = [[0, 0], [0, 1], [1, 0], [3, 4]]
    assert metrics.emd_grid(f, g, square) == pytest.approx(0.1 * 5)
    assert metrics.utility_gain(2.0, 0.5) == 75
    assert metrics.utility_gain(1.0, 2.0) == 0
    assert metrics.utility_gain(0.0, 0.0) == 0
    for wrong in ([0.5], [[0.5, 0.3, 0.2, 0.0]]):
        with pytest.raises(ValueError, match="one length"):
            metrics.mse(f, wrong)
    with pytest.raises(ValueError, match="non-negative"):
        metrics.emd_grid(f, [0.5, 0.6, -0.1, 0], square)


@given(arrays(np.float64, 6, elements=st.floats(0.01, 1)), arrays(np.float64, 6, elements=st.floats(0.01, 1)))
def test_the_line_is_a_special_grid(a: np.ndarray, b: np.ndarray) -> None:
    line = np.column_stack((np.arange(6.0), np.zeros(6)))
    a, b = a / a.sum(), b / b.sum()
    assert metrics.emd_grid(a, b, line) == pytest.approx(metrics.emd_line(a, b), abs=1e-7)
