"""Compares the channels of location mechanisms with direct sums, their guarantees with enumeration, and their reports with the
channels.

Seeds are fixed. Every p-value is compared with `LIMIT` = 1e-9. There are about 50 p-values; with new seeds a correct mechanism
would fail with probability 5e-8. Each test with p-values has a control that must fail.
"""

import math
from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from lab.papers.location import LOCATION
from lab.papers.location.base import LocationMechanism, StoredChannel
from lab.papers.location.geometric import PlanarGeometric, TruncatedGeometric, lattice_sums
from lab.papers.location.shokri import Shokri, expected_loss
from ldpstream.mechanisms import NAMES, ChannelMechanism, mechanism
from ldpstream.mechanisms.arguments import MAX_K, FloatArray, IntArray
from tests.mechanisms.test_sampling import LIMIT, p_value

SHAPES = [(1, 2), (2, 1), (1, 5), (5, 1), (2, 2), (2, 3), (3, 2), (3, 3), (4, 3)]


def line(k: int) -> FloatArray:
    return np.abs(np.subtract.outer(np.arange(k), np.arange(k))).astype(float)


def shokri(k: int = 5, max_loss: float = 0.9) -> Shokri:
    """A mechanism with a non-uniform prior, and with a quality loss that differs from the adversary's error."""
    return Shokri(np.arange(1, k + 1) / (k * (k + 1) / 2), line(k), max_loss, loss=line(k) ** 2)


class Given(StoredChannel):
    """A mechanism on a line with a given channel."""

    signature = "given"

    def __init__(self, channel: FloatArray) -> None:
        self._set_domain(len(channel))
        self._set_channel(channel)

    def distances(self) -> FloatArray:
        return line(self.k)


GEOMETRIC: list[TruncatedGeometric | PlanarGeometric] = [
    *(TruncatedGeometric(k, eps) for k in (2, 3, 8) for eps in (1e-9, 0.1, 1.0, 5.0)),
    *(PlanarGeometric(shape, eps) for shape in SHAPES for eps in (0.1, 1.0, 5.0)),
]
EXAMPLES: list[LocationMechanism] = [TruncatedGeometric(5, 0.7), PlanarGeometric((3, 2), 0.7), shokri()]
each = pytest.mark.parametrize("m", EXAMPLES, ids=lambda m: m.name)


def test_the_registry_separates_location_and_pure_mechanisms() -> None:
    assert repr(LOCATION["truncated-geometric"](k=5, eps=0.7)) == repr(EXAMPLES[0])
    assert repr(LOCATION["planar-geometric"](shape=(3, 2), eps=0.7)) == repr(EXAMPLES[1])
    assert isinstance(LOCATION["Shokri"](prior=[0.5, 0.5], distance=line(2), max_loss=0.1), Shokri)
    assert not set(LOCATION) & set(NAMES)


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


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("eps", [1.0, 4.0])
def test_the_grid_is_the_lattice_moved_to_the_nearest_cells(shape: tuple[int, int], eps: float) -> None:
    """Compares with brute force over a large part of the lattice: adds up exact terms, and searches for each nearest grid
    cell."""
    width, height = shape
    centres = [(i, j) for j in range(height) for i in range(width)]
    reach = math.ceil(44 / eps)
    lattice = np.array(list(product(range(-reach, width + reach), range(-reach, height + reach))))
    to_centre = np.array([np.hypot(*(lattice - centre).T) for centre in centres])
    nearest = to_centre.argmin(axis=0)
    ties = np.isclose(to_centre, to_centre.min(axis=0), rtol=1e-12).sum(axis=0)
    assert (ties == 1).all()
    expected = np.array([[math.fsum(np.exp(-eps * d[nearest == z])) for z in range(len(centres))] for d in to_centre])
    whole = math.fsum(np.exp(-eps * np.hypot(*np.array(list(product(range(-2 * reach, 2 * reach + 1), repeat=2))).T)))
    np.testing.assert_allclose(PlanarGeometric(shape, eps).channel(), expected / whole, rtol=4e-15)


@pytest.mark.parametrize("eps", [0.01, 0.03, 0.1, 0.5, 1.0, 2.0])
def test_the_normalizing_constant_matches_epsteins_zeta(eps: float) -> None:
    """Σ e^{-ε‖y‖} = 2π/ε² + 1 + Σ_m (-ε)^m/m! Z(-m/2) for ε < 2π, by Mellin's transform; Z(s) = 4 ζ(s) β(s), continued."""
    terms = [2 * math.pi / eps**2, 1.0]
    for m in range(60):
        s = 1 + m / 2  # Z(1-s) by the functional equation; β(s) from Hurwitz's zeta function
        if m == 0:
            terms.append(-1.0)
            continue
        beta = (special.zeta(s, 0.25) - special.zeta(s, 0.75)) / 4**s
        epstein = math.pi ** (-m - 1) * special.gamma(s) * special.rgamma(-m / 2) * 4 * special.zeta(s) * beta
        terms.append((-eps) ** m / math.factorial(m) * epstein)
    assert lattice_sums(2, 3, eps)[-1, -1] == pytest.approx(math.fsum(terms), rel=2e-15)


def test_lattice_sums_over_sets_are_consistent() -> None:
    sums = lattice_sums(3, 4, 0.2)  # axes: {0} … {2}, {0, …} … {2, …}, all; {0} … {3}, {0, …} … {3, …}, all
    assert sums.shape == (7, 9)
    np.testing.assert_allclose(sums[3:5], sums[:2] + sums[4:6], rtol=1e-15)
    np.testing.assert_allclose(sums[:, 4:7], sums[:, :3] + sums[:, 5:8], rtol=1e-15)
    np.testing.assert_allclose(sums[-1], 2 * sums[4] + sums[0], rtol=1e-15)
    np.testing.assert_allclose(sums[-1, -1], 1 + 4 * sums[4, 4], rtol=1e-15)  # four rotated quadrants {1, …} × {0, …}


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


@each
def test_the_losses_follow_from_the_channel(m: LocationMechanism) -> None:
    assert (m.eps_1, m.eps_distance) == pytest.approx(enumerated(m), rel=1e-12)
    assert m.eps_t(3) == pytest.approx(3 * m.eps_1)
    assert m.eps_inf == math.inf


def test_ldp_eps_of_the_line_mechanism_exceeds_its_parameter() -> None:
    m = TruncatedGeometric(MAX_K, 2)
    assert (m.eps, m.eps_distance, m.eps_1) == (2.0, 2.0, 2.0 * (MAX_K - 1))


def test_only_the_ends_of_the_line_have_the_worst_loss_of_sequences() -> None:
    m = TruncatedGeometric(k=5, eps=1.0)
    found, logs = m.eps_sequence(3), np.log(m.channel())
    assert found.value == pytest.approx(3 * np.abs(logs[0] - logs[-1]).max())
    assert 3 * np.abs(logs[1] - logs[2]).max() < found.value
    assert found.witness == "each sequence has one value at every step: the two values with the largest loss"


def test_an_impossible_report_is_ignored() -> None:
    one = Given(np.array([[0.0, 0.2, 0.8], [0.0, 0.5, 0.5], [0.0, 0.4, 0.6]]))
    assert (one.eps_1, one.eps_distance) == pytest.approx(enumerated(one)) == (math.log(2.5), math.log(2.5))


# ---- published numbers

# ElSalamouny and Palamidessi, Tables 5 and 6, largest first: the ε of k-RR and of the geometric mechanisms. The paper does not
# explain these ε. With a uniform prior, these ε give the following expected distances. The line of 100 cells has the distances
# of Table 8 (25 instead of the printed 24.5). The grid of 24 × 16 cells of 0.5 km has 0.5, 1, …, 5 km.
LINE_LOSS = (1, 4, 7, 10, 13, 16, 19, 22, 25, 28)
GRID_LOSS_KM = (0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5)
CELL_KM = 0.5
PUBLISHED: list[tuple[str, Callable[[float], FloatArray], FloatArray, str, tuple[float, ...]]] = [
    (
        "Table 5, linear",
        lambda eps: mechanism("GRR", 100, eps=eps).channel(),
        line(100),
        "8.08 6.60 5.93 5.46 5.06 4.69 4.34 3.96 3.54 3.00",
        LINE_LOSS,
    ),
    (
        "Table 6, linear",
        lambda eps: TruncatedGeometric(100, eps).channel(),
        line(100),
        "0.869 0.236 0.131 0.088 0.065 0.050 0.039 0.031 0.025 0.020",
        LINE_LOSS,
    ),
    (
        "Table 5, planar",
        lambda eps: mechanism("GRR", 384, eps=eps).channel(),
        CELL_KM * PlanarGeometric((24, 16), 1.0).distances(),
        "8.20 7.40 6.87 6.44 6.05 5.67 5.27 4.81 4.19 3.05",
        GRID_LOSS_KM,
    ),
    (
        "Table 6, planar",
        lambda eps: PlanarGeometric((24, 16), CELL_KM * eps).channel(),
        CELL_KM * PlanarGeometric((24, 16), 1.0).distances(),
        "3.124 1.762 1.159 0.835 0.632 0.493 0.390 0.310 0.244 0.190",
        GRID_LOSS_KM,
    ),
]


@pytest.mark.parametrize(
    ("channel", "distances", "printed", "losses"), [row[1:] for row in PUBLISHED], ids=[r[0] for r in PUBLISHED]
)
def test_the_papers_parameters_give_printed_losses(
    channel: Callable[[float], FloatArray], distances: FloatArray, printed: str, losses: tuple[float, ...]
) -> None:
    """Each printed ε gives the expected loss in `losses`, to the printed digits. One unit of the last digit is added to ε, then
    subtracted from ε: the loss must be smaller, then larger, than in `losses`."""
    prior = np.full(len(distances), 1 / len(distances))
    for eps, loss in zip(printed.split(), losses, strict=True):
        unit = 10.0 ** -len(eps.split(".")[1])
        low, high = (expected_loss(channel(float(eps) + shift), prior, distances) for shift in (unit, -unit))
        assert low < loss < high, (eps, low, loss, high)


# ---- reports


def fits(counts: IntArray, expected: FloatArray) -> bool:
    """True if the counts fit the distribution: they pass a chi-squared test, and no outcome of probability zero occurs."""
    if counts[expected.ravel() == 0].any():
        return False
    return np.count_nonzero(expected) == 1 or p_value(counts, expected) > LIMIT


@pytest.mark.parametrize(
    ("m", "wrong"),
    [
        (TruncatedGeometric(2, 0.7), TruncatedGeometric(2, 0.8)),
        (TruncatedGeometric(6, 0.05), TruncatedGeometric(6, 0.08)),
        (TruncatedGeometric(6, 3.0), TruncatedGeometric(6, 3.2)),
        (TruncatedGeometric(300, 0.1), TruncatedGeometric(300, 0.105)),
        (PlanarGeometric((3, 2), 0.7), PlanarGeometric((2, 3), 0.7)),
        (PlanarGeometric((5, 4), 1.5), PlanarGeometric((5, 4), 1.6)),
        (PlanarGeometric((20, 15), 0.5), PlanarGeometric((20, 15), 0.52)),
        (shokri(), shokri(max_loss=1.1)),
    ],
    ids=repr,
)
def test_reports_follow_the_channel(m: ChannelMechanism, wrong: ChannelMechanism) -> None:
    """Tests each value's reports separately (at most five values), then all people's values and reports jointly."""
    rng = np.random.default_rng(20240607)
    shown = np.unique(np.linspace(0, m.k - 1, min(m.k, 5)).astype(int))
    for value in shown:
        counts = m.tabulate(m.report(np.full(200_000, value), rng)).counts
        assert fits(counts, m.channel()[value])
        assert not fits(counts, m.channel()[(value + 1) % m.k])
    values = rng.choice(shown, 400_000)
    reports = m.report(values, rng).astype(np.int64)
    joint = np.bincount(np.searchsorted(shown, values) * m.k + reports, minlength=len(shown) * m.k)
    assert fits(joint, m.channel()[shown] / len(shown))
    assert not fits(joint, wrong.channel()[shown] / len(shown))
    misplaced = np.bincount(np.searchsorted(shown, np.sort(values)) * m.k + reports, minlength=len(shown) * m.k)
    assert not fits(misplaced, m.channel()[shown] / len(shown))


@each
def test_people_draw_independently(m: ChannelMechanism) -> None:
    """Tests pairs of reports: two reports of the same value, and two neighbours in the array. The control uses one report
    twice."""
    rng = np.random.default_rng(20240608)
    first, second = (m.report(np.full(100_000, 1), rng).astype(np.int64) for _ in range(2))
    expected = np.outer(m.channel()[1], m.channel()[1])
    for a, b in ((first, second), (first[::2], first[1::2])):
        assert fits(np.bincount(a * m.k + b, minlength=m.k**2), expected)
    assert not fits(np.bincount(first * m.k + first, minlength=m.k**2), expected)


class Fixed(np.random.Generator):
    """A source that always returns the same uniform number."""

    def __init__(self, uniform: float) -> None:
        super().__init__(np.random.PCG64(0))
        self._uniform = uniform

    def random(self, size: Any = None, *_: Any, **__: Any) -> Any:
        return np.full(size, self._uniform)


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
def test_reports_of_probability_zero_are_never_drawn(uniform: float) -> None:
    for m in (shokri(), Shokri([0.5, 0.3, 0.2], line(3), 0.0), PlanarGeometric((3, 1), 300.0)):
        values = np.arange(m.k)
        reports = m.report(values, Fixed(uniform))
        assert (m.channel()[values, reports] > 0).all()


def test_the_ends_of_the_parameter_ranges_work() -> None:
    rng = np.random.default_rng(1)
    values = np.array([0, 3, MAX_K - 1])
    assert np.array_equal(TruncatedGeometric(MAX_K, 700.0).report(values, rng), values)
    flat = np.bincount(TruncatedGeometric(5, 1e-9).report(np.full(1000, 2), rng), minlength=5)
    assert flat[1:4].sum() == 0  # the noise spans 10⁹ cells
    assert np.array_equal(TruncatedGeometric(4, 700.0).channel(), np.exp(-700 * line(4)))
    assert np.array_equal(PlanarGeometric((2, 1), 700.0).report(np.array([1, 0]), rng), [1, 0])
    assert PlanarGeometric((64, 64), 0.5).report(np.array([4095]), rng).dtype == np.dtype("<u2")
    for m in EXAMPLES:
        assert m.report(np.zeros(0, np.int64), rng).shape == (0,)


# ---- count tables


@each
@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, 60), max_size=5), seed=st.integers(0, 2**32))
def test_tables_add_up_in_any_order(m: ChannelMechanism, cuts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    reports = m.report(rng.integers(0, m.k, 60), rng)
    shards = [m.tabulate(reports[a:b]) for a, b in pairwise([0, *sorted(cuts), 60])]
    rng.shuffle(shards)
    total = m.empty_table()
    for shard in shards:
        total = total + shard
    assert total == m.tabulate(reports) == m.tabulate(rng.permutation(reports))
    assert (total.n, total.counts.sum()) == (60, 60)
    assert np.array_equal(total.counts, np.bincount(reports, minlength=m.k))
    assert m.table_from_bytes(total.to_bytes()) == total == m.table(total.n, total.counts)


@each
def test_invalid_rows_are_rejected(m: ChannelMechanism) -> None:
    reports = m.report(np.arange(m.k), np.random.default_rng(1))
    with pytest.raises(ValueError, match=r"1 of 2 reports are not reports of .*, the first at position 1"):
        m.tabulate(np.array([0, m.k], m.report_dtype))
    for other in (reports[None], reports[0], np.zeros(3), np.zeros(3, bool), np.zeros(3, "u2")):
        with pytest.raises(ValueError, match="must be rows of"):
            m.tabulate(other)


# ---- the inversion


@pytest.mark.parametrize("m", [*GEOMETRIC, *EXAMPLES], ids=repr)
def test_the_inverse_is_least_squares(m: ChannelMechanism) -> None:
    if m.eps_1 < 1e-6:
        return  # all rows agree to nine digits
    a, b = m.channel(), m.inverse()
    np.testing.assert_allclose(a @ b @ a, a, atol=1e-9)
    np.testing.assert_allclose(b @ a @ b, b, atol=1e-6 * np.abs(b).max())
    np.testing.assert_allclose([(a @ b).T, (b @ a).T], [a @ b, b @ a], atol=1e-7)
    f = np.arange(1, m.k + 1) / (m.k * (m.k + 1) / 2)
    if np.linalg.matrix_rank(a) == m.k:
        np.testing.assert_allclose(f @ a @ b, f, atol=1e-8)  # the inversion is unbiased


def outcomes(m: ChannelMechanism, f: FloatArray, steps: int) -> tuple[FloatArray, FloatArray]:
    """Probability and estimate of every sequence of reports that one person can send, by enumeration."""
    a, b = m.channel(), m.inverse()
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
        np.testing.assert_allclose(m.inversion_variances(f, n=7, steps=steps), expected / 7, rtol=1e-9, atol=1e-12)


# ---- errors


@each
def test_methods_for_pure_mechanisms_are_rejected(m: ChannelMechanism) -> None:
    assert m.unbiased is False
    assert math.isnan(m.p)
    assert math.isnan(m.q)
    asked: list[tuple[Callable[[], Any], str]] = [
        (m.variance, "variance"),
        (lambda: m.support(m.empty_table()), "support counts"),
        (lambda: m.support_covariance(np.full(m.k, 1 / m.k)), "covariance"),
        (m.rounds, "p and q"),
        (lambda: m.largest_contribution, "bound"),
    ]
    for ask, what in asked:
        with pytest.raises(ValueError, match=f"is not a pure mechanism and has no .*{what}"):
            ask()


def test_too_large_a_dense_channel_is_rejected() -> None:
    m = TruncatedGeometric(5000, 1.0)
    for ask in (m.channel, m.inverse):
        with pytest.raises(ValueError, match="the dense channel of"):
            ask()


BAD: list[tuple[str, dict[str, Any], str]] = [
    *[("truncated-geometric", {"k": k, "eps": 1.0}, r"k must be an integer in \[2, 2147483647\], got ")
      for k in (1, 0, -1, 2.0, True, "3", None, math.nan, 2**31)],
    *[("truncated-geometric", {"k": 3, "eps": eps}, r"eps must be a number in \[1e-09, 700\], got ")
      for eps in (0, -1.0, 701, math.nan, math.inf, True, "1", None, 10**400)],
    *[("planar-geometric", {"shape": shape, "eps": 1.0}, r"shape must be \(width, height\), got ")
      for shape in (5, (5,), (1, 2, 3), "24", None)],
    *[("planar-geometric", {"shape": shape, "eps": 1.0}, r"each side of shape must be an integer in \[1, 4096\], got ")
      for shape in ((0, 5), (5, -1), (2.0, 2), (True, 5), (4097, 1))],
    *[("planar-geometric", {"shape": shape, "eps": 1.0}, r"number of cells of shape must be an integer in \[2, 4096\], got ")
      for shape in ((1, 1), (64, 65))],
    *[("planar-geometric", {"shape": (4, 5), "eps": eps}, r"eps must be a number in \[0\.01, 140\], got ")
      for eps in (0.009, 141, math.nan, math.inf, True, "1", None)],
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "message"), BAD)
def test_bad_arguments_are_rejected_by_name(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LOCATION[name](**arguments)


@each
def test_bad_values_and_frequencies_are_rejected(m: ChannelMechanism) -> None:
    rng = np.random.default_rng(1)
    for bad in ([m.k], [-1], [0.5], [[0]], ["a"]):
        with pytest.raises(ValueError, match=r"values must be .*\[0, "):
            m.report(bad, rng)
    good = np.full(m.k, 1 / m.k)
    for frequencies in (good[:-1], good * 1.1, -good, good * math.nan):
        with pytest.raises(ValueError, match="frequencies must"):
            m.inversion_variances(frequencies)
    with pytest.raises(ValueError, match="n must be an integer"):
        m.inversion_variances(good, n=0)
    with pytest.raises(ValueError, match="steps must be an integer"):
        m.inversion_variances(good, steps=0)
