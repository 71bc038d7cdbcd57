"""Packed bit rows have exactly the stated probabilities and are counted without error."""

from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ldpstream.mechanisms.bits import _bernoulli_words, bernoulli_rows, count_ones, padding_mask, row_bytes, set_bits
from ldpstream.mechanisms.random_kernels import LANES, bernoulli_words

MASK = 2**64 - 1
SEED = (1, 2, 3, 4)
THRESHOLDS = (0, 1, 2, 3, 2**62, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1, 0x5555555555555555, 2**40)


class Other(np.random.Generator):
    """A subclass of NumPy's generator: `bernoulli_rows` draws every bit from this subclass."""


def generator(kind: str, seed: int) -> np.random.Generator:
    return np.random.default_rng(seed) if kind == "compiled" else Other(np.random.PCG64(seed))


each_path = pytest.mark.parametrize("kind", ["compiled", "drawn"])


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
        with mock.patch("ldpstream.mechanisms.bits.MANY_BYTES", many):
            assert count_ones(rows, k).tolist() == bits.sum(axis=0).tolist()
    assert np.array_equal(rows, before)


@pytest.mark.parametrize(("n", "k"), [(1_100_000, 1), (600_000, 9), (20_000, 1000), (300, 100_003)])
def test_count_ones_is_exact_for_many_rows_and_views(n: int, k: int) -> None:
    rows = np.random.default_rng(k).integers(0, 256, (n, row_bytes(k)), np.uint8)
    sealed = np.frombuffer(rows.tobytes(), np.uint8).reshape(rows.shape)  # this array is read-only
    for view in (rows, sealed, rows[::-3], rows[:, ::-1][:, ::-1], np.asfortranarray(rows), np.full_like(rows, 255)):
        expected = np.unpackbits(view, axis=1, count=k, bitorder="little").sum(axis=0, dtype=np.int64)
        assert np.array_equal(count_ones(view, k), expected)


@given(st.integers(1, 100), st.data())
def test_set_bits_changes_only_the_given_bits(k: int, data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 20))
    values = np.array(data.draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n)), np.int64)
    on = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool)
    bits = np.random.default_rng(n).random((n, k)) < 0.5
    rows = np.packbits(bits, axis=1, bitorder="little")
    bits[np.arange(n), values] = on
    for many in (0, 2**15):  # the first limit selects the compiled loop, the second NumPy
        changed = rows.copy()
        with mock.patch("ldpstream.mechanisms.bits.MANY_BYTES", many):
            set_bits(changed, values, on)
        assert np.array_equal(np.unpackbits(changed, axis=1, count=k, bitorder="little"), bits)


# ---- drawing


def xoshiro(count: int, seed: tuple[int, ...] = SEED) -> list[int]:
    """xoshiro256++ in Python integers, from Blackman and Vigna's description."""

    def rotate(x: int, by: int) -> int:
        return (x << by | x >> (64 - by)) & MASK

    a, b, c, d = seed
    out = []
    for _ in range(count):
        out.append((rotate((a + d) & MASK, 23) + a) & MASK)
        a, b, c, d = a ^ b ^ d, a ^ b ^ c, c ^ a ^ (b << 17 & MASK), rotate(d ^ b, 45)
    return out


def test_the_generator_is_xoshiro256plusplus() -> None:
    """Compares the first outputs for the state 1, 2, 3, 4 with outputs of Rust's rand_xoshiro and of the authors' C program."""
    assert xoshiro(4) == [41943041, 58720359, 3588806011781223, 3591011842654386]
    words = np.empty(4 * LANES, np.uint64)
    draw(words, 2**63)  # a threshold with one binary digit: each bit is the complement of the first of ten random words
    assert [MASK ^ int(word) for word in words[::LANES]] == xoshiro(40)[::10]


def draw(words: npt.NDArray[np.uint64], threshold: int, seed: tuple[int, ...] = SEED) -> None:
    """Calls the compiled loop. Only the first lane has the seed."""
    states = np.random.default_rng(0).integers(0, 2**64, (4, LANES), np.uint64)
    states[:, 0] = seed
    bernoulli_words(words, np.uint64(threshold), states)


class Recorded(np.random.Generator):
    """A source that returns recorded words, one array for each call."""

    def __init__(self, words: list[int], size: int) -> None:
        super().__init__(np.random.PCG64(0))
        self.calls = iter(np.array(words, np.uint64).reshape(-1, size))

    def integers(self, *_: Any, **__: Any) -> Any:
        return next(self.calls)


@settings(max_examples=150)
@given(st.integers(0, MASK), st.tuples(*[st.integers(1, MASK)] * 4))
@example(0, SEED)
@example(1, SEED)
@example(MASK, SEED)
@example(2**63, SEED)
def test_a_bit_is_one_if_its_number_is_below_the_threshold(threshold: int, seed: tuple[int, int, int, int]) -> None:
    """Tests that the comparison with the threshold is exact. Bit j of the i-th random word is digit i of lane j's uniform
    number."""
    words = xoshiro(64, seed)
    uniform = [sum((word >> lane & 1) << (63 - i) for i, word in enumerate(words)) for lane in range(64)]
    expected = sum((u < threshold) << lane for lane, u in enumerate(uniform))
    compiled = np.empty(1, np.uint64)
    draw(compiled, threshold, seed)
    assert int(compiled[0]) == expected
    assert int(_bernoulli_words(threshold, 1, Recorded(words, 1))[0]) == expected


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_numbers_next_to_the_threshold_are_compared_exactly(threshold: int) -> None:
    """Tries the numbers up to 32 below and above the threshold. Random draws would never reach these numbers."""
    uniform = [(threshold + lane - 32) & MASK for lane in range(64)]
    words = [sum((u >> (63 - i) & 1) << lane for lane, u in enumerate(uniform)) for i in range(64)]
    expected = sum((u < threshold) << lane for lane, u in enumerate(uniform))
    assert int(_bernoulli_words(threshold, 1, Recorded(words, 1))[0]) == expected


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_both_paths_have_the_stated_share_of_ones(threshold: int) -> None:
    """Makes 2 × 12 comparisons with the exact mean at 6 standard deviations; the false-alarm rate is 5e-8.

    The expected number of ones is 0.08 for the threshold 2^40. There, six ones have a chance of 3e-10, and fewer are accepted.
    """
    size = 20_000
    compiled = np.empty(size, np.uint64)
    draw(compiled, threshold, (11, 12, 13, 14))
    for words in (compiled, _bernoulli_words(threshold, size, np.random.default_rng(1))):
        ones, mean = int(np.bitwise_count(words).sum()), 64 * size * threshold / 2**64
        tail = 4 if threshold == 2**40 else 1e-6 * (threshold < 2**40)
        assert abs(ones - mean) <= 6 * np.sqrt(mean * (1 - threshold / 2**64)) + tail


def test_each_lane_is_a_generator_of_its_own() -> None:
    """A word is the same whatever the other lanes do, also if it continues beyond ten digits and in a last, shorter block."""
    rng, threshold = np.random.default_rng(3), np.uint64(0x5555555555555555)
    states, words = rng.integers(0, 2**64, (4, LANES), np.uint64), np.empty(300 * LANES + 5, np.uint64)
    others = rng.integers(0, 2**64, (4, LANES), np.uint64)
    others[:, 3], again = states[:, 3], np.empty_like(words)
    bernoulli_words(words, threshold, states)
    bernoulli_words(again, threshold, others)
    np.testing.assert_array_equal(words[3::LANES], again[3::LANES])
    assert not np.array_equal(words, again)


@each_path
@pytest.mark.parametrize("k", [1, 7, 8, 9, 64, 65, 200])
@pytest.mark.parametrize("n", [0, 1, 5])
def test_certain_bits_and_padding_are_exact(kind: str, k: int, n: int) -> None:
    rng = generator(kind, 5)
    assert not bernoulli_rows(0.0, n, k, rng).any()
    ones = bernoulli_rows(1.0, n, k, rng)
    assert ones.shape == (n, row_bytes(k))
    assert count_ones(ones, k).tolist() == [n] * k
    for rows in (ones, bernoulli_rows(0.5, n, k, rng)):
        assert not (rows[:, -1] & ~np.uint8(padding_mask(k))).any()
    assert padding_mask(k) == sum(1 << (v % 8) for v in range(k - (k - 1) % 8 - 1, k))


@each_path
@pytest.mark.parametrize("probability", [0.5, 1e-4, 1 - 1e-4, 0.1, 2.0**-20, 0.7310585786300049])
def test_all_lanes_have_the_stated_share_and_are_independent(kind: str, probability: float) -> None:
    """Each of the 64 lanes (bit positions of a word) has the stated share of ones. Neighbouring bits and words are
    uncorrelated.

    The test compares 6 × 2 × 64 × 3 scores with 7 standard deviations (12 more for the Poisson tails of rare bits). The
    false-alarm rate is below 1e-8.
    """
    n = 40_000
    rows = bernoulli_rows(probability, n, 64, generator(kind, 20240609))
    bits = np.unpackbits(rows, axis=1, bitorder="little").astype(float)

    def close(counts: npt.NDArray[np.float64], share: float, trials: int, shared: float = 0.0) -> bool:
        deviation = 7 * np.sqrt(trials * (share * (1 - share) + shared))
        return bool((np.abs(counts - trials * share) <= deviation + 12).all())

    assert close(bits.sum(axis=0), probability, n)
    assert close((bits * np.roll(bits, 1, axis=1)).sum(axis=0), probability**2, n)
    shared = 2 * probability**3 * (1 - probability)  # two neighbouring products have one bit in common
    assert close((bits[1:] * bits[:-1]).sum(axis=0), probability**2, n - 1, shared)
    if 0.01 < probability < 0.99:
        assert not close(bits.sum(axis=0), probability * 1.1, n)
        assert not close((bits * bits).sum(axis=0), probability**2, n)


def test_a_device_source_provides_every_random_bit() -> None:
    """A device's cryptographic generator must provide every bit, not only the seed of a predictable generator."""
    asked = []

    class Counting(np.random.Generator):
        def integers(self, *arguments: Any, **named: Any) -> Any:
            out = super().integers(*arguments, **named)
            asked.append(np.size(out))
            return out

    bernoulli_rows(0.3, 1, 1000, Counting(np.random.PCG64(1)))
    assert sum(asked) >= 5 * 1000 / 64  # to compare 64 bits with the threshold takes more than five words on average
