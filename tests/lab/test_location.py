"""Compares the channels of location mechanisms with direct sums, their guarantees with enumeration, and their reports with the
channels.

Seeds are fixed. Every p-value is compared with `LIMIT` = 1e-9. There are four p-values; with new seeds a correct mechanism
would fail with probability 4e-9. Each test with p-values has a control that must fail.
"""

import math
from itertools import product

import numpy as np
import pytest

from lab.papers.location.base import LocationMechanism
from lab.papers.location.geometric import PlanarGeometric, TruncatedGeometric
from lab.papers.location.shokri import Shokri
from ldpstream.mechanisms import ChannelMechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from tests.mechanisms.test_sampling import LIMIT, p_value

SHAPES = [(1, 2), (2, 1), (1, 5), (5, 1), (2, 2), (2, 3), (3, 2), (3, 3), (4, 3)]


def line(k: int) -> FloatArray:
    return np.abs(np.subtract.outer(np.arange(k), np.arange(k))).astype(float)


def shokri(k: int = 5, max_loss: float = 0.9) -> Shokri:
    """A mechanism with a non-uniform prior, and with a quality loss that differs from the adversary's error."""
    return Shokri(np.arange(1, k + 1) / (k * (k + 1) / 2), line(k), max_loss, loss=line(k) ** 2)


GEOMETRIC: list[TruncatedGeometric | PlanarGeometric] = [
    *(TruncatedGeometric(k, eps) for k in (2, 3, 8) for eps in (1e-9, 0.1, 1.0, 5.0)),
    *(PlanarGeometric(shape, eps) for shape in SHAPES for eps in (0.1, 1.0, 5.0)),
]
EXAMPLES: list[LocationMechanism] = [TruncatedGeometric(5, 0.7), PlanarGeometric((3, 2), 0.7), shokri()]


# ---- channels


@pytest.mark.parametrize("m", [*GEOMETRIC, *EXAMPLES], ids=repr)
def test_rows_are_distributions(m: ChannelMechanism) -> None:
    channel = m.channel()
    assert channel.shape == (m.k, m.k)
    assert channel.min() >= 0
    np.testing.assert_allclose(channel.sum(axis=1), 1, rtol=4e-15)


@pytest.mark.parametrize("k", [2, 3, 6])
@pytest.mark.parametrize("eps", [0.05, 1.0, 4.0])
def test_the_line_is_a_truncated_two_sided_geometric(k: int, eps: float) -> None:
    a = math.exp(-eps)
    mass = [(1 - a) / (1 + a) * a**i for i in range(k + math.ceil(50 / eps))]
    expected = np.empty((k, k))
    for x, z in product(range(k), range(k)):
        inner = mass[abs(z - x)]
        expected[x, z] = math.fsum(mass[x:]) if z == 0 else math.fsum(mass[k - 1 - x :]) if z == k - 1 else inner
    np.testing.assert_allclose(TruncatedGeometric(k, eps).channel(), expected, rtol=4e-15)


# ---- guarantees


def enumerated(m: LocationMechanism) -> tuple[float, float]:
    """The largest (eps_1, eps_distance) over all pairs of values and all reports that either value can produce."""
    worst, per_distance, channel, distances = 0.0, 0.0, m.channel(), m.distances()
    for x, y in product(range(m.k), repeat=2):
        for a, b in zip(channel[x], channel[y]):
            if x != y and a > 0:
                loss = math.log(a / b) if b > 0 else math.inf
                worst, per_distance = max(worst, loss), max(per_distance, loss / distances[x, y])
    return worst, per_distance


@pytest.mark.parametrize("m", GEOMETRIC, ids=repr)
def test_geo_indistinguishability_is_exact(m: TruncatedGeometric | PlanarGeometric) -> None:
    eps_1, eps_distance = enumerated(m)
    assert m.eps_1 == pytest.approx(eps_1, rel=1e-12, abs=1e-15)
    assert m.eps_distance == pytest.approx(eps_distance, rel=1e-12, abs=1e-15)
    assert eps_distance <= m.eps * (1 + 1e-12) + 1e-15
    sides = getattr(m, "shape", (9, 9))
    if min(sides) >= 2 and max(sides) >= 3:
        assert m.eps_distance == pytest.approx(m.eps, rel=1e-12)
    else:
        assert m.eps_distance < m.eps


# ---- reports


def fits(counts: IntArray, expected: FloatArray) -> bool:
    """True if the counts fit the distribution: they pass a chi-squared test, and no outcome of probability zero occurs."""
    if counts[expected.ravel() == 0].any():
        return False
    return np.count_nonzero(expected) == 1 or p_value(counts, expected) > LIMIT


@pytest.mark.parametrize(
    ("m", "wrong"),
    [
        (TruncatedGeometric(6, 3.0), TruncatedGeometric(6, 3.2)),
        (TruncatedGeometric(300, 0.1), TruncatedGeometric(300, 0.105)),
        (PlanarGeometric((5, 4), 1.5), PlanarGeometric((5, 4), 1.6)),
        (shokri(), shokri(max_loss=1.1)),
    ],
    ids=repr,
)
def test_reports_follow_the_channel(m: ChannelMechanism, wrong: ChannelMechanism) -> None:
    """Tests the values and the reports of all people jointly (at most five values)."""
    rng = np.random.default_rng(20240607)
    shown = np.unique(np.linspace(0, m.k - 1, min(m.k, 5)).astype(int))
    values = rng.choice(shown, 400_000)
    reports = m.report(values, rng).astype(np.int64)
    joint = np.bincount(np.searchsorted(shown, values) * m.k + reports, minlength=len(shown) * m.k)
    assert fits(joint, m.channel()[shown] / len(shown))
    assert not fits(joint, wrong.channel()[shown] / len(shown))


# ---- the inversion


def outcomes(m: ChannelMechanism, f: FloatArray, steps: int) -> tuple[FloatArray, FloatArray]:
    """Probability and estimate of every sequence of reports that one person can send, by enumeration."""
    a, b = m.channel(), m.reading.inverse()
    probabilities, estimates = [], []
    for x, *reports in product(range(m.k), repeat=steps + 1):
        probabilities.append(f[x] * math.prod(a[x, z] for z in reports))
        estimates.append(b[reports].mean(axis=0))
    return np.array(probabilities), np.array(estimates)


@pytest.mark.parametrize("m", [TruncatedGeometric(3, 0.7), PlanarGeometric((2, 2), 1.0), shokri(4, 0.5)], ids=repr)
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_inversion_variances_match_enumeration(m: ChannelMechanism, steps: int) -> None:
    for f in (np.arange(1, m.k + 1) / (m.k * (m.k + 1) / 2), np.eye(m.k)[1]):
        probability, estimate = outcomes(m, f, steps)
        expected = probability @ estimate**2 - (probability @ estimate) ** 2
        np.testing.assert_allclose(m.reading.inversion_variances(f, n=7, steps=steps), expected / 7, rtol=1e-9, atol=1e-12)
