"""Tests of differences: coverage for dependent times, the worst case exactly, false discoveries, and controls that fail."""

from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import binom

from ldpstream.estimators import matrix_inversion
from ldpstream.estimators.differences import beyond_chance, chances, difference_errors, separate_errors, unchanged_errors
from ldpstream.estimators.estimate import Estimate
from ldpstream.mechanisms import Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray

PEOPLE, TRIALS, K = 600, 2000, 4


def inverted(m: Mechanism, reports: IntArray) -> Estimate:
    """Returns the raw inversions of (TRIALS, PEOPLE) GRR reports, for value 0, as one estimate of TRIALS frequencies."""
    shares = ((reports == 0).mean(axis=1) - m.q) / (m.p - m.q)
    errors = np.sqrt(m.reading.inversion_variances(np.clip(shares, 0, 1), PEOPLE))
    return Estimate(shares, errors, PEOPLE)


def covered(before: Estimate, after: Estimate, errors: FloatArray, truth: float = 0.0) -> float:
    """Returns how often the 95 % interval of the difference contains the truth."""
    return float((np.abs(after.frequencies - before.frequencies - truth) < 1.959964 * errors).mean())


LOWEST = 0.95 - 4 * (0.95 * 0.05 / TRIALS) ** 0.5  # false-alarm rate 3e-5 for a coverage of exactly 95 %


def test_people_whose_values_alternate_need_the_wider_interval() -> None:
    """Each person has the value at exactly one of the two times. Errors that assume independence would be too small."""
    m = mechanism("GRR", k=K, eps=5.0)
    rng = np.random.default_rng(20261122)
    first = rng.integers(0, 2, (TRIALS, PEOPLE))
    before, after = (inverted(m, m.simulate(v.ravel(), rng).reshape(TRIALS, PEOPLE)) for v in (first, 1 - first))
    assert covered(before, after, difference_errors(before, after, m, PEOPLE)) > LOWEST
    assert covered(before, after, np.hypot(before.standard_errors, after.standard_errors)) < LOWEST
    assert covered(before, after, difference_errors(before, after)) > LOWEST


@pytest.mark.parametrize("changing", [False, True])
def test_shared_memos_never_make_the_interval_too_narrow(changing: bool) -> None:
    m = mechanism("L-GRR", k=K, eps_inf=2.0, eps_1=1.8)
    rng = np.random.default_rng(20261123)
    values = rng.integers(0, 2, TRIALS * PEOPLE)
    if changing:
        reports = [m.simulate(v, rng) for v in (values, 1 - values)]
    else:
        reports = list(m.simulate(values, rng, steps=2).reshape(2, -1))
    before, after = (inverted(m, r.reshape(TRIALS, PEOPLE)) for r in reports)
    errors = difference_errors(before, after, m, PEOPLE)
    assert covered(before, after, errors) > LOWEST
    assert (covered(before, after, errors) > 0.99) == (not changing)  # kept memos: the bound is far from reached


def test_the_bound_of_the_values_is_reached() -> None:
    """The joint distribution with the fewest people who have the value twice has exactly this variance, for one person."""
    m = mechanism("OUE", k=3, eps=1.0)
    for f1, f2 in [(0.2, 0.3), (0.7, 0.6), (0.5, 0.5), (0.0, 0.4), (1.0, 0.3)]:
        both = max(0.0, f1 + f2 - 1)
        one, other = (Estimate(np.full(3, f), np.sqrt(m.reading.inversion_variances(np.full(3, f), 1)), 1) for f in (f1, f2))
        exact = one.standard_errors**2 + other.standard_errors**2 - 2 * (both - f1 * f2)
        np.testing.assert_allclose(difference_errors(one, other, m, 1.0) ** 2, exact, rtol=1e-12)


def test_fake_data_scales_the_bound() -> None:
    """The contribution of a person to a share is d times its contribution to the share of encoded values."""
    d, m = 5, mechanism("GRR", k=3, eps=6.0)
    mixed, f = m.with_fake_data(d), np.full(3, 1 / 3)
    encoded = (f + (d - 1) / 3) / d
    error = np.sqrt(mixed.reading.inversion_variances(f, 1))
    alone = Estimate(f, error, 1)
    of_encoded = d**2 * (m.reading.inversion_variances(encoded, 1) + np.minimum(encoded**2, (1 - encoded) ** 2))
    np.testing.assert_allclose(difference_errors(alone, alone, mixed, 1.0) ** 2, 2 * of_encoded, rtol=1e-9)


def test_the_bound_for_any_estimator_is_reached_by_opposite_errors() -> None:
    rng = np.random.default_rng(20261124)
    noise = rng.normal(size=TRIALS)
    before, after = Estimate(0.1 * noise, np.full(TRIALS, 0.1), 1), Estimate(-0.2 * noise, np.full(TRIALS, 0.2), 1)
    assert covered(before, after, difference_errors(before, after)) > LOWEST
    assert covered(before, after, np.hypot(0.1, 0.2) * np.ones(TRIALS)) < LOWEST


def test_missing_errors_and_people_are_not_made_up() -> None:
    m = mechanism("GRR", k=2, eps=1.0)
    known, withheld = Estimate(np.full(2, 0.5), np.full(2, 0.1), 9), Estimate(np.full(2, 0.5), np.full(2, np.nan), 9)
    assert np.isnan(difference_errors(known, withheld)).all()
    assert np.isnan(difference_errors(withheld, known, m, 9)).all()
    for people in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="people must be positive"):
            difference_errors(known, known, m, people)


# ---- which differences are more than chance


class Marked(NamedTuple):
    """Means of a rule over all trials: the share of trials that mark an unchanged value, and of changed values found."""

    false: float
    found: float


def marked(name: str, k: int, n: int, moved: int, trials: int) -> dict[str, Marked]:
    """Compares two populations of n people. In the second, `moved` values have a larger share, and the values after them a
    smaller one."""
    m, rng = mechanism(name, k=k, eps=1.0), np.random.default_rng(20261126)
    before = 1 / (1 + np.arange(k)) ** 1.1
    before /= before.sum()
    after = before.copy()
    for v in range(0, 2 * moved, 2):
        after[v : v + 2] += [0.9 * before[v + 1], -0.9 * before[v + 1]]
    changed = before != after
    shares: dict[str, list[tuple[float, float]]] = {}
    for _ in range(trials):
        one, other = (matrix_inversion(m, m.tabulate(m.simulate(rng.choice(k, n, p=f), rng))) for f in (before, after))
        differences, errors = other.frequencies - one.frequencies, separate_errors(one, other)
        p = chances(differences, errors)
        for rule, of in {"holm": beyond_chance(p), "each": p < 0.05, "all": p < 0.05 / k}.items():
            false, right = (of & ~changed).any(), (of & changed).sum()
            shares.setdefault(rule, []).append((float(false), right / max(1, changed.sum())))
    return {rule: Marked(*np.mean(of, axis=0)) for rule, of in shares.items()}


@pytest.mark.parametrize(("name", "k", "n", "moved"), [("GRR", 4, 1000, 0), ("GRR", 12, 20_000, 3), ("OUE", 60, 2000, 0)])
def test_an_unchanged_value_is_marked_in_at_most_one_of_twenty_comparisons(name: str, k: int, n: int, moved: int) -> None:
    trials = 1000
    found = marked(name, k, n, moved, trials)
    limit = 0.05 + 4 * (0.05 * 0.95 / trials) ** 0.5  # false-alarm rate 3e-5 at a rate of exactly 5 %
    assert found["holm"].false < limit
    assert found["each"].false > limit  # the control: each value by itself
    assert not moved or found["holm"].found > found["all"].found  # Bonferroni


def test_the_marked_differences_are_those_of_holm() -> None:
    """The reference rejects one hypothesis after the other. The last value is unknown: it is not counted."""
    rng = np.random.default_rng(20261127)
    for k in (1, 2, 7, 100):
        p = chances(np.append(rng.normal(0, 2.5, k), np.nan), rng.uniform(0.5, 1.0, k + 1))
        for rate in (0.01, 0.05, 0.5):
            left = list(range(k))
            while left and p[best := min(left, key=lambda v: p[v])] <= rate / len(left):
                left.remove(best)
            assert np.flatnonzero(beyond_chance(p, rate)).tolist() == sorted({*range(k)} - {*left})


def test_unknown_differences_are_not_marked_and_not_counted() -> None:
    p = chances(np.array([3.0, np.nan, 0.0, 2.2, 1.0]), np.array([1.0, 1.0, 0.0, np.nan, 0.0]))
    assert beyond_chance(p).tolist() == [True, False, False, False, True]
    assert not beyond_chance(np.full(3, np.nan)).any()


@pytest.mark.parametrize("eps", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("people", [(100, 100), (100, 2000), (2000, 100)])
def test_equal_shares_differ_by_five_errors_in_fewer_than_one_of_a_million_cases(eps: float, people: tuple[int, int]) -> None:
    """Enumerates both counts of a value. Control: errors without `unchanged_errors` have a far larger rate."""
    m = mechanism("GRR", 4, eps=eps)
    counts = [np.arange(n + 1) for n in people]
    shares = [(c / n - m.q) / (m.p - m.q) for c, n in zip(counts, people, strict=True)]
    errors = [np.sqrt(m.reading.inversion_variances(np.clip(f, 0, 1), 1) / n) for f, n in zip(shares, people, strict=True)]
    one, other = (
        Estimate(np.broadcast_to(f, (people[1] + 1, people[0] + 1)), np.broadcast_to(s, (people[1] + 1, people[0] + 1)), 1)
        for f, s in zip((shares[0][None, :], shares[1][:, None]), (errors[0][None, :], errors[1][:, None]), strict=True)
    )
    growth = other.frequencies - one.frequencies
    usual = difference_errors(one, other, m, max(people))
    both = np.maximum(usual, unchanged_errors(one, other, people))

    def rate(errors: FloatArray) -> float:
        grown = (growth > 0) & clear_each(growth, errors)
        chances = [
            [binom.pmf(c, n, m.q + f * (m.p - m.q)) for f in (0.0, 0.02, 0.1, 0.4, 0.8, 1.0)]
            for c, n in zip(counts, people, strict=True)
        ]
        return float(max(second @ grown @ first for first, second in zip(*chances, strict=True)))

    def clear_each(differences: FloatArray, errors: FloatArray) -> np.typing.NDArray[np.bool_]:
        return np.asarray(chances(differences, errors) <= 5.7e-7)

    assert rate(both) < 1e-6
    if people == (100, 2000) and eps > 1:
        assert rate(usual) > 1e-5
