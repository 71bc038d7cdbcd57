"""Packed bit rows have exactly the stated probabilities and are counted without error."""

from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ldpstream.mechanisms.kernels.bits import bernoulli_rows, count_ones, padding_mask, plan, row_bytes, row_ones, set_bits
from ldpstream.mechanisms.kernels.random_kernels import LANES, dyadic_words

MASK = 2**64 - 1


# ---- counting


@settings(max_examples=150)
@given(st.integers(0, 400), st.integers(1, 300), st.sampled_from([0.0, 0.02, 0.5, 1.0]), st.integers(0, 2**32))
@example(0, 1, 0.5, 0)
@example(1, 64, 1.0, 0)
@example(2, 65, 1.0, 0)
@example(3, 8, 1.0, 0)
@example(4, 300, 1.0, 0)
def test_count_ones_is_the_sum_of_the_bits(n: int, k: int, density: float, seed: int) -> None:
    bits = np.random.default_rng(seed).random((n, k)) < density
    rows = np.packbits(bits, axis=1, bitorder="little")
    before = rows.copy()
    for many in (0, 2**15):  # the first limit selects the compiled loop, the second NumPy
        with mock.patch("ldpstream.mechanisms.kernels.bits.MANY_BYTES", many):
            assert count_ones(rows, k).tolist() == bits.sum(axis=0).tolist()
            assert row_ones(rows).tolist() == bits.sum(axis=1).tolist()
    assert np.array_equal(rows, before)


@pytest.mark.parametrize(("n", "k"), [(1_100_000, 1), (600_000, 9), (20_000, 1000), (300, 100_003)])
def test_count_ones_is_exact_for_many_rows_and_views(n: int, k: int) -> None:
    rows = np.random.default_rng(k).integers(0, 256, (n, row_bytes(k)), np.uint8)
    sealed = np.frombuffer(rows.tobytes(), np.uint8).reshape(rows.shape)  # this array is read-only
    for view in (rows, sealed, rows[::-3], rows[:, ::-1][:, ::-1], np.asfortranarray(rows), np.full_like(rows, 255)):
        expected = np.unpackbits(view, axis=1, count=k, bitorder="little").sum(axis=0, dtype=np.int64)
        assert np.array_equal(count_ones(view, k), expected)
        assert np.array_equal(row_ones(view), np.bitwise_count(view).sum(axis=1, dtype=np.int64))


@given(st.integers(1, 100), st.data())
def test_set_bits_changes_only_the_given_bits(k: int, data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 20))
    values = np.array(data.draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n)), np.int64)
    on = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool)
    bits = np.random.default_rng(n).random((n, k)) < 0.5
    rows = np.packbits(bits, axis=1, bitorder="little")
    bits[np.arange(n), values] = on
    set_bits(rows, values, on)
    assert np.array_equal(np.unpackbits(rows, axis=1, count=k, bitorder="little"), bits)


# ---- drawing


def sfc64(count: int, state: Any) -> list[int]:
    """Words of NumPy's SFC64 from a state of four words."""
    source = np.random.SFC64()
    source.state = source.state | {"state": {"state": np.array(state, np.uint64)}}
    return [int(word) for word in source.random_raw(count)]


@pytest.mark.parametrize("probability", [0.0, 0.25, 0.5, 0.3310585786300049])
def test_the_compiled_loop_folds_the_words_of_sfc64(probability: float) -> None:
    """Each lane folds the words of its own generator, also in the last, shorter block."""
    seeds, words = np.random.default_rng(1).integers(0, 2**64, (4, LANES), np.uint64), np.empty(2 * LANES + 3, np.uint64)
    _, _, flips, last = plan(probability, True)
    dyadic_words(words, flips, last, seeds.copy())
    for i, word in enumerate(words):
        lane, turn = i % LANES, i // LANES
        x = 0
        for drawn, flip in zip(sfc64(len(flips) * (turn + 1), seeds[:, lane])[len(flips) * turn :], flips, strict=True):
            x = drawn & (x ^ int(flip))
        assert int(word) == x ^ int(last)


PLANNED = (0.0, 1e-300, 2.0**-60, 1e-4, 0.003, 0.1, 0.25, 0.2689414213699951, 0.4999, 0.5)


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("probability", PLANNED)
def test_a_plan_has_the_given_probability(probability: float, on: bool) -> None:
    """Computes the probability of a bit step by step, as a fraction."""
    rest, scattered, flips, last = plan(probability, on)
    assert scattered == on
    assert {0, MASK} >= {int(flip) for flip in (*flips, last)}
    one = Fraction(0)
    for flip in flips:
        one = (1 - one if flip else one) / 2
    found = one if bool(last) != on else 1 - one
    assert float(found + (1 - found) * Fraction(rest)) == pytest.approx(probability, rel=1e-12)
    assert rest <= 2.0**-7


@pytest.mark.parametrize("k", [1, 7, 8, 9, 64, 65, 200])
@pytest.mark.parametrize("n", [0, 1, 5])
def test_certain_bits_and_padding_are_exact(k: int, n: int) -> None:
    rng = np.random.default_rng(5)
    assert not bernoulli_rows(0.0, n, k, rng).any()
    ones = bernoulli_rows(1.0, n, k, rng)
    assert ones.shape == (n, row_bytes(k))
    assert count_ones(ones, k).tolist() == [n] * k
    for rows in (ones, bernoulli_rows(0.5, n, k, rng)):
        assert not (rows[:, -1] & ~np.uint8(padding_mask(k))).any()
    assert padding_mask(k) == sum(1 << (v % 8) for v in range(k - (k - 1) % 8 - 1, k))


@pytest.mark.parametrize("probability", [0.5, 1e-4, 1 - 1e-4, 0.1, 2.0**-20, 0.7310585786300049])
def test_all_lanes_have_the_stated_share_and_are_independent(probability: float) -> None:
    """Each of the 64 lanes (bit positions of a word) has the stated share of ones. Neighbouring bits and words are
    uncorrelated.

    The test compares 6 × 2 × 64 × 3 scores with 7 standard deviations (12 more for the Poisson tails of rare bits). The
    false-alarm rate is below 1e-8.
    """
    n = 80_000  # more than are drawn in one part
    rows = bernoulli_rows(probability, n, 64, np.random.default_rng(20240609))
    bits = np.unpackbits(rows, axis=1, bitorder="little").astype(float)

    def close(counts: npt.NDArray[np.float64], share: float, trials: int, shared: float = 0.0) -> bool:
        deviation = 7 * np.sqrt(trials * (share * (1 - share) + shared))
        return bool((np.abs(counts - trials * share) <= deviation + 12).all())

    assert close(bits.sum(axis=0), probability, n)
    assert close((bits * np.roll(bits, 1, axis=1)).sum(axis=0), probability**2, n)
    shared = 2 * probability**3 * (1 - probability)  # two neighbouring products have one bit in common
    assert close((bits[1:] * bits[:-1]).sum(axis=0), probability**2, n - 1, shared)
    if 0.01 < probability < 0.99:
        assert not np.array_equal(rows[:100], rows[2**16 :][:100])  # the first rows of two parts
        assert not close(bits.sum(axis=0), probability * 1.1, n)
        assert not close((bits * bits).sum(axis=0), probability**2, n)
