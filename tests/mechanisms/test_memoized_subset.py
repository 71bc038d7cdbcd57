"""Tests of L-SS: its ledger against enumerations of all reports and all sequences, its integers, its sizes and its limits."""

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from lab.audit.events import events
from ldpstream.mechanisms import mechanism
from ldpstream.mechanisms.families.memoized_subset import LongitudinalSubset
from ldpstream.mechanisms.families.subset import RandomSubset
from ldpstream.mechanisms.ledger.subset import SubsetRounds, largest_eps_1, loss_of_counts
from tests.mechanisms import reference
from tests.mechanisms.guess_enumeration import sequence_loss

PAIRS = ((0.5, 0.25), (1.0, 0.5), (2.0, 1.0), (4.0, 2.0), (4.0, 1.0), (8.0, 2.0), (2.0, 1.9), (6.0, 0.1))
SMALL = [
    (k, m, w, *pair)
    for k in range(2, 8)
    for m, w in product(range(1, k // 2 + 1), repeat=2)
    for pair in PAIRS
    if pair[1] < largest_eps_1(k, m, w, pair[0])
]


def built(k: int, m: int, w: int, eps_inf: float, eps_1: float) -> LongitudinalSubset:
    return LongitudinalSubset(k, eps_inf, eps_1, memo_size=m, omega=w)


def test_one_report_is_subset_selection_with_eps_1() -> None:
    """The dense channel of memo and report equals that of subset selection. Control: another θ gives another channel."""
    for case in SMALL:
        m = built(*case)
        once = reference.sequences(m, 1)[:, 0]
        assert once == pytest.approx(reference.written(mechanism("SS", 4, eps=1.0)).one_round(m), rel=1e-10), m
        assert once == pytest.approx(m.channel(), rel=1e-10)
        memo, kernel = reference.written(m).rounds(m)
        assert events(m).equal_chances() == pytest.approx(((kernel[0] ** 2).sum(), (once[0] ** 2).sum()), rel=1e-9)
        wrong = memo[:, 0] @ (kernel**1.01 / (kernel**1.01).sum(axis=1, keepdims=True))
        assert np.abs(wrong / m.channel() - 1).max() > 1e-6


def partitions(total: int, parts: int, largest: int) -> Iterator[tuple[int, ...]]:
    """All ways to write `total` as a sum of `parts` integers from 0 to `largest`, in descending order."""
    if parts == 0:
        if total == 0:
            yield ()
        return
    for first in range(min(total, largest), -1, -1):
        for rest in partitions(total - first, parts - 1, first):
            yield (first, *rest)


def loss_of_all_counts(m: LongitudinalSubset, t: int) -> float:
    """The loss by enumeration: how many of t reports have v, u, and each of the other values, in descending order."""
    worst, n = 0.0, m.k - 2
    for of_v, of_u in product(range(t + 1), repeat=2):
        left = t * m.omega - of_v - of_u
        others = list(partitions(left, n, t)) if left >= 0 else []
        if others and of_v >= of_u:
            worst = max(worst, float(loss_of_counts(m.set_rounds, of_v, of_u, np.array(others, np.int64)).max()))
    return worst


def test_eps_t_is_the_largest_loss_of_all_reports() -> None:
    """All counts of t ≤ 4 reports, k ≤ 7. Control: t equal reports are not always the worst."""
    beyond = 0
    for case in SMALL:
        m = built(*case)
        for t in (1, 2, 3, 4):
            assert m.eps_t(t) == pytest.approx(loss_of_all_counts(m, t), rel=1e-9), (case, t)
            others = np.array([[t] * (m.omega - 1) + [0] * (m.k - 1 - m.omega)], np.int64)
            beyond += m.eps_t(t) > float(loss_of_counts(m.set_rounds, t, 0, others)[0]) + 1e-9
    assert beyond > 100


@pytest.mark.parametrize(("k", "m", "w", "eps_inf", "eps_1", "t"), [
    (4, 1, 2, 2.0, 0.5, 2), (4, 2, 2, 2.0, 1.0, 2), (4, 1, 1, 1.0, 0.5, 3), (5, 1, 2, 4.0, 1.0, 2), (5, 2, 1, 2.0, 0.4, 2),
    (4, 2, 1, 2.0, 0.4, 3),
])  # fmt: skip
def test_no_two_sequences_lose_more_than_the_bound(k: int, m: int, w: int, eps_inf: float, eps_1: float, t: int) -> None:
    """All pairs of value sequences."""
    built_ = built(k, m, w, eps_inf, eps_1)
    worst, told = sequence_loss(built_, t), built_.eps_sequence(t)
    assert worst <= told.value < 2 * worst
    assert built_.set_rounds.memo_other == pytest.approx(built_.q1, rel=1e-12)
    assert told.value <= t * built_.claims.eps_per_report
    assert built_.eps_sequence(1).value == eps_1


@pytest.mark.parametrize(("k", "eps_inf", "eps_1"), [(2, 2.0, 1.0), (9, 2.0, 1.0), (50, 4.0, 1.0), (1000, 8.0, 0.5)])
def test_sets_of_one_value_are_l_grr(k: int, eps_inf: float, eps_1: float) -> None:
    one, grr = built(k, 1, 1, eps_inf, eps_1), mechanism("L-GRR", k, eps_inf=eps_inf, eps_1=eps_1)
    for key in ("p", "q", "p1", "q1", "p2", "q2"):
        assert getattr(one, key) == pytest.approx(getattr(grr, key), rel=1e-13), key
    assert one.claims.eps_per_report == pytest.approx(grr.claims.eps_per_report, rel=1e-13)
    for t in (1, 2, 5, 100):
        assert one.eps_t(t) == pytest.approx(grr.eps_t(t), rel=1e-10)
        assert one.variance(0.1, 1000, t) == pytest.approx(grr.variance(0.1, 1000, t), rel=1e-12)
        assert one.claims.evidence(t).favours == pytest.approx(grr.claims.evidence(t).favours, rel=1e-10)
        assert one.guess(t) >= grr.guess(t) * (1 - 1e-9)
    for chance in (1, math.inf):
        assert one.guess(chance) == pytest.approx(grr.guess(chance), rel=1e-12)
    assert events(one).equal_chances() == pytest.approx(events(grr).equal_chances())
    f = np.full(k, 1 / k)
    found, expected = (m.reading.support_covariance(f, 3).matrix() for m in (one, grr))
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(("sizes", "message"), [
    ({"memo_size": 2, "omega": 5}, r"eps_1 must be in \(0, 1.26853\) for L-SS with k=20, eps_inf=2, memo_size=2 and omega=5"),
    ({"memo_size": 6, "omega": 2}, r"eps_1 must be in \(0, 1.11632\) for L-SS"),
    ({"omega": 0}, r"omega must be an integer in \[1, 10\], got 0"),
])  # fmt: skip
def test_sizes_that_cannot_be_reached_get_one_clear_error(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mechanism("L-SS", 20, eps_inf=2.0, eps_1=1.9, **sizes)


def test_too_many_values_and_too_large_integers_get_one_clear_error() -> None:
    with pytest.raises(ValueError, match=r"k must be an integer in \[2, 1024\], got 1025"):
        mechanism("L-SS", 1025, eps_inf=2.0, eps_1=1.0)
    with pytest.raises(ValueError, match="the integers of a device must have at most 65536 bits, got up to"):
        mechanism("L-SS", 1024, eps_inf=600.0, eps_1=590.0, memo_size=512, omega=512)
    with pytest.raises(ValueError, match="too near the limit: the odds of a device must be at most e\\^709"):
        mechanism("L-SS", 4, eps_inf=700.0, eps_1=700 - 1e-7)
    assert mechanism("auto", 4, eps_inf=700.0, eps_1=700 - 1e-7).name != "L-SS"


def test_the_exact_case_of_large_sets_is_above_many_random_reports() -> None:
    """At random counts of 24 values, no loss exceeds eps_t. Control: it exceeds the loss of t equal reports."""
    rng, exceeded = np.random.default_rng(5), False
    for m, w, eps_inf, eps_1, t in ((4, 8, 1.0, 0.3, 5), (6, 6, 1.5, 0.3, 7), (2, 9, 2.0, 0.8, 6)):
        rounds = SubsetRounds.calibrated(24, m, w, eps_inf, eps_1)
        claimed = LongitudinalSubset(24, eps_inf, eps_1, m, w).eps_t(t)
        equal = float(loss_of_counts(rounds, t, 0, np.array([[t] * (w - 1) + [0] * (23 - w)], np.int64))[0])
        for of_u, evenness in product((0, 1, 2), (0.05, 1.0, 500.0)):
            spread = rng.dirichlet(np.full(22, evenness), 500) * (t * w - t - of_u)
            counts = np.minimum(np.floor(spread), t).astype(np.int64)
            for row in counts:  # the rest of the total, one by one
                for _ in range(t * w - t - of_u - int(row.sum())):
                    row[rng.choice(np.flatnonzero(row < t))] += 1
            losses = loss_of_counts(rounds, t, of_u, counts)
            assert losses.max() <= claimed * (1 + 1e-9)
            exceeded |= bool(losses.max() > equal)
    assert exceeded


def test_a_window_has_the_variances_of_one_and_of_many_reports() -> None:
    """V_T = V∞ + (V₁ - V∞)/T, from subset selection with ε₁ and with ε∞."""
    for k, eps_inf, eps_1 in ((10, 2.0, 1.0), (50, 4.0, 2.0), (200, 1.0, 0.5)):
        m = LongitudinalSubset(k, eps_inf, eps_1)
        first, last = RandomSubset(k, m.omega, eps_1).variance, RandomSubset(k, m.memo_size, eps_inf).variance
        for t in (1, 8, 24, 10**6):
            assert m.variance(n=1, steps=t) == pytest.approx(last + (first - last) / t, rel=1e-9)
        assert m.guess(math.inf) == pytest.approx(math.exp(eps_inf) / (m.memo_size * math.exp(eps_inf) + k - m.memo_size))
        assert m.guess(1) == pytest.approx(math.exp(eps_1) / (m.omega * math.exp(eps_1) + k - m.omega))


def test_the_default_sizes_have_the_least_variances_that_are_possible() -> None:
    """If the two optima cannot reach eps_1, the sizes are the feasible ones with the least V_T."""
    moved = 0
    for k, t, (eps_inf, eps_1) in product((2, 3, 5, 10, 14, 31, 60), (1, 8, 1000), PAIRS):
        m = LongitudinalSubset(k, eps_inf, eps_1, steps=t)
        first = {w: RandomSubset(k, w, eps_1).variance for w in range(1, k // 2 + 1)}
        last = {s: RandomSubset(k, s, eps_inf).variance for s in range(1, k // 2 + 1)}
        possible = [s for s in product(last, first) if eps_1 < largest_eps_1(k, *s, eps_inf)]
        best = min(last, key=last.__getitem__), min(first, key=first.__getitem__)
        moved += best not in possible
        best_window = min(last[a] + (first[b] - last[a]) / t for a, b in possible)
        assert m.variance(n=1, steps=t) == pytest.approx(best_window, rel=1e-9)
    assert moved >= 2


def test_the_largest_eps_1_is_sharp() -> None:
    for k, m, w, eps_inf in ((4, 1, 2, 2.0), (20, 2, 5, 2.0), (20, 6, 2, 2.0), (50, 13, 13, 1.0), (9, 4, 1, 0.1)):
        limit = largest_eps_1(k, m, w, eps_inf)
        assert built(k, m, w, eps_inf, limit * (1 - 1e-9)).eps_1 < limit
        with pytest.raises(ValueError, match="eps_1 must be in"):
            built(k, m, w, eps_inf, limit)
