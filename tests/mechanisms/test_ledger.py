"""Compares the ledger with enumeration: every exact loss equals the enumerated loss, and every bound is at least as large."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ldpstream.mechanisms import ledger, mechanism
from ldpstream.mechanisms.families.grr import LongitudinalGRR
from ldpstream.mechanisms.families.local_hashing import LongitudinalHashing
from ldpstream.mechanisms.families.unary import LongitudinalUnary, symmetric
from tests.mechanisms import enumeration
from tests.mechanisms.guess_enumeration import sequence_loss

UNARY = ("L-SUE", "L-OSUE", "L-SOUE", "L-OUE")
REACHABLE = {"L-SUE": 0.9, "L-OSUE": 0.9, "L-SOUE": 0.5, "L-OUE": 0.5}  # values of ε₁/ε∞ that the second round can reach


def grr_rounds(k: int, eps_inf: float, eps_1: float, *, paper: bool = False) -> LongitudinalGRR:
    return LongitudinalGRR(k, eps_inf, eps_1, "paper" if paper else "exact")


def unary_rounds(name: str, eps_inf: float, eps_1: float) -> LongitudinalUnary:
    return LongitudinalUnary(name, 2, eps_inf, eps_1)


def both(m: LongitudinalUnary) -> dict[str, ledger.Round]:
    return {"first": m.first, "second": m.second}


def grr_logs(m: LongitudinalGRR) -> dict[str, float]:
    return {"log_e1": m.eps_inf, "log_e2": m.eps_2}


def sequence_grr(k: int, m: LongitudinalGRR, t: int) -> ledger.SequenceLoss:
    return ledger.eps_sequence_grr(t, k=k, **grr_logs(m))


def sequence_unary(k: int, m: LongitudinalUnary, t: int) -> ledger.SequenceLoss:
    return ledger.eps_sequence_unary(t, k=k, **both(m))


def extreme_rounds(eps_inf: float, eps_2: float) -> dict[str, ledger.Round]:
    """L-SUE with any ε∞ and ε₂."""
    return {"first": symmetric(eps_inf), "second": symmetric(eps_2)}


# ---- eps_t


@pytest.mark.parametrize("k", [2, 3, 10**6])
@pytest.mark.parametrize("eps_inf", [1e-9, 1e-3, 1.0, 30.0, 700.0])
def test_eps_t_rises_to_eps_inf_without_cancellation(k: int, eps_inf: float) -> None:
    for eps_2 in (1e-6, 1.0, 700.0):
        rounds = extreme_rounds(eps_inf, eps_2)
        grr = [ledger.eps_t_grr(t, k=k, log_e1=eps_inf, log_e2=eps_2) for t in (1, 2, 100, 10**6, 2**62)]
        unary = [ledger.eps_t_unary(t, **rounds) for t in (1, 2, 100, 10**6, 2**62)]
        for losses in (grr, unary):
            assert losses == sorted(losses)
            assert losses[0] > 0
            assert losses[-1] == pytest.approx(eps_inf, rel=1e-6)
        assert max(grr) <= eps_inf * (1 + 1e-12)


def test_eps_t_of_tiny_losses_keeps_its_digits() -> None:
    # first-order approximation for small ε∞: ε_t = ε∞ (E^t - 1)/(E^t + k-1)
    eps_inf, eps_2, k, t = 1e-12, 0.5, 5, 3
    loss = ledger.eps_t_grr(t, k=k, log_e1=eps_inf, log_e2=eps_2)
    assert loss == pytest.approx(eps_inf * math.expm1(t * eps_2) / (math.exp(t * eps_2) + k - 1), rel=1e-11)


# ---- eps_sequence


@pytest.mark.parametrize(
    ("k", "eps_inf", "eps_1", "paper", "steps"),
    [
        (2, 2.0, 1.0, False, 7),
        (2, 0.3, 0.15, False, 6),
        (3, 2.0, 1.0, False, 5),
        (3, 0.3, 0.15, False, 5),
        (3, 2.0, 1.8, False, 4),
        (3, 2.0, 1.0, True, 4),
        (4, 2.0, 1.0, False, 4),
        (4, 4.0, 0.5, False, 4),
        (4, 2.0, 1.8, False, 4),
        (5, 1.0, 0.1, True, 4),
    ],
)
def test_eps_sequence_of_symbols_is_the_enumerated_one_or_a_bound(
    k: int, eps_inf: float, eps_1: float, paper: bool, steps: int
) -> None:
    rounds = grr_rounds(k, eps_inf, eps_1, paper=paper)
    for t in range(1, steps + 1):
        found, truth = sequence_grr(k, rounds, t), sequence_loss(rounds, t)
        exact = k <= 4 or t == 1
        assert found.exact == exact
        assert truth * (1 - 1e-10) <= found.value <= truth * (1 + (1e-10 if exact else 0.2)), t


@pytest.mark.parametrize(("eps_inf", "eps_1"), [(2.0, 1.0), (0.3, 0.15), (4.0, 0.5), (4.0, 3.6)])
def test_no_counts_lose_more_than_the_bound_of_symbols(eps_inf: float, eps_1: float) -> None:
    """Counts of x' for reports equal to x: random ones, and nearly equal ones of some values for some symbols."""
    rng = np.random.default_rng(5)
    for k, t in ((2, 9), (2, 100), (3, 24), (8, 40), (20, 8), (20, 60)):
        rounds, worst = grr_rounds(k, eps_inf, eps_1), 0.0
        e1, e2, total = math.exp(rounds.eps_inf), rounds.eps_2, math.exp(rounds.eps_inf) + k - 1
        cells = [np.flatnonzero(np.outer(np.arange(k) >= r, np.arange(k) < m)) for m in range(1, k) for r in range(k)]
        few = [np.bincount(np.resize(places, t), minlength=k * k) for places in cells]
        for flat in [*few, *rng.multinomial(t, rng.dirichlet(np.full(k * k, 0.1), 200))]:
            counts = flat.reshape(k, k)
            gain = np.log((e1 * np.exp(e2 * counts.sum(axis=0)) + k - 1) / total).sum()
            rows = (np.exp(e2 * counts) * (1 + (e1 - 1) * np.eye(k))).sum(axis=1) / total
            worst = max(worst, float(gain - np.log(rows).sum()))
        assert worst <= sequence_grr(k, rounds, t).value * (1 + 1e-9)
        assert worst > 0.4 * sequence_grr(k, rounds, t).value


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize(
    ("k", "eps_inf", "eps_1", "steps"),
    [(2, 2.0, 1.0, 6), (3, 2.0, 1.0, 4), (4, 2.0, 0.3, 4), (5, 0.5, 0.25, 3), (20, 2.0, 1.0, 3), (100, 4.0, 2.0, 3)],
)
def test_eps_sequence_of_few_bits_is_the_enumerated_one(name: str, k: int, eps_inf: float, eps_1: float, steps: int) -> None:
    rounds = unary_rounds(name, eps_inf, eps_1)
    for t in range(1, steps + 1):
        assert sequence_unary(k, rounds, t).exact
        assert sequence_unary(k, rounds, t).value == pytest.approx(enumeration.bits_loss(k, rounds, t), rel=1e-10), t


@pytest.mark.parametrize(("name", "k", "t"), [("L-OSUE", 2, 4), ("L-OUE", 3, 3), ("L-SOUE", 2, 3), ("L-SUE", 4, 2)])
def test_the_sum_over_bits_equals_the_joint_enumeration(name: str, k: int, t: int) -> None:
    rounds = unary_rounds(name, 2.0, 1.0)
    loss = enumeration.all_bits_loss(k, rounds, t)
    assert enumeration.bits_loss(k, rounds, t) == pytest.approx(loss, rel=1e-12)


@pytest.mark.parametrize(("g", "k"), [(2, 2), (2, 5), (3, 3), (3, 5), (3, 9)])
def test_local_hashing_has_the_loss_of_grr_on_its_symbols(g: int, k: int) -> None:
    """Hash functions are public, so the loss is the maximum over all functions. If k >= g, the worst function maps the values
    onto all g symbols."""
    m = LongitudinalHashing("L-OLH", k, 2.0, 1.0, g=g)
    assert m.eps_sequence(3) == sequence_grr(g, grr_rounds(g, 2.0, 1.0), 3)
    assert sequence_loss(m, 3) == pytest.approx(m.eps_sequence(3).value, rel=1e-10)


@pytest.mark.parametrize(("k", "g"), [(2, 3), (3, 4)])
def test_fewer_values_than_symbols_lose_at_most_the_bound(k: int, g: int) -> None:
    """The enumeration includes symbols to which no value hashes."""
    m = LongitudinalHashing("L-OLH", k, 2.0, 1.0, g=g)
    for t in (1, 2, 3):
        found, truth = m.eps_sequence(t), sequence_loss(m, t)
        assert found.exact == (t == 1)
        assert truth * (1 - 1e-10) <= found.value <= truth * 2


def test_a_loss_with_fake_data_is_a_bound() -> None:
    m = mechanism("L-GRR", 4, eps_inf=2.0, eps_1=1.0)
    assert m.eps_sequence(1).exact
    assert not m.with_fake_data(3).eps_sequence(1).exact
    assert m.with_fake_data(3).eps_sequence(1).value == m.eps_sequence(1).value


# ---- bounds


eps_pairs = st.tuples(st.floats(0.05, 20.0), st.floats(0.02, 0.98))
domains = st.sampled_from([2, 3, 4, 7, 16, 17, 40, 1000, 10**6])
horizons = st.one_of(st.integers(1, 70), st.sampled_from([99, 364, 1023, 1024, 9999, 10**6 - 1]))


@settings(max_examples=60, derandomize=True)
@given(domains, eps_pairs, horizons)
def test_eps_sequence_of_grr_grows_and_is_at_least_eps_t(k: int, pair: tuple[float, float], t: int) -> None:
    rounds = grr_rounds(k, pair[0], pair[0] * pair[1])
    now, later = sequence_grr(k, rounds, t), sequence_grr(k, rounds, t + 1)
    check(now, later, ledger.eps_t_grr(t, k=k, **grr_logs(rounds)), t * grr_logs(rounds)["log_e2"])


@settings(max_examples=15, derandomize=True)
@given(st.sampled_from(UNARY), domains, eps_pairs, horizons)
def test_eps_sequence_of_bits_grows_and_is_at_least_eps_t(name: str, k: int, pair: tuple[float, float], t: int) -> None:
    rounds = unary_rounds(name, pair[0], pair[0] * min(pair[1], REACHABLE[name]))
    logs = both(rounds)
    now, later = sequence_unary(k, rounds, t), sequence_unary(k, rounds, t + 1)
    check(now, later, ledger.eps_t_unary(t, **logs), t * k * max(rounds.second.alpha, rounds.second.beta))


def check(now: ledger.SequenceLoss, later: ledger.SequenceLoss, unchanged: float, trivial: float) -> None:
    """Checks the properties that every loss has. `trivial` is the loss of t reports from the second round alone."""
    assert now.value <= later.value * (1 + 1e-9)
    assert unchanged * (1 - 1e-9) <= now.value <= trivial * (1 + 1e-9)


# ---- extremes


@pytest.mark.parametrize("k", [2, 5, 17, 10**6])
@pytest.mark.parametrize(("eps_inf", "eps_2"), [(700.0, 1400.0), (700.0, 1.0), (1e-6, 700.0), (1e-3, 0.5)])
def test_extreme_parameters_neither_overflow_nor_fail(k: int, eps_inf: float, eps_2: float) -> None:
    rounds = extreme_rounds(eps_inf, eps_2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for t in (1, 7, 100, 10**6):
            for found in (
                ledger.eps_sequence_grr(t, k=k, log_e1=eps_inf, log_e2=eps_2),
                ledger.eps_sequence_unary(t, k=k, **rounds),
            ):
                assert math.isfinite(found.value)
                assert found.value > 0


def test_the_loss_grows_at_the_stated_rate_for_large_t() -> None:
    """The rate per step is ε₂(1-1/k) for GRR on k symbols."""
    for k in (2, 3, 8):
        rounds = grr_rounds(k, 2.0, 1.0)
        rate = sequence_grr(k, rounds, 10**6).value - sequence_grr(k, rounds, 10**6 - k).value
        assert rate / k == pytest.approx(grr_logs(rounds)["log_e2"] * (1 - 1 / k), rel=1e-4)


# ---- errors


@pytest.mark.parametrize("t", [0, -1, 1.0, True, 2**63])
def test_numbers_of_reports_are_checked(t: int) -> None:
    rounds = both(unary_rounds("L-SUE", 2.0, 1.0))
    for call in (
        lambda: ledger.eps_t_grr(t, k=3, log_e1=2.0, log_e2=1.0),
        lambda: ledger.eps_t_unary(t, **rounds),
        lambda: mechanism("GRR", 3, eps=1.0).eps_t(t),
        lambda: ledger.eps_sequence_grr(t, k=3, log_e1=2.0, log_e2=1.0),
        lambda: ledger.eps_sequence_unary(t, k=3, **rounds),
    ):
        with pytest.raises(ValueError, match="t must be an integer in"):
            call()


@pytest.mark.parametrize(("k", "log_e1", "log_e2"), [(1, 2.0, 1.0), (3, 0.0, 1.0), (3, 701.0, 1.0), (3, 2.0, math.nan)])
def test_symbols_and_their_rounds_are_checked(k: int, log_e1: float, log_e2: float) -> None:
    for function in (ledger.eps_t_grr, ledger.eps_sequence_grr):
        with pytest.raises(ValueError, match="must be"):
            function(2, k=k, log_e1=log_e1, log_e2=log_e2)
