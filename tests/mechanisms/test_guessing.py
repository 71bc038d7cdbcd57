"""Compares the probability of a right guess with the channel (one report) and with all enumerated outputs (several reports)."""

import math

import numpy as np
import pytest

from ldpstream.mechanisms import LONGITUDINAL, NAMES, ONE_TIME, Longitudinal, Mechanism, guessing, mechanism
from ldpstream.mechanisms.geometric import TruncatedGeometric
from tests.mechanisms import enumeration


def built(name: str, k: int, eps_inf: float = 2.0, eps_1: float = 1.0) -> Mechanism:
    return mechanism(name, k, eps=eps_1) if name in ONE_TIME else mechanism(name, k, eps_inf=eps_inf, eps_1=eps_1)


def enumerated(m: Longitudinal, t: int) -> float:
    """(1/k) Σ_y max_v P(y|v), over functions and reports of an unchanged value."""
    rounds = enumeration.Rounds(m.p1, m.q1, m.p2, m.q2)
    if m.name.endswith("UE"):
        rows = []
        for v in range(m.k):
            joint = np.zeros(1)
            for bit in range(m.k):
                joint = np.add.outer(joint, enumeration.bit_log_likelihood(rounds, (v,) * t, bit)).ravel()
            rows.append(joint)
        return float(np.exp(rows).max(axis=0).sum() / m.k)
    n_functions, n_symbols = (1, m.k) if m.name == "L-GRR" else m.table_shape
    table, sequences = enumeration.symbol_log_likelihood(n_symbols, rounds, t)
    constant = np.exp([table[sequences.index((s,) * t)] for s in range(n_symbols)])
    chances = []
    for function in range(n_functions):
        symbols = m.memo_keys(np.arange(m.k), np.full(m.k, function))
        chances.append(constant[symbols].max(axis=0).sum() / m.k)
    return float(np.mean(chances))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [2, 3, 5, 10])
def test_the_guess_of_one_report_follows_from_the_channel(name: str, k: int) -> None:
    for m in (built(name, k), built(name, k, 4.0, 1.9)):
        assert m.guess() == pytest.approx(m.channel().max(axis=0).sum() / k, rel=1e-12)
        assert 1 / k < m.guess() <= guessing.bound(m.eps_1, k) * (1 + 1e-12)
        assert m.with_fake_data(3).guess() == m.guess()


@pytest.mark.parametrize("name", LONGITUDINAL)
@pytest.mark.parametrize(("k", "t"), [(2, 4), (3, 2), (3, 3), (5, 2)])
def test_the_guess_of_one_memos_reports_is_the_enumerated_one(name: str, k: int, t: int) -> None:
    m = LONGITUDINAL[name](k=k, eps_inf=2.0, eps_1=1.0)
    assert m.guess(t) == pytest.approx(enumerated(m, t), rel=1e-11)
    assert m.guess(t) <= guessing.bound(m.eps_t(t), k) * (1 + 1e-12)


@pytest.mark.parametrize("name", LONGITUDINAL)
def test_the_guess_rises_to_the_guess_from_the_memo(name: str) -> None:
    for k in (2, 6, 1000):
        m = built(name, k, 4.0, 1.9)
        chances = [m.guess(t) for t in (1, 2, 3, 10, 50, 100, 101, math.inf)]
        assert np.diff(chances).min() >= -1e-12
        assert chances[-3] == pytest.approx(chances[-1], rel=1e-3)
        assert chances[-1] <= guessing.bound(m.eps_inf, k) * (1 + 1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [2, 10**5])
def test_the_guess_is_in_range_for_any_eps_and_k(name: str, k: int) -> None:
    for eps in (1e-9, 50.0, 350.0):
        m = built(name, k, 2 * eps, eps)
        for t in (1, 7, 100, math.inf):
            assert 1 / k * (1 - 1e-9) <= m.guess(t) <= 1 + 1e-9


def test_the_guesses_of_the_demos_mechanism() -> None:
    m = mechanism("L-GRR", 6, eps_inf=4.0, eps_1=2.0)
    assert m.guess() == pytest.approx(0.5964, abs=5e-5)
    assert m.guess(12) == pytest.approx(0.908, abs=5e-4)
    assert m.guess(math.inf) == pytest.approx(math.exp(4) / (math.exp(4) + 5))
    once = mechanism("GRR", 6, eps=2.0)
    assert once.guess(2) == pytest.approx(guessing.bound(4.0, 6))
    assert once.guess(math.inf) == 1


def test_the_guess_of_a_location_follows_from_the_channel() -> None:
    m = TruncatedGeometric(k=5, eps=0.5)
    assert m.guess() == pytest.approx(m.channel().max(axis=0).sum() / 5)


@pytest.mark.parametrize("t", [0, -1, 1.5, math.nan])
def test_the_number_of_reports_is_checked(t: float) -> None:
    with pytest.raises(ValueError, match="t must be an integer"):
        mechanism("GRR", 6, eps=2.0).guess(t)


def test_the_guess_of_a_changing_value_follows_eps_sequence() -> None:
    m = mechanism("L-GRR", 6, eps_inf=1.0, eps_1=0.1)
    for t in (1, 6, 50, 120):
        assert m.guess_any_values(t) == guessing.bound(m.eps_sequence(t).value, 6)
    assert m.guess_any_values(10**9) == 1
    for name in LONGITUDINAL:
        for t in (1, 3):
            assert built(name, 3).guess_any_values(t) >= built(name, 3).guess(t) * (1 - 1e-12)
