"""Compares the chance of a right guess with the channel (one report) and with brute force (several)."""

import math
import pickle
from collections import Counter
from functools import reduce
from itertools import product

import numpy as np
import pytest

from ldpstream.mechanisms import LONGITUDINAL, NAMES, ONE_TIME, Mechanism, mechanism
from ldpstream.mechanisms.claims import guessing
from ldpstream.mechanisms.claims.evidence import Evidence, joined, loss_of
from ldpstream.mechanisms.claims.guessing import Chance
from ldpstream.mechanisms.families.square_wave import SquareWave
from tests.mechanisms import reference
from tests.mechanisms.guess_enumeration import changing, success, unchanged

SYMMETRIC = ("GRR", "SUE", "OUE", "THE")  # exact for any number of reports; SS is symmetric, but has only a bound


def built(name: str, k: int, eps_inf: float = 2.0, eps_1: float = 1.0) -> Mechanism:
    return mechanism(name, k, eps=eps_1) if name in ONE_TIME else mechanism(name, k, eps_inf=eps_inf, eps_1=eps_1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [2, 3, 5, 10])
def test_the_guess_of_one_report_follows_from_the_channel(name: str, k: int) -> None:
    for m in (built(name, k), built(name, k, 4.0, 1.9)):
        assert m.guess() == pytest.approx(m.channel().max(axis=0).sum() / k, rel=1e-12)
        assert 1 / k < m.guess() <= guessing.bound(m.eps_1, k) * (1 + 1e-12)
        assert m.with_fake_data(3).guess() == m.guess()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("k", "t"), [(2, 1), (3, 1), (3, 2), (6, 1)])
def test_a_guesser_who_knows_the_shares_is_right_at_most_as_often_as_the_bound(name: str, k: int, t: int) -> None:
    """Enumerates all outputs. The bound is exact for one report of GRR. Control: equal shares give a smaller chance."""
    rng, exceeded = np.random.default_rng([k, t]), False
    for shares in [np.full(k, 1 / k), *rng.dirichlet(np.full(k, 0.7), 20)]:
        for m in (built(name, k), built(name, k, 4.0, 1.9)):
            true = float((np.array(unchanged(m, t)) * shares[:, np.newaxis]).max(axis=0).sum())
            told = m.claims.guess_known(shares, t)
            assert max(shares.max(), true) <= told * (1 + 1e-12)
            assert name != "GRR" or t > 1 or told == pytest.approx(true, abs=2e-9)
            if np.ptp(shares) < 1e-9 and name in ("GRR", "L-GRR"):
                assert told == pytest.approx(m.guess(t), abs=2e-9)
            exceeded |= true > m.guess(t) + 1e-9
    assert exceeded


@pytest.mark.parametrize("name", LONGITUDINAL)
@pytest.mark.parametrize("k", [2, 3, 4])
def test_the_guess_from_several_memos_is_at_least_the_enumerated_one(name: str, k: int) -> None:
    """Enumerates all outputs of two and three memos. Control: the chance from one memo is smaller than that from three."""
    m = LONGITUDINAL[name](k=k, eps_inf=1.0, eps_1=0.5)
    laws = reference.written(m).rounds(m)[0].reshape(k, -1)  # P(hash function and memo | value)
    for n in (2, 3):
        true = success(reduce(np.multiply.outer, [law] * n).ravel() for law in laws)
        told = m.claims.guess_memos(n)
        assert true <= told * (1 + 1e-12)
        assert told == pytest.approx(true, rel=1e-11) if told.exact else told < 1.25 * true
        assert m.claims.guess_memos(1) <= true * (1 + 1e-12)
    assert m.claims.guess_memos(1) == m.guess(math.inf) < true
    assert m.with_fake_data(2).claims.guess_memos(3) == m.claims.guess_memos(3)


@pytest.mark.parametrize("name", LONGITUDINAL)
@pytest.mark.parametrize(("k", "t"), [(2, 4), (3, 2), (3, 3), (5, 2)])
def test_the_guess_of_one_memos_reports_is_the_enumerated_one(name: str, k: int, t: int) -> None:
    m = LONGITUDINAL[name](k=k, eps_inf=2.0, eps_1=1.0)
    true, told = success(unchanged(m, t)), m.guess(t)
    assert pickle.loads(pickle.dumps(told)).exact == told.exact == (name != "L-SS")
    assert told == pytest.approx(true, rel=1e-11) if told.exact else true * (1 - 1e-12) <= told < 1.25 * true
    assert m.guess(t) <= guessing.bound(m.eps_t(t), k) * (1 + 1e-12)


@pytest.mark.parametrize("name", [name for name in LONGITUDINAL if name != "L-SS"])
def test_the_guess_from_many_reports_is_exact_where_a_hundred_reach_the_memo(name: str) -> None:
    """An inexact chance would contradict the limit: 59.6 % from any number of reports, but at most 59.7 % from a thousand."""
    near, far = built(name, 6), built(name, 6, 4.0, 0.3)
    for t in (101, 365, 1000, math.inf):
        assert str(near.guess(t)) == str(near.guess(100))
        assert near.guess(t).exact
    bits = name in ("L-SUE", "L-OSUE", "L-SOUE", "L-OUE")
    assert far.guess(1000).exact == bits
    if bits:  # the number of ones of each bit decides, and the bits are independent
        for few, many in ((100, 101), (101, 1000), (1000, math.inf)):
            assert far.guess(few) < far.guess(many)
    assert not far.guess(10**6).exact or far.guess(10**5) == pytest.approx(far.guess(math.inf), rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [2, 10**5])
def test_the_guess_is_in_range_for_any_eps_and_k(name: str, k: int) -> None:
    for eps in (1e-9, 50.0, 350.0):
        k = reference.most_values(name, k)
        m = built(name, k, 2 * eps, eps)
        for t in (1, 7, 100, math.inf):
            assert 1 / k * (1 - 1e-9) <= m.guess(t) <= 1 + 1e-9


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("k", "t"), [(2, 2), (2, 4), (3, 2), (3, 3), (4, 2)])
@pytest.mark.parametrize("eps", [0.3, 1.0, 2.5])
def test_no_sequences_of_values_exceed_the_chance_for_any_values(name: str, k: int, t: int, eps: float) -> None:
    m = built(name, k, 2 * eps, eps)
    t = t if name in ("GRR", "L-GRR", "SS") else min(t, 2)  # the others have too many outputs
    constant = success(unchanged(m, t))
    worst = max(map(success, changing(m, t)))
    assert constant <= worst * (1 + 1e-12)
    assert constant <= m.guess(t) * (1 + 1e-12)
    assert m.claims.guess_any_values(t).exact or name not in SYMMETRIC
    if m.claims.guess_any_values(t).exact:
        assert worst == pytest.approx(m.claims.guess_any_values(t), rel=1e-11)
    else:
        assert worst <= m.claims.guess_any_values(t) <= guessing.bound(m.eps_sequence(t).value, k) + 1e-8


@pytest.mark.parametrize("name", [*ONE_TIME, "SW"])
@pytest.mark.parametrize(("k", "t"), [(2, 3), (3, 2), (4, 2), (5, 1)])
def test_a_report_has_the_likelihood_ratios_of_its_evidence(name: str, k: int, t: int) -> None:
    m = SquareWave(k, 1.0) if name == "SW" else built(name, k)
    rows = m.channel()
    gaps = [np.maximum(rows[a] - rows[b], 0).sum() for a in range(k) for b in range(k)]
    assert m.claims.evidence(1).distance >= max(gaps) * (1 - 1e-9)
    if not reference.written(m).loose:
        assert m.claims.evidence(1).distance == pytest.approx(max(gaps), rel=1e-9)
    if name != "SW" or t < 3:
        assert loss_of(m.claims.evidence(t)).guess(k) >= success(unchanged(m, t))


def test_the_bound_is_that_of_the_loss_for_one_report_and_below_it_for_more() -> None:
    for eps in (0.1, 1.0, 5.0):
        for k in (2, 6, 1000):
            one = Evidence.of_loss(eps)
            assert loss_of(one).guess(k) == pytest.approx(guessing.bound(eps, k), abs=2e-9)
            many = loss_of(Evidence(eps, one.favours, 7)).guess(k)
            assert many <= guessing.bound(7 * eps, k) + 2e-9
            assert many <= joined([[one]] * 7).guess(k) + 1e-9 <= many * 1.002  # on a grid


@pytest.mark.parametrize("repeated", [1, 3])
def test_joined_evidence_is_little_above_the_dense_convolution_of_its_losses(repeated: int) -> None:
    parts = [*[Evidence.of_loss(0.5)] * 5, *[Evidence.of_loss(1.25, 0.2)] * 2, Evidence(2.0, 0.3, 3)] * repeated
    dense = {0.0: 1.0}
    for part in parts:
        loss, wider = loss_of(part), Counter[float]()
        for (a, p), (b, q) in product(dense.items(), zip(loss.losses.tolist(), loss.chances.tolist(), strict=True)):
            wider[round(a + b, 9)] += p * q
        dense = dict(wider)
    found, (losses, chances) = joined([part] for part in parts), np.array([*dense.items()]).T
    for eps in np.arange(0.0, 8.0, 0.37).tolist():
        exact = float(chances @ -np.expm1(np.minimum(eps - losses, 0)))
        assert exact <= found.delta(eps) * (1 + 1e-9) <= exact * 1.01 + 1e-9


def test_evidence_of_any_size_stays_in_range() -> None:
    for eps in (1e-9, 1.0, 700.0):
        for rounds in (1, 2, 1000, 10**5, 10**6, math.inf):
            some = Evidence(eps, guessing.bound(eps, 2), rounds)
            for k in (2, 10**6):
                assert 1 / k <= loss_of(some).guess(k) <= 1
                assert 1 / k <= joined([[some], [Evidence.of_loss(2.0, 0.3)]]).guess(k) <= 1


@pytest.mark.parametrize(
    ("chance", "exact", "text"),
    [
        (0.475366, True, "47.5 %"), (0.475366, False, "at most 47.6 %"), (0.4, False, "at most 40.0 %"),
        (0.4 + 1e-9, False, "at most 40.0 %"), (0.40001, False, "at most 40.1 %"), (0.9996, True, "> 99.9 %"),
        (0.9996, False, "at most 100.0 %"), (1.0, True, "100.0 %"), (0.0266, True, "2.7 %"), (0.000123, True, "0.012 %"),
        (0.0001201, False, "at most 0.013 %"), (1e-6, True, "0.00010 %"), (0.29, False, "at most 29.0 %"),
    ],
)  # fmt: skip
def test_bounds_are_rounded_up(chance: float, exact: bool, text: str) -> None:
    assert str(Chance(chance, exact=exact)) == text


@pytest.mark.parametrize("t", [0, -1, 1.5, math.nan])
def test_the_number_of_reports_is_checked(t: float) -> None:
    with pytest.raises(ValueError, match="t must be an integer"):
        mechanism("GRR", 6, eps=2.0).guess(t)
