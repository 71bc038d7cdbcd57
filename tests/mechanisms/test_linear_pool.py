"""Compares the finite fields and the linear hash functions with `reference`, and hashes with golden values."""

import hashlib
import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.drawn_tables import drawn_table
from ldpstream.estimators import empirical_bayes, mle
from ldpstream.estimators.bayes.value_likelihood import observations
from ldpstream.mechanisms.families.finite_field import MAX_FIELD, field, prime_power, prime_powers
from ldpstream.mechanisms.families.linear_pool import LinearPool, digits_needed, spread
from ldpstream.mechanisms.families.local_hashing import (
    AUTO_TABLE,
    MAX_HASH_K,
    MAX_TABLE,
    LocalHashing,
    best_g,
    fits,
)

from . import reference
from .reference import build

FIELDS = (2, 3, 4, 5, 7, 8, 9, 11, 13, 16, 17, 19, 23, 25, 27, 29, 31, 32)
POOLS = [(2, 20), (3, 27), (3, 20), (4, 17), (5, 30), (8, 60), (8, 65), (9, 80), (16, 20), (25, 24), (25, 26), (27, 30)]

each_pool = pytest.mark.parametrize(("g", "k"), POOLS)


# ---- the field


def test_prime_powers_are_complete_and_correct() -> None:
    assert prime_powers(32) == FIELDS
    assert [g for g in range(1025) if prime_power(g)] == list(prime_powers(1024))
    for g in prime_powers(MAX_FIELD):
        r, e = prime_power(g) or (0, 0)
        assert r**e == g
        assert all(r % d for d in range(2, r))


@pytest.mark.parametrize("g", FIELDS)
def test_the_field_is_the_documented_one(g: int) -> None:
    add, multiply = field(g)
    assert add.tolist() == [[reference.plus(g, a, b) for b in range(g)] for a in range(g)]
    assert multiply.tolist() == [[reference.times(g, a, b) for b in range(g)] for a in range(g)]


def test_products_in_the_field_of_aes() -> None:
    """FIPS 197, §4.2: 57 · 83 = c1 and 57 · 13 = fe, in hexadecimal."""
    _, multiply = field(256)
    assert multiply[0x57, 0x83] == 0xC1
    assert multiply[0x57, 0x13] == 0xFE


@pytest.mark.parametrize("g", [-1, 0, 1, 6, 10, 12, 100, 1023, 1025])
def test_only_prime_powers_are_accepted(g: int) -> None:
    with pytest.raises(ValueError, match="prime power"):
        field(g)
    with pytest.raises(ValueError, match="g must be"):
        build("OLH", 10, 2.0, 1.0, g=g)


# ---- the hash functions


@each_pool
def test_the_hash_is_the_documented_one(g: int, k: int) -> None:
    pool, table = LinearPool(k, g), reference.hashes(g, k)
    functions, values = (grid.ravel() for grid in np.indices(table.shape))
    assert pool.size == len(table)
    assert np.array_equal(pool.hash(functions, values).reshape(table.shape), table)


@pytest.mark.parametrize("k", [3, 4, 6, 30, 2310, 9_699_690, 2**24 - 1, MAX_HASH_K])
def test_the_stride_is_near_the_golden_section_of_any_domain(k: int) -> None:
    """A number with many prime factors has few candidates: numbers without a common factor."""
    s = pow(spread(k), -1, k)
    assert 1 <= s < k
    assert math.gcd(s, k) == 1
    assert abs(s - k * (math.sqrt(5) - 1) / 2) < 10


@each_pool
def test_the_transform_gives_exact_support_counts(g: int, k: int) -> None:
    table = reference.hashes(g, k)
    counts = np.random.default_rng(g).integers(0, 2**40, (len(table), g))
    brute_force = [counts[np.arange(len(table)), table[:, v]].sum() for v in range(k)]
    before = counts.copy()
    assert LinearPool(k, g).support(counts).tolist() == brute_force
    assert np.array_equal(counts, before)


@each_pool
def test_a_folded_table_keeps_all_information(g: int, k: int) -> None:
    """Every report belongs to one cell. For any f, the mass of that cell is the mass of the report's symbol under the report's
    function."""
    pool, table = LinearPool(k, g), reference.hashes(g, k)
    f = np.random.default_rng(g).random(k)
    masses = pool.radon(f)
    assert masses.shape == (pool.cells,)
    for a, y in itertools.product(range(0, pool.size, max(pool.size // 40, 1)), range(g)):
        report = np.zeros((pool.size, g), np.int64)
        report[a, y] = 1
        cell = pool.fold(report)
        assert (cell.sum(), cell.max()) == (1, 1)
        if a or not y:  # the function that hashes every value to 0 has one cell for all other symbols
            np.testing.assert_allclose(masses @ cell, f[table[a] == y].sum(), rtol=1e-14)
    counts = np.random.default_rng(k).integers(0, 2**40, (pool.size, g))
    assert pool.fold(counts).sum() == counts.sum()
    weights = np.zeros((pool.size, g))
    np.add.at(weights, (np.arange(pool.size)[:, None], table), f)
    np.testing.assert_allclose(masses @ pool.fold(counts), (weights * counts).sum(), rtol=1e-14)


@each_pool
def test_the_transpose_is_the_transpose(g: int, k: int) -> None:
    """Checks x · R f = Rᵀ x · f exactly, in integers. R's columns are zeros and ones."""
    pool, rng = LinearPool(k, g), np.random.default_rng(g)
    f, x = rng.integers(-99, 99, k).astype(float), rng.integers(-99, 99, pool.cells).astype(float)
    before = x.copy()
    assert x @ pool.radon(f) == pool.radon_transpose(x) @ f
    assert np.array_equal(x, before)
    column = pool.radon(np.eye(k)[k - 1])
    assert set(column) <= {0.0, 1.0}
    assert column.sum() == 1 + (pool.size - 1) // (g - 1)  # one symbol of each function


@settings(max_examples=30)
@given(
    st.sampled_from([(2, 1000), (3, 1000), (4, 5000), (7, 5000), (32, 1025), (53, 1000), (17, 4000), (2, 70_000)]), st.data()
)
def test_large_pools_hash_and_count_correctly(g_k: tuple[int, int], data: st.DataObject) -> None:
    """Checks single hashes and single reports, for pools whose tables are too large to be checked completely."""
    g, k = g_k
    pool = LinearPool(k, g)
    a, y = data.draw(st.integers(0, pool.size - 1)), data.draw(st.integers(0, g - 1))
    v = data.draw(st.integers(0, k - 1))
    hashed = pool.hash(np.full(k, a), np.arange(k))
    assert hashed[v] == reference.linear_form(g, pool.m, a, v * pool.stride % k)
    counts = np.zeros((pool.size, g), np.int64)
    counts[a, y] = 1
    assert np.array_equal(pool.support(counts), hashed == y)
    f = np.random.default_rng(a).random(k)
    if a or not y:
        np.testing.assert_allclose(pool.radon(f) @ pool.fold(counts), f[hashed == y].sum(), rtol=1e-13)


def test_hashes_have_the_golden_values() -> None:
    """H_a(v) of a few functions, computed by `reference`. If these values change, every deployed device breaks.

    By hand: the stride for k = 100 is 41, so 88 has the place 8. In GF(9) with x² = -1, 8 is 2+2x, and the symbol of the
    function 728 is (2+2x)² = 8x = 2x, which is 6.
    """
    pool = LinearPool(100, 9)
    assert pool.hash(np.array([0, 1, 13, 700, 728]), np.array([99, 99, 77, 50, 88])).tolist() == [0, 5, 2, 0, 6]
    pool = LinearPool(1000, 4)
    assert pool.hash(np.array([1, 4, 6, 1023, 512]), np.array([3, 7, 999, 999, 600])).tolist() == [1, 1, 3, 3, 2]
    digests = {
        (4, 16): "b40a6a79652b8579",
        (8, 64): "1783a6aaf53da22a",
        (9, 81): "9f568dc238e57fdd",
        (27, 27): "7c5b61ced0c50fef",
    }
    for (g, k), digest in digests.items():
        functions, values = (grid.ravel() for grid in np.indices((k, k)))
        found = LinearPool(k, g).hash(functions, values).astype(np.uint8).tobytes()
        assert hashlib.sha256(found).hexdigest()[:16] == digest


# ---- the covariance of the support counts


def low_powers(pool: LinearPool) -> list[float]:
    """Variance of the support counts along each of the lowest four cosines over the values, by enumeration of all functions.

    The counts are those of one report without noise, given its value. The sum over all given values is divided by the sum of
    the variances that independent supports would have.
    """
    table = np.array([pool.hash(np.full(pool.k, a), np.arange(pool.k)) for a in range(pool.size)])
    found = []
    for frequency in range(1, 5):
        cosine = np.cos(np.pi * frequency * (np.arange(pool.k) + 0.5) / pool.k)
        sums = np.array([np.bincount(row, cosine, pool.g) for row in table])  # sums over the values with one symbol
        given = np.take_along_axis(sums, table, axis=1).var(axis=0)
        independent = (1 / pool.g) * (1 - 1 / pool.g) * (np.square(cosine).sum() - np.square(cosine))
        found.append(float(given.sum() / independent.sum()))
    return found


@pytest.mark.parametrize(("g", "k", "now", "without"), [(16, 60, 0.82, 3.3), (32, 100, 0.71, 8.5), (53, 300, 0.84, 7.9)])
def test_sums_over_neighbours_have_no_more_noise_than_independent_counts(g: int, k: int, now: float, without: float) -> None:
    """The control hashes the values themselves: g neighbouring values then lie on a line."""
    pool = LinearPool(k, g)
    powers = low_powers(pool)
    assert powers[0] == pytest.approx(now, abs=0.01)
    assert max(powers) < 0.9
    assert min(powers) > 0.7
    pool.stride = 1
    assert low_powers(pool)[0] == pytest.approx(without, abs=0.05)


# ---- sizes


@pytest.mark.parametrize("k", [2, 3, 4, 5, 8, 9, 16, 17, 1000, 2**20, MAX_HASH_K])
def test_the_number_of_digits_is_minimal(k: int) -> None:
    for g in prime_powers(64):
        m, size = digits_needed(k, g)
        assert size == g**m >= k > (g ** (m - 1) if m > 1 else 0)


def test_the_best_g_has_the_smallest_variance_of_all_that_fit() -> None:
    """The table of a larger g may fit although the table of a smaller g does not. For k = 2^24, g = 4 fits and g = 3 does not.
    The limit is 64 MiB if any g has a table of at most 64 MiB."""
    assert not fits(2**24, 3)
    assert fits(2**24, 4)
    for k, eps in itertools.product((2, 100, 10**5, 2**22, 2**22 + 1, 3**14 + 1, 2**24 - 1, 2**24), (0.1, 1.0, 2.0, 3.0, 5.0)):
        small = any(fits(k, g, AUTO_TABLE) for g in prime_powers(MAX_FIELD))
        assert small == (k <= 2**22)

        def truth(g: int, eps: float = eps) -> float:
            return math.exp(eps) / (math.exp(eps) + g - 1)

        def variance(g: int, truth: Callable[[int], float] = truth) -> float:
            return (1 / g) * (1 - 1 / g) / (truth(g) - 1 / g) ** 2

        g = best_g(k, truth)
        limit = AUTO_TABLE if small else MAX_TABLE
        assert digits_needed(k, g)[1] * g <= limit
        assert variance(g) == min(variance(h) for h in prime_powers(MAX_FIELD) if fits(k, h, limit))


@pytest.mark.parametrize(("k", "eps", "largest"), [(20, 2.0, 0.05), (60, 4.0, 0.05), (60, 4.0, 0.9)])
def test_sharpened_shares_are_the_likeliest_ones(k: int, eps: float, largest: float) -> None:
    """The references are the maximum of the true likelihood, and its standard errors from dense matrices."""
    m, f = LocalHashing("OLH", k, eps), np.append(largest, np.full(k - 1, (1 - largest) / (k - 1)))
    table = drawn_table(m, np.round(200_000 * f).astype(np.int64), np.random.default_rng(4))
    best, sharp = mle(m, table), m.reading.sharpened(table)
    assert sharp is not None
    shares, variance = sharp
    errors = np.sqrt(variance * (1 - variance / variance.sum()))
    np.testing.assert_allclose(errors, best.standard_errors, rtol=0.1)
    assert (np.abs(shares - best.frequencies) < 0.1 * errors).all()
    assert (np.abs(m.reading.inversion(table) - best.frequencies) > 0.2 * errors).any()  # the control


def test_the_default_estimate_reads_the_likelihood_of_local_hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One value has 95 %. In 12 other runs, the squared error with the likelihood is 0.37 ± 0.09 of that without."""
    m, rng, f = LocalHashing("OLH", 100, 4.0), np.random.default_rng(2), np.append(0.95, np.full(99, 0.05 / 99))
    tables = [(people / 10_000, drawn_table(m, people, rng)) for people in rng.multinomial(10_000, f, 8)]

    def error() -> float:
        return sum(float(((empirical_bayes(m, table).frequencies - shares) ** 2).sum()) for shares, table in tables)

    with_likelihood = error()
    monkeypatch.setattr("ldpstream.mechanisms.families.local_hashing.MAX_SHARPENED_K", 0)
    assert with_likelihood < 0.7 * error()


@pytest.mark.parametrize(("k", "eps", "sharper"), [(20, 0.5, False), (100, 1.0, True)])
def test_a_small_gain_is_left_to_the_inversion(k: int, eps: float, sharper: bool) -> None:
    """One value has 90 %. The sharper shares have 0.97 of the inversion's noise in the first case, and 0.91 in the second."""
    m, f = LocalHashing("OLH", k, eps), np.append(0.9, np.full(k - 1, 0.1 / (k - 1)))
    table = drawn_table(m, np.round(50_000 * f).astype(np.int64), np.random.default_rng(4))
    (seen,), sharp = observations([(m, table)]), m.reading.sharpened(table)
    assert sharp is not None
    assert np.allclose(seen.z, sharp[0]) == sharper
    assert np.allclose(seen.z, m.reading.inversion(table)) != sharper
