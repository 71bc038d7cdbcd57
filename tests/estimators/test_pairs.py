"""The cross table of a pair: against a dense reference, coverage of its intervals, size and power of its test.

All seeds are fixed. An alarm of the test of size, or of the coverage of one interval, means a deviation of five standard
errors, which chance makes about once in a million runs. Each such test has a control that must fail.
"""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.stats import chi2, ncx2

from lab.bench.pairs import associated, detectable_association, shares_of
from ldpstream.estimators.pairs import (
    Counted,
    PairEstimate,
    _seen,
    independence,
    pair_estimate,
)
from ldpstream.mechanisms import Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray

SIGMAS = 5.0
NOTHING = Counted([])


def mechanisms_of(name: str, shape: tuple[int, int], eps: float = 1.0) -> list[Mechanism]:
    ks = (shape[0] * shape[1], *shape)
    if name.startswith("L-"):
        return [mechanism(name, k, eps_inf=2 * eps, eps_1=eps) for k in ks]
    return [mechanism(name, k, eps=eps) for k in ks]


def counted(
    m: list[Mechanism], truth: FloatArray, people: int, rng: np.random.Generator, *, same_people: bool = False, steps: int = 1
) -> list[Counted]:
    """The counts of the pair, the first and the second attribute; all people report at each of the steps."""
    values = rng.choice(truth.size, people if same_people else 3 * people, p=truth.ravel())
    asked = [values] * 3 if same_people else np.array_split(values, 3)
    k = truth.shape[1]
    of_each = (asked[0], asked[1] // k, asked[2] % k)
    return [Counted([(own, own.tabulate(own.simulate(v, rng, steps)))], steps) for own, v in zip(m, of_each, strict=True)]


def share_is(found: list[bool], expected: float) -> bool:
    """True if this share of independent answers is true, to within five standard errors."""
    return abs(float(np.mean(found)) - expected) < SIGMAS * math.sqrt(expected * (1 - expected) / len(found))


# ---- the estimate


def dense(counts: list[Counted], shape: tuple[int, int], at: FloatArray, same_people: bool) -> tuple[FloatArray, FloatArray]:
    """Generalised least squares with the constraint of the sum, by dense matrices and a pseudo-inverse."""
    k1, k2 = shape
    maps = [np.eye(k1 * k2), np.repeat(np.eye(k1), k2, axis=1), np.tile(np.eye(k2), k1)]
    seen, parts, people = [], [], []
    for of, to in zip(counts, maps, strict=True):
        [(m, table)], steps = of.groups, of.steps
        assert isinstance(steps, int)
        seen.append(m.reading.inversion(table))
        people.append(table.n / steps)
        covariance = m.reading.support_covariance(to @ at.ravel(), steps).matrix()
        parts.append(covariance / people[-1] / (steps * (m.p - m.q)) ** 2)
    design, y = np.concatenate(maps), np.concatenate(seen)
    v = np.zeros((y.size, y.size))
    begins = np.cumsum([0, *(part.shape[0] for part in parts)])
    for i, part in enumerate(parts):
        v[begins[i] : begins[i + 1], begins[i] : begins[i + 1]] = part
    sample = np.diag(at.ravel()) - np.outer(at, at)
    for i, j in product(range(3), range(3)) if same_people else []:
        if i != j:
            block = maps[i] @ sample @ maps[j].T / max(people[i], people[j])
            v[begins[i] : begins[i + 1], begins[j] : begins[j + 1]] = block
    # the constraint as an observation with almost no noise
    design, y = np.concatenate([design, np.ones((1, k1 * k2))]), np.append(y, 1.0)
    v = np.block([[v, np.zeros((v.shape[0], 1))], [np.zeros((1, v.shape[0])), np.full((1, 1), 1e-13)]])
    weight = np.linalg.inv(v + 1e-13 * np.eye(y.size))
    covariance = np.linalg.inv(design.T @ weight @ design)
    return covariance @ design.T @ weight @ y, covariance


@pytest.mark.parametrize("same_people", [False, True])
@pytest.mark.parametrize(("name", "steps"), [("GRR", 1), ("OUE", 1), ("OLH", 1), ("SS", 1), ("L-GRR", 4), ("L-OSUE", 3)])
def test_the_joint_estimate_is_that_of_dense_least_squares(name: str, steps: int, same_people: bool) -> None:
    shape, rng = (2, 3), np.random.default_rng(5)
    truth = shares_of(*shape, 0.5)
    counts = counted(mechanisms_of(name, shape, 3.0), truth, 20_000, rng, same_people=same_people, steps=steps)
    found = pair_estimate(counts, shape, same_people)
    assert found is not None
    at = found.shares
    guess, _ = dense(counts, shape, at, same_people)
    covariance = found.covariance.matrix()
    np.testing.assert_allclose(found.shares.ravel(), guess, atol=3e-4)
    _, expected = dense(counts, shape, truth, same_people)
    np.testing.assert_allclose(covariance, expected, atol=0.03 * expected.max())


def test_cells_rows_and_columns_agree() -> None:
    shape, rng = (3, 4), np.random.default_rng(6)
    found = pair_estimate(counted(mechanisms_of("OUE", shape), shares_of(*shape, 0.5), 3000, rng), shape)
    assert found is not None
    assert found.shares.sum() == pytest.approx(1)
    np.testing.assert_allclose(found.margin(0).shares, found.cells().shares.sum(axis=1))
    np.testing.assert_allclose(found.margin(1).shares, found.cells().shares.sum(axis=0))
    covariance = found.covariance.matrix()
    assert abs(covariance.sum()) < 1e-12  # the sum is known
    for axis, to in ((0, np.repeat(np.eye(3), 4, axis=1)), (1, np.tile(np.eye(4), 3))):
        np.testing.assert_allclose(found.margin_covariance(axis), to @ covariance @ to.T, atol=1e-12)
        np.testing.assert_allclose(np.nansum(found.within(axis).shares, axis=1 - axis), 1)


def test_levels_are_joined_and_a_level_of_numbers_is_ignored() -> None:
    shape, rng = (2, 4), np.random.default_rng(8)
    truth = shares_of(*shape, 0.5)
    one, other = (counted(mechanisms_of(name, shape, eps), truth, 5000, rng) for name, eps in (("GRR", 1.0), ("OUE", 2.0)))
    both = [Counted([*a.groups, *b.groups], [1, 1]) for a, b in zip(one, other, strict=True)]
    estimates = [pair_estimate(counts, shape) for counts in (one, other, both)]
    errors = [e.cell_errors().mean() for e in estimates if e is not None]
    assert errors[2] < min(errors[:2])
    waves = mechanism("SW", 4, eps=1.0)
    numbers = Counted([(waves, waves.tabulate(waves.report(rng.integers(4, size=100), rng)))])
    with_waves, without = pair_estimate([one[0], one[1], numbers], shape), pair_estimate([one[0], one[1], NOTHING], shape)
    assert with_waves is not None
    assert without is not None
    np.testing.assert_array_equal(with_waves.shares, without.shares)


def test_nothing_is_estimated_without_reports_of_the_pair() -> None:
    shape = (2, 2)
    empty = [Counted([(m, m.empty_table())]) for m in mechanisms_of("GRR", shape)]
    assert pair_estimate(empty, shape) is None
    assert independence(empty, shape) is None
    counts = counted(mechanisms_of("GRR", shape), shares_of(*shape, 0.5), 100, np.random.default_rng(1))
    assert pair_estimate([empty[0], counts[1], counts[2]], shape) is None
    one_report = counted(mechanisms_of("GRR", shape), shares_of(*shape, 0.5), 1, np.random.default_rng(1))
    found = pair_estimate(one_report, shape)
    assert found is not None
    assert np.isfinite(found.cells().shares).all()


# ---- intervals


class Held:
    """Counts for each number how often its interval contains the truth."""

    def __init__(self, truth: FloatArray) -> None:
        self.truths = [
            truth,
            truth.sum(axis=1),
            truth.sum(axis=0),
            *(truth / truth.sum(axis=1 - a, keepdims=True) for a in (0, 1)),
        ]
        self.runs: list[list[bool]] = []

    def add(self, found: PairEstimate) -> None:
        parts = [found.cells(), *(of(axis) for of in (found.margin, found.within) for axis in (0, 1))]
        inside = [(one.low <= truth) & (truth <= one.high) for one, truth in zip(parts, self.truths, strict=True)]
        self.runs.append(np.concatenate([part.ravel() for part in inside]).tolist())

    def coverage(self) -> FloatArray:
        return np.asarray(np.mean(self.runs, axis=0))


CASES = [
    ("GRR", (2, 2), 1.0, 300, False, 1), ("GRR", (3, 5), 4.0, 3000, False, 1), ("GRR", (3, 5), 4.0, 3000, True, 1),
    ("OUE", (2, 3), 1.0, 1000, True, 1), ("OLH", (3, 5), 1.0, 3000, False, 1), ("L-GRR", (2, 2), 1.0, 1000, False, 4),
    ("L-OSUE", (2, 3), 1.0, 1000, True, 4),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shape", "eps", "people", "same_people", "steps"), CASES)
def test_intervals_contain_the_truth(
    name: str, shape: tuple[int, int], eps: float, people: int, same_people: bool, steps: int
) -> None:
    """Each interval holds in 93 % or more: 95 %, less errors of the normal approximation. The mean coverage is above 94 %, but
    for chance in 500 runs.

    Control: the intervals of a covariance that is too small by a factor of two, which are 83 % intervals.
    """
    rng, truth, runs = np.random.default_rng(11), shares_of(*shape, 0.5), 500
    m = mechanisms_of(name, shape, eps)
    held, control = Held(truth), Held(truth)
    for _ in range(runs):
        found = pair_estimate(counted(m, truth, people, rng, same_people=same_people, steps=steps), shape, same_people)
        assert found is not None
        held.add(found)
        control.add(replace(found, covariance=found.covariance.scaled(np.full(truth.size, math.sqrt(0.5)))))
    least = 0.93 - SIGMAS * math.sqrt(0.93 * 0.07 / runs)
    assert held.coverage().min() > least
    of_runs = np.mean(held.runs, axis=1)
    assert of_runs.mean() > 0.94 - SIGMAS * of_runs.std() / math.sqrt(runs)
    assert control.coverage().mean() < 0.88


def test_people_of_a_noisy_level_hardly_count_for_the_sample() -> None:
    """The variance of a weighted mean of samples of n₁ and n₂ people is that of 1 / (w₁²/n₁ + w₂²/n₂) people."""
    groups = [
        (m := mechanism("GRR", 2, eps=eps), m.table(n, np.array([n // 2, n - n // 2]))) for eps, n in ((0.1, 9000), (5.0, 1000))
    ]
    noisy, clear = (_seen(Counted([group]), None) for group in groups)
    both = _seen(Counted(groups), None)
    assert noisy is not None
    assert clear is not None
    assert both is not None
    assert (noisy.people, clear.people) == pytest.approx((9000, 1000))
    assert 1000 < both.people < 1100


def test_a_row_that_may_be_empty_says_that_nothing_is_known() -> None:
    """A row of 0.2 % is far below the noise: in fewer than 5 % of the runs does the row have shares within it, and more than
    97 % of its intervals contain the truth."""
    truth, rng = np.array([[0.598, 0.4], [0.001, 0.001]]), np.random.default_rng(12)
    m, shape, runs = mechanisms_of("GRR", (2, 2)), (2, 2), 1000
    known, held = 0, list[bool]()
    for _ in range(runs):
        found = pair_estimate(counted(m, truth, 1000, rng), shape)
        assert found is not None
        within = found.within(0)
        known += int(np.isfinite(within.shares[1, 0]))
        held.append(bool(within.low[1, 0] <= 0.5 <= within.high[1, 0]))
        if np.isnan(within.shares[1, 0]):
            assert (within.low[1, 0], within.high[1, 0]) == (0, 1)
    assert known < 0.05 * runs
    assert np.mean(held) > 0.97


# ---- the test of independence


def p_values(truth: FloatArray, name: str, people: int, runs: int, seed: int, eps: float = 1.0) -> list[float]:
    rng, shape = np.random.default_rng(seed), (truth.shape[0], truth.shape[1])
    m = mechanisms_of(name, shape, eps)
    tested = [independence(counted(m, truth, people, rng), shape) for _ in range(runs)]
    return [one.p for one in tested if one is not None]


def test_the_size_in_the_smallest_survey() -> None:
    """A table of 2 × 2, 1000 people, of whom a third answer the pair: 5 % alarms for independent attributes."""
    found = p_values(shares_of(2, 2, 0.0), "GRR", 1000 // 3, 1500, 21)
    assert len(found) == 1500
    assert share_is([p < 0.05 for p in found], 0.05)
    control = p_values(associated(2, 2, 0.3), "GRR", 1000 // 3, 200, 21)  # type: ignore[arg-type]  # the shape fits
    assert not share_is([p < 0.05 for p in control], 0.05)


@pytest.mark.parametrize(("name", "shape", "people"), [("GRR", (2, 2), 5000), ("OUE", (3, 4), 10_000), ("OLH", (4, 4), 10_000)])
def test_size_and_power_are_as_stated(name: str, shape: tuple[int, int], people: int) -> None:
    m = mechanisms_of(name, shape)[0]
    variance = float(m.reading.support_covariance(np.full(m.k, 1 / m.k)).own[0]) / people / (m.p - m.q) ** 2
    at = associated(*shape, detectable_association(variance, shape))
    assert at is not None
    found = p_values(at, name, people, 400, 22)
    assert share_is([p < 0.05 for p in found], 0.8)
    assert not share_is([p < 0.005 for p in found], 0.8)
    assert share_is([p < 0.05 for p in p_values(shares_of(*shape, 0.0), name, people, 400, 23)], 0.05)


def test_the_detectable_association_is_that_of_the_noncentral_distribution() -> None:
    for shape, degrees in (((2, 2), 1), ((3, 5), 8), ((32, 32), 961)):
        v = detectable_association(1e-6, shape)
        noncentrality = v**2 * (min(shape) - 1) / (1e-6 * shape[0] * shape[1])
        assert ncx2.sf(chi2.isf(0.05, degrees), degrees, noncentrality) == pytest.approx(0.8, abs=1e-6)
    with pytest.raises(ValueError, match="power"):
        detectable_association(1e-6, (2, 2), power=1.0)


def test_no_test_is_made_from_too_few_reports() -> None:
    """The margins of a pair alone are noisy; the reports of its attributes make the test possible."""
    shape, rng = (5, 5), np.random.default_rng(24)
    pair, first, second = counted(mechanisms_of("GRR", shape), shares_of(*shape, 0.0), 300, rng)
    assert independence([pair, NOTHING, NOTHING], shape) is None
    assert independence([pair, first, second], shape) is not None


def test_counts_that_no_honest_people_make_leave_the_estimate_finite() -> None:
    """Forged tables, hardly any reports, and mechanisms with almost no noise or almost no information."""
    rng = np.random.default_rng(25)
    for name, eps, _ in product(("GRR", "OUE", "L-GRR", "L-OSUE"), (0.01, 1.0, 8.0, 300.0), range(12)):
        shape = (int(rng.integers(2, 5)), int(rng.integers(2, 5)))
        counts = []
        for m in mechanisms_of(name, shape, eps):
            n, forged = int(rng.choice([0, 1, 5, 1000, 10**12])), np.zeros(m.k, np.int64)
            forged[0 if "GRR" in name else slice(None, None, int(rng.integers(1, 3)))] = n
            counts.append(Counted([(m, m.table(n, forged))]))
        for same_people in (False, True):
            found = pair_estimate(counts, shape, same_people)
            tested = independence(counts, shape, same_people)
            assert tested is None or 0 <= tested.p <= 1
            if found is not None:
                for part in (found.cells(), found.margin(0), found.margin(1)):
                    assert np.isfinite([part.shares, part.low, part.high]).all()
