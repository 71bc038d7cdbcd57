"""Packed bit rows: draws the reports of unary encodings, and counts the reports of unary encodings and subsets.

A row of k bits has ⌈k/8⌉ bytes. Bit v of the row is bit v mod 8 (least significant first) of byte ⌊v/8⌋. Padding bits are zero.
"""

import math
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms.arguments import IntArray

Rows = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
MANY_BYTES = 2**15  # from this many bytes of rows on, the compiled loop saves more time than its loading costs
LINE = 2**7  # bytes that the compiled loop counts side by side
PLACES = 12  # binary digits of a probability that are drawn word by word
ALL = ~np.uint64(0)


def row_bytes(k: int) -> int:
    return -(-k // 8)


def padding_mask(k: int) -> int:
    """Mask of the bits of a row's last byte that belong to the domain."""
    return (1 << ((k - 1) % 8 + 1)) - 1


def plan(share: float) -> tuple[tuple[np.uint64, ...], np.uint64, float]:
    """The flips and the last flip for `random_kernels.dyadic_words`, and the rest δ.

    A bit with probability s is x OR y for independent bits x and y. x is one with probability a/2^12, a = ⌊2^12 s⌋, and y with
    probability δ = (s - a/2^12) / (1 - a/2^12).

    x starts as 0, and takes a random bit w for each binary digit of a, the least significant first. It becomes (NOT w) OR x if
    the digit is 1, and w AND x if it is 0. Both halve the probability of x, and the first adds 1/2. The loop keeps NOT x in
    place of x after a digit 1, so each step is w AND (x XOR flip). A flip has all bits set if the digit differs from the digit
    before it (0 for the first digit). The last flip is that of the result.
    """
    scaled = math.ldexp(share, PLACES)
    whole = int(scaled)
    digits = [whole >> place & 1 for place in range(PLACES)]
    flips = tuple(ALL * np.uint64(digit ^ before) for before, digit in pairwise([0, *digits]))
    return flips, ALL * np.uint64(digits[-1]), (scaled - whole) / (2**PLACES - whole)


def bernoulli_rows(probability: float, n: int, k: int, rng: np.random.Generator) -> Rows:
    """(n, ⌈k/8⌉) rows of k independent bits. Each bit is one with the given probability."""
    from ldpstream.mechanisms.kernels.random_kernels import LANES, dyadic_words

    width, complement = row_bytes(k), probability > 0.5
    flips, last, rest = plan(1 - probability if complement else probability)
    words = np.empty(-(-n * width // 8), np.uint64)
    dyadic_words(words, flips, ~last if complement else last, rng.integers(0, 2**64, (4, LANES), np.uint64))
    octets = words.view(np.uint8)
    places = rng.choice(8 * octets.size, rng.binomial(8 * octets.size, rest), replace=False, shuffle=False)
    bits = (1 << (places & 7)).astype(np.uint8)
    if complement:
        np.bitwise_and.at(octets, places >> 3, ~bits)
    else:
        np.bitwise_or.at(octets, places >> 3, bits)
    rows = octets[: n * width].reshape(n, width)
    rows[:, -1] &= padding_mask(k)
    return rows


def set_bits(rows: Rows, values: IntArray, on: npt.NDArray[np.bool_]) -> None:
    """Overwrites bit values[i] of row i with on[i]."""
    if rows.size >= MANY_BYTES:
        from ldpstream.mechanisms.kernels.hash_kernels import overwrite_bits

        overwrite_bits(rows, values, on)
        return
    index, byte = np.arange(len(rows)), values >> 3
    bit = (1 << (values & 7)).astype(np.uint8)
    rows[index, byte] = np.where(on, rows[index, byte] | bit, rows[index, byte] & ~bit)


def count_ones(rows: Rows, k: int) -> IntArray:
    """(k,) number of rows in which each bit is set."""
    if rows.size < MANY_BYTES:
        return _count_ones(rows)[:k]
    from ldpstream.mechanisms.kernels.hash_kernels import count_bits

    width = row_bytes(k)
    together = math.lcm(8, width) // width * max(LINE // width, 1)  # rows that fill whole words, and a long loop
    whole = len(rows) - len(rows) % together
    words = np.ascontiguousarray(rows[:whole]).reshape(-1, together * width).view("<u8")
    counts: IntArray = count_bits(words).reshape(together, -1).sum(axis=0)
    return (counts + _count_ones(rows[whole:]))[:k]


def row_ones(rows: Rows) -> IntArray:
    """(n,) number of ones in each row."""
    if rows.size < MANY_BYTES:
        return np.asarray(np.bitwise_count(rows).sum(axis=1, dtype=np.int64))
    from ldpstream.mechanisms.kernels.hash_kernels import count_row_ones

    return np.asarray(count_row_ones(rows))


def _count_ones(rows: Rows) -> IntArray:
    ones: IntArray = np.unpackbits(rows, axis=1, bitorder="little").sum(axis=0, dtype=np.int64)
    return ones
