"""Tests fake data (RS+FD): support probabilities, variance, privacy loss, and counterexamples to published amplification."""

import itertools
import math

import numpy as np
import pytest

from ldpstream.mechanisms import NAMES, ONE_TIME, Mechanism, mechanism


def make(name: str, k: int, eps: float = 1.0) -> Mechanism:
    return mechanism(name, k, eps=eps) if name in ONE_TIME else mechanism(name, k, eps_inf=2 * eps, eps_1=eps)


@pytest.mark.parametrize("name", NAMES)
def test_the_mixture_has_the_stated_support_probabilities(name: str) -> None:
    """Checks the channel, then the share of simulated reports that support each value."""
    k, d = 5, 3
    real, mixed = make(name, k), make(name, k).with_fake_data(d)
    channel = mixed.channel()
    np.testing.assert_allclose(channel.sum(axis=1), 1)
    np.testing.assert_allclose(channel, (real.channel() + (d - 1) * real.channel().mean(axis=0)) / d)
    rng = np.random.default_rng(1)
    n = 400_000
    values = np.where(rng.random(n) < 1 / d, 0, rng.integers(0, k, n))  # everybody's true value is 0
    table = mixed.table(n, real.tabulate(real.simulate(values, rng)).counts)
    share = mixed.support(table) / n
    expected = np.where(np.arange(k) == 0, mixed.p, mixed.q)
    error = np.sqrt(expected * (1 - expected) / n)
    assert (np.abs(share - expected) < 5.5 * error).all()  # one of 70 normal scores exceeds 5.5 with probability 3e-6
    assert (np.abs(share - np.where(np.arange(k) == 0, real.p, real.q)) > 5.5 * error).any()  # control: no fake data


@pytest.mark.parametrize("name", ["GRR", "OUE", "L-OSUE", "L-OLH"])
def test_the_variance_follows_from_the_mixed_frequencies(name: str) -> None:
    real, mixed = make(name, 4), make(name, 4).with_fake_data(2)
    f = 0.3
    inner = (f + 1 / 4) / 2
    assert mixed.variance(f, 1000, 3) == pytest.approx(4 * real.variance(inner, 1000, 3))


def tuple_loss(channels: list[np.ndarray], differ: int) -> float:
    """The exact loss of an RS+FD tuple by enumeration, over pairs of tuples that differ in at most `differ` attributes."""
    d = len(channels)
    uniform = [c.mean(axis=0) for c in channels]
    domains = [range(len(c)) for c in channels]
    worst = 0.0
    likelihood = {}
    for v in itertools.product(*domains):
        total = 0.0
        for j in range(d):
            parts = [channels[i][v[i]] if i == j else uniform[i] for i in range(d)]
            outer = parts[0]
            for part in parts[1:]:
                outer = np.multiply.outer(outer, part)
            total = total + outer / d
        likelihood[v] = total
    for a, b in itertools.permutations(likelihood, 2):
        if sum(x != y for x, y in zip(a, b, strict=True)) <= differ:
            worst = max(worst, float(np.log(likelihood[a] / likelihood[b]).max()))
    return worst


@pytest.mark.parametrize("name", ["GRR", "OUE", "L-GRR", "SS"])
def test_a_tuple_loses_exactly_the_mechanisms_eps(name: str) -> None:
    """The mediant inequality bounds the loss for any tuples, and some tuples reach the bound."""
    channels = [make(name, 3).channel(), make(name, 3).channel()]
    assert tuple_loss(channels, differ=2) == pytest.approx(1.0)


@pytest.mark.parametrize("name", NAMES)
def test_eps_1_is_the_loss_of_a_true_report_and_a_mixed_report_loses_less(name: str) -> None:
    real, mixed = make(name, 5), make(name, 5).with_fake_data(3)
    of_real, of_mixed = (np.log(m.channel().max(axis=0) / m.channel().min(axis=0)).max() for m in (real, mixed))
    assert mixed.eps_1 == real.eps_1 == pytest.approx(of_real)
    assert of_mixed < 0.7 * mixed.eps_1


def test_amplification_needs_one_attribute_and_equal_domains() -> None:
    """The literature raises the budget to ln(d (e^ε - 1) + 1). The loss of a tuple then exceeds ε in two cases: people
    differ in several attributes, or the domains have different sizes."""
    eps, d = 1.0, 2
    raised = math.log(d * (math.exp(eps) - 1) + 1)
    equal = [make("GRR", 3, raised).channel()] * d
    assert tuple_loss(equal, differ=1) == pytest.approx(eps)
    assert tuple_loss(equal, differ=2) == pytest.approx(raised)
    assert raised > 1.48
    unequal = [make("GRR", 2, raised).channel(), make("GRR", 9, raised).channel()]
    assert tuple_loss(unequal, differ=1) > eps + 0.05
