"""The formulas of docs/explained/sets.md, compared with enumerations of all sets, members and sequences of reports."""

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.families.grr import probabilities
from ldpstream.mechanisms.families.padded_sampling import LongitudinalPaddedSampling, PaddedSampling, SetMechanism

DOCUMENT = (Path(__file__).parents[2] / "docs" / "explained" / "sets.md").read_text()
N, M, T, EPS, EPS_INF = 3, 2, 3, 1.2, 2.0
D = N + M
ONCE, CHAIN = PaddedSampling(N, EPS, M), LongitudinalPaddedSampling(N, EPS_INF, EPS, M)
SETS = [{0, 1}, {0, 2}, {1, 2}, {0, 3}, {1, 3}, {2, 3}, {3, 4}]  # padded; 3 and 4 are the dummies
PEOPLE = np.array([0.3, 0.05, 0.1, 0.2, 0.1, 0.05, 0.2])
SHARES = np.array([PEOPLE @ [s in held for held in SETS] for s in range(D)]) / M
BOTH = np.array([[PEOPLE @ [{u, v} <= held for held in SETS] for u in range(D)] for v in range(D)])
SEQUENCES = np.array([np.bincount(one, minlength=D) for one in product(range(D), repeat=T)])  # counts of symbols


def a_and_b(eps: float) -> tuple[float, float]:
    has("A = 1/(m + n e^−ε)", "B = A e^−ε")
    a = 1 / (M + N * math.exp(-eps))
    return a, a * math.exp(-eps)


def has(*formulas: str) -> None:
    assert all(formula in DOCUMENT for formula in formulas)


def drawn(eps: float) -> FloatArray:
    """(sets, symbols) from A and B."""
    a, b = a_and_b(eps)
    return np.array([[a if s in held else b for s in range(D)] for held in SETS])


def sequences(m: SetMechanism) -> FloatArray:
    """(sets, sequences) probabilities of T reports of each set, from the two ways of drawing in the document."""
    steps = np.array(list(product(range(D), repeat=T)))
    if m is ONCE:
        return np.asarray(drawn(EPS)[:, steps].prod(axis=2))
    fresh = np.where(np.eye(D, dtype=bool), CHAIN.p2, CHAIN.q2)
    return np.asarray(drawn(EPS_INF) @ fresh[:, steps].prod(axis=2))


def test_the_channel_is_that_of_the_mechanism_and_of_grr_of_a_drawn_member() -> None:
    has("p = mA − (m−1)B and q = B; ln(p/q) = ln(1 + m (e^ε − 1))")
    (a, b), p, q = a_and_b(EPS), ONCE.p, ONCE.q
    assert M * a - (M - 1) * b == pytest.approx(p)
    assert b == pytest.approx(q)
    assert math.log(p / q) == pytest.approx(math.log(1 + M * (math.exp(EPS) - 1)))
    grr = np.where(np.eye(D, dtype=bool), *probabilities(D, math.log(p / q)))
    np.testing.assert_allclose([grr[list(held)].mean(axis=0) for held in SETS], drawn(EPS))
    assert sorted(map(tuple, ONCE.channel().round(9))) == sorted(map(tuple, drawn(EPS).round(9)))
    assert a != pytest.approx(a_and_b(EPS + 0.1)[0])


def test_the_losses_are_those_of_all_pairs_of_sets() -> None:
    has("t reports: tε", "ε_t = ln((A E^t + 1 − A)/(B E^t + 1 − B))")
    (a, b), e = a_and_b(EPS_INF), CHAIN.p2 / CHAIN.q2
    of_chain = math.log((a * e**T + 1 - a) / (b * e**T + 1 - b))
    for m, expected in ((ONCE, T * EPS), (CHAIN, of_chain)):
        logs = np.log(sequences(m))
        for one, other in product(logs, logs):
            loss = np.abs(one - other).max()
            assert loss == pytest.approx(0 if one is other or (one == other).all() else expected)


@pytest.mark.parametrize("m", [ONCE, CHAIN], ids=["PS-GRR", "L-PS-GRR"])
def test_variances_and_covariances_in_a_window_are_those_of_all_sequences(m: SetMechanism) -> None:
    has("Var f̂ = [π a(1−a) + (1−π) b(1−b) + t (a−b)² π(1−π)] / (N (p−q)²)")
    has("π = m f                 a = A     b = B", "π = q₁ + (p₁−q₁) f      a = p₂    b = q₂")
    has("Cov(Cᵤ, Cᵥ) = −t γᵤ γᵥ + t(t−1) (a−b)² K", "K = −πᵤ πᵥ (L-PS-GRR), Pr[u, v ∈ S] − πᵤ πᵥ (PS-GRR)")
    chances = PEOPLE @ sequences(m)
    mean = chances @ SEQUENCES
    covariance = SEQUENCES.T @ (chances[:, None] * SEQUENCES) - np.outer(mean, mean)
    if m is ONCE:
        pi, (a, b) = M * SHARES, a_and_b(EPS)
        together = BOTH - np.outer(pi, pi)
    else:
        of_member, other = a_and_b(EPS_INF)
        p1, q1 = M * of_member - (M - 1) * other, other
        pi, a, b = q1 + (p1 - q1) * SHARES, CHAIN.p2, CHAIN.q2
        together = -np.outer(pi, pi)
    p, q, reports = m.p, m.q, T  # of one person
    variance = (pi * a * (1 - a) + (1 - pi) * b * (1 - b) + T * (a - b) ** 2 * pi * (1 - pi)) / (reports * (p - q) ** 2)
    np.testing.assert_allclose(variance, np.diag(covariance) / (T * (p - q)) ** 2)
    np.testing.assert_allclose(variance, m.reading.inversion_variances(SHARES, 1, T))
    gamma = q + (p - q) * SHARES
    stated = -T * np.outer(gamma, gamma) + T * (T - 1) * (a - b) ** 2 * together
    apart = ~np.eye(D, dtype=bool)
    np.testing.assert_allclose(stated[apart], covariance[apart], atol=1e-12)
    np.testing.assert_allclose(covariance.sum(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose((SEQUENCES / T - q) / (p - q) @ np.ones(D), 1)
    np.testing.assert_allclose(chances @ ((SEQUENCES / T - q) / (p - q)), SHARES)  # the estimate
