"""Tests that errors name the bad argument, good arguments work in their whole range, and no message shows a person's value."""

import math
import warnings
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ldpstream.mechanisms import LONGITUDINAL, NAMES, ONE_TIME, Mechanism, mechanism, registry
from ldpstream.mechanisms.arguments import MAX_K, logaddexp
from ldpstream.mechanisms.devices import bits_row, row_bits
from ldpstream.mechanisms.families.finite_field import prime_powers
from ldpstream.mechanisms.families.grr import GRR
from ldpstream.mechanisms.families.local_hashing import MAX_HASH_K, papers_g
from ldpstream.mechanisms.families.unary import CHAINS, ROUNDS, largest_eps_1

from .reference import build, most_values

NOT_NUMBERS: list[Any] = [math.nan, math.inf, -math.inf, True, False, np.True_, "1", None, 1j, [1.0], Decimal(1)]
ROUNDING = 1e-15  # rounding error of a difference of logarithms, relative to the size of eps_inf and ln k
BAD_EPS = [*NOT_NUMBERS, 0, -1.0, 0.0, 701, 10**400, -(10**400), 1e-10, 5e-324, Fraction(1, 10**400)]
BAD_K: list[Any] = [*NOT_NUMBERS, 2.0, 2.5, 1, 0, -3, MAX_K + 1, 2**100, np.float64(4)]
BAD_G: list[Any] = [math.nan, True, "4", 4.0, 0, 1, 6, 12, 1023, 1025, -4, 2**70]
BAD_OMEGA: list[Any] = [math.nan, True, "2", 2.0, 0, 5, -1]


@pytest.mark.parametrize("name", [*NAMES, "auto"])
def test_bad_numbers_are_rejected(name: str) -> None:
    for bad in BAD_EPS:
        if name in ONE_TIME:
            with pytest.raises(ValueError, match="eps"):
                mechanism(name, 5, eps=bad)
            continue
        with pytest.raises(ValueError, match="eps_inf"):
            mechanism(name, 5, eps_inf=bad, eps_1=1e-9)
        with pytest.raises(ValueError, match="eps_1"):
            mechanism(name, 5, eps_inf=2.0, eps_1=bad)
    for bad in BAD_K:
        with pytest.raises(ValueError, match="k must be an integer"):
            build(name, bad, 2.0, 1.0)
    for option, argument, sizes in (("LH", "g", BAD_G), ("SS", "omega", BAD_OMEGA), ("L-SS", "memo_size", BAD_OMEGA)):
        for bad in sizes if name.endswith(option) else []:
            with pytest.raises(ValueError, match=f"{argument} must be"):
                build(name, 5, 2.0, 1.0, **{argument: bad})


@pytest.mark.parametrize("name", sorted(LONGITUDINAL))
@pytest.mark.parametrize("eps_1", [2.0, 2.5, 2])
def test_eps_1_must_be_less_than_eps_inf(name: str, eps_1: float) -> None:
    with pytest.raises(ValueError, match=r"eps_1 must be in \(0, eps_inf\) = \(0, 2\), got 2"):
        mechanism(name, 5, eps_inf=2.0, eps_1=eps_1)
    wrong = r"calibration must be one of exact, paper, got 'other'|L-SS does not take calibration"
    with pytest.raises(ValueError, match=wrong):
        mechanism(name, 5, eps_inf=2.0, eps_1=1.0, calibration="other")


@pytest.mark.parametrize("name", ["L-SOUE", "L-OUE"])
@pytest.mark.parametrize("eps_inf", [1e-3, 0.5, 2.0, 20.0, 700.0])
def test_an_unreachable_eps_1_is_rejected_with_the_largest_one(name: str, eps_inf: float) -> None:
    """A second round that keeps every zero reaches the limit. The test computes the limit from such a second round."""
    p1, q1 = ((first := ROUNDS[CHAINS[name][0]](eps_inf)).p, first.q)
    limit = math.log(p1 / q1 * (1 - q1 / 2) / (1 - p1 / 2))
    assert largest_eps_1(first, "OUE") == pytest.approx(limit)
    with pytest.raises(ValueError, match=rf"eps_1 must be in \(0, {limit:g}\) for {name} with eps_inf={eps_inf:g}"):
        mechanism(name, 5, eps_inf=eps_inf, eps_1=limit * (1 + 1e-9))
    m = mechanism(name, 5, eps_inf=eps_inf, eps_1=limit * (1 - 1e-9))
    assert m.eps_t(1) == pytest.approx(limit, rel=1e-8)


@pytest.mark.parametrize("name", ["BLH", "OLH", "L-BLH", "L-OLH"])
def test_a_table_that_is_too_large_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="g = 1024 for k = 1025 needs a count table of more than"):
        build(name, 1025, 2.0, 1.0, g=1024)
    with pytest.raises(ValueError, match="k must be"):
        build(name, MAX_HASH_K + 1, 2.0, 1.0)


def test_unknown_names_and_wrong_parameters_are_rejected() -> None:
    for unknown in list[Any](["", "grr", "L-XUE", "Auto", None, 3, ["GRR"]]):
        with pytest.raises(ValueError, match=r"mechanism must be one of GRR, .*L-OLH"):
            mechanism(unknown, 5, eps=1.0)
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("GRR", {}, "GRR needs eps"),
        ("L-GRR", {"eps_inf": 2.0}, "L-GRR needs eps_1"),
        ("L-GRR", {"eps_1": 1.0}, "L-GRR needs eps_inf"),
        ("GRR", {"eps": 1.0, "eps_inf": 2.0}, "GRR does not take eps_inf"),
        ("GRR", {"eps": 1.0, "calibration": "exact"}, "GRR does not take calibration"),
        ("L-GRR", {"eps_inf": 2.0, "eps_1": 1.0, "eps": 1.0}, "L-GRR does not take eps"),
        ("L-OUE", {"eps_inf": 2.0, "eps_1": 1.0, "g": 4}, "L-OUE does not take g"),
        ("auto", {"eps_inf": 2.0, "eps_1": 1.0, "g": 4}, "auto does not take g"),
    ]
    for name, parameters, message in wrong:
        with pytest.raises(ValueError, match=message):
            mechanism(name, 5, **parameters)


def test_a_mechanism_declares_its_own_parameters() -> None:
    class Louder(GRR):
        names = ("louder",)

        def __init__(self, k: int, eps: float, volume: int, tone: int = 3) -> None:
            super().__init__(k, eps)
            self.volume, self.tone = volume, tone

    registry.register(Louder)
    try:
        made: Any = mechanism("louder", 5, eps=1.0, volume=7)
        assert (made.volume, made.tone) == (7, 3)
        with pytest.raises(ValueError, match="louder needs volume"):
            mechanism("louder", 5, eps=1.0)
        with pytest.raises(ValueError, match="louder does not take calibration; it takes eps, volume, tone"):
            mechanism("louder", 5, eps=1.0, volume=7, calibration="exact")
    finally:
        del registry.ONE_TIME["louder"]


def test_numbers_of_other_types_are_accepted() -> None:
    k: Any = np.uint8(5)
    for number in list[Any]([1, np.float32(1), np.int8(1), Fraction(1)]):
        assert mechanism("GRR", k, eps=number).signature == "GRR(k=5, eps=1.0)"
    array: Any = np.array([1.0])
    with pytest.raises(ValueError):
        mechanism("GRR", 5, eps=array)


# ---- people's values and their memos


@pytest.mark.parametrize("name", NAMES)
def test_a_value_outside_the_domain_is_rejected_and_not_shown(name: str) -> None:
    m, rng = build(name, 777, 2.0, 1.0), np.random.default_rng(1)
    outside: list[Any] = [
        [5, 778899, 3], [5, -778899, 3], np.array([5, 778899], np.uint64), [5, 777], [778899.5], [5, math.nan],
        [True, False], 778899, [[5], [778899]], ["778899"], [None], [2**70], [10**30, 778899], [],
    ]  # fmt: skip
    for bad in outside:
        with pytest.raises(ValueError, match="values must be") as caught:
            m.simulate(bad, rng)
        assert "7788" not in str(caught.value)
        assert "+30" not in str(caught.value)
    with pytest.raises(ValueError, match=r"integers in \[0, 777\), got 1 outside, the first at position 1"):
        m.simulate(outside[0], rng)
    assert len(m.simulate(np.zeros(0, np.int64), rng)) == 0
    assert len(m.simulate([776, 0], rng)) == len(m.simulate(np.array([776, 0], np.uint16), rng)) == 2


@pytest.mark.parametrize("name", sorted(LONGITUDINAL))
def test_an_invalid_memo_is_rejected_and_not_shown(name: str) -> None:
    """A value used as a memo would be sent almost unprotected; a corrupt memo would give a corrupt report."""
    m, rng = LONGITUDINAL[name](k=77, eps_inf=2.0, eps_1=1.0), np.random.default_rng(1)
    with pytest.raises(ValueError, match="must be rows of"):
        m.report(np.array([33, 44]), rng)
    spoilt = np.frombuffer(b"\xff" * 2 * m.report_dtype.itemsize, m.report_dtype)
    with pytest.raises(ValueError, match="memos must be memos of") as caught:
        m.report(spoilt, rng)
    assert "255" not in str(caught.value)


@pytest.mark.parametrize("name", ["L-BLH", "L-OLH"])
def test_an_invalid_enrolment_is_rejected(name: str) -> None:
    """Without a check of enrolments, the compiled hash function would read outside its tables."""
    m, rng = LONGITUDINAL[name](k=77, eps_inf=2.0, eps_1=1.0), np.random.default_rng(1)
    size = m.table_shape[0]
    for bad in ([0, 1, 2], [0], [0, size], [-1, 0], [0.0, 1.0], [True, False], [[0, 1]]):
        with pytest.raises(ValueError, match="enrolment must be"):
            m.memoize([5, 6], rng, np.array(bad))
        with pytest.raises(ValueError, match="enrolment must be"):
            m.memo_keys([5, 6], np.array(bad))
    for bad_n in list[Any]([-1, 1.5, True]):
        with pytest.raises(ValueError, match="n must be"):
            m.enroll(bad_n, rng)


@pytest.mark.parametrize("name", NAMES)
def test_variance_losses_and_simulate_check_their_arguments(name: str) -> None:
    m = build(name, 5, 2.0, 1.0)
    wrong: dict[str, list[Any]] = {
        "f": [-0.1, 1.1, math.nan, True, "0"],
        "n": [0, -1, 1.5, True, math.nan],
        "steps": [0, -1, 1.5, True, 2**40],
    }
    for argument, bad_ones in wrong.items():
        for bad in bad_ones:
            with pytest.raises(ValueError, match=f"{argument} must be"):
                m.variance(**{argument: bad})
    for bad in wrong["steps"]:
        with pytest.raises(ValueError, match="steps must be"):
            m.simulate([0], np.random.default_rng(1), bad)
    for bad in list[Any]([0, -1, 1.5, True, math.nan, math.inf]):
        with pytest.raises(ValueError, match="t must be"):
            m.eps_t(bad)
        with pytest.raises(ValueError, match="t must be"):
            m.eps_sequence(bad)


# ---- the ends of the ranges


def exercise(m: Mechanism) -> None:
    """Checks everything that an extreme parameter could break. Every warning is an error, including NumPy's warnings."""
    assert 0 < m.q < m.p <= 1
    assert 0 < m.variance() < math.inf
    assert 0 < m.variance(0.5, 1, 10**6) < math.inf
    size = m.eps_1 if m.eps_inf == math.inf else m.eps_inf
    rounding = ROUNDING * (1 + size + math.log(m.k))
    assert m.eps_t(1) == pytest.approx(m.eps_1, rel=1e-9, abs=rounding)
    with np.errstate(all="raise", under="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        rng = np.random.default_rng(1)
        values = np.array([0, m.k // 2, m.k - 1])
        assert m.eps_t(10**9) <= m.eps_inf + rounding
        reports = m.simulate(values, rng)
    assert m.valid(reports).all()


ENDS = [(700, 699.999), (700.0, 1e-9), (700, 350), (2e-9, 1e-9), (1.0, 1 - 1e-15), (40, 39)]


@pytest.mark.parametrize("k", [2, 3, 100])
@pytest.mark.parametrize("pair", ENDS, ids=repr)
@pytest.mark.parametrize("name", NAMES)
def test_the_smallest_and_the_largest_eps_work(name: str, k: int, pair: tuple[float, float]) -> None:
    eps_inf, eps_1 = pair
    if name in ("L-SOUE", "L-OUE"):
        eps_1 = min(eps_1, largest_eps_1(ROUNDS[CHAINS[name][0]](eps_inf), "OUE") * (1 - 1e-6))
        eps_1 = max(eps_1, 1e-9)
    exercise(build(name, k, eps_inf, eps_1))
    if name in ("L-GRR", "L-BLH", "L-OLH"):
        m = build(name, k, eps_inf, eps_1, calibration="paper")
        assert 0 < m.eps_1 <= eps_1 * (1 + 1e-6)
        assert m.variance() > 0  # the variance is infinite if p and q are the same double


@pytest.mark.parametrize("k", [2**16, 2**16 + 1, 2**24 - 1, 2**24])
@pytest.mark.parametrize("name", NAMES)
def test_large_domains_work(name: str, k: int) -> None:
    m = build(name, most_values(name, k), 2.0, 1.0)
    exercise(m)
    assert 1 / m.k < m.guess(1) < max(1e-3, 2 / m.k)
    assert math.prod(m.table_shape) <= 2**26
    assert m.report_dtype.itemsize <= max(8, -(-k // 8))


reachable = st.floats(1e-8, 700).flatmap(lambda e: st.tuples(st.just(e), st.floats(1e-9, e, exclude_max=True)))


@settings(max_examples=200)
@given(st.sampled_from(sorted(LONGITUDINAL)), st.integers(2, 10**6), reachable)
@example("L-SUE", 3, (88.0, 0.023))  # because of rounding in the chain, a search from eps_1 upwards missed the root
@example("L-OSUE", 3, (700.0, 699.999))  # the second round has a loss of 1414 nats
@example("L-SOUE", 3, (72.0, 8.5e-4))
@example("L-OSUE", 3, (1e-6, 1e-6 * (1 - 1e-14)))
@example("L-SS", 4, (700.0, 700 - 1e-7))
def test_one_report_loses_exactly_the_given_eps_1(name: str, k: int, pair: tuple[float, float]) -> None:
    eps_inf, eps_1 = pair
    k = most_values(name, k)
    try:
        m = mechanism(name, k, eps_inf=eps_inf, eps_1=eps_1)
    except ValueError as error:
        assert name in ("L-SOUE", "L-OUE") or (name == "L-SS" and "odds of a device must be at most e^709" in str(error))
        assert "eps_1 must be in (0, " in str(error)
        return
    assert m.eps_1 == eps_1
    assert m.eps_t(1) == pytest.approx(eps_1, rel=1e-9, abs=ROUNDING * (1 + eps_inf + math.log(k)))


@settings(max_examples=60)
@given(st.floats(0.1, 40), st.floats(0.05, 0.999))
def test_lolohas_g_follows_the_printed_formula(eps_inf: float, share: float) -> None:
    """Compares with the formula, rounded down to a prime power. Because of cancellation, the test computes the formula with 100
    digits."""
    eps_1 = eps_inf * share
    with localcontext(prec=100):
        a, b = Decimal(eps_inf).exp(), Decimal(eps_1).exp()
        inner = a**4 - 14 * a**2 + 12 * a * b * (1 - a * b) + 12 * a**3 * b + 1
        printed = 1 + max(1, math.floor((1 - a**2 + inner.sqrt()) / (6 * (a - b))))
    assert papers_g(5, eps_inf, eps_1) == max(g for g in prime_powers(1024) if g <= printed)


def test_the_plain_functions_of_a_device_have_the_bits_of_numpy() -> None:
    rng = np.random.default_rng(20260105)
    for x, y in rng.normal(0, rng.choice([1e-3, 1.0, 40.0, 800.0], 4000)[:, None], (4000, 2)).tolist():
        assert logaddexp(x, y) == np.logaddexp(x, y)
        assert logaddexp(x, x) == np.logaddexp(x, x)
    for k in (1, 7, 8, 9, 64, 1000):
        bits = rng.integers(0, 2, k, np.uint8)
        assert (row := bits_row(bits.tobytes())) == np.packbits(bits, bitorder="little").tobytes()
        assert row_bits(k, row) == bits.tobytes()
