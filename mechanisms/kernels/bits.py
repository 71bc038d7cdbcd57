"""Packed bit rows: draws the reports of unary encodings, and counts the reports of unary encodings and subsets.

A row of k bits has ⌈k/8⌉ bytes. Bit v of the row is bit v mod 8 (least significant first) of byte ⌊v/8⌋. Padding bits are zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from ldpstream.mechanisms.arguments import IntArray
from ldpstream.mechanisms.arrays import np, npt

if TYPE_CHECKING:
    Rows = npt.NDArray[np.uint8]
    Words = npt.NDArray[np.uint64]
MANY_BYTES = 2**15  # from this many bytes of rows on, the compiled loop saves more time than its loading costs
LINE = 2**7  # bytes that the compiled loop counts side by side
PLACES = 8  # binary digits of a probability that are drawn word by word
PART = 2**19  # bytes of rows that are drawn together, half of the second-level cache
ROUNDING = 1e-15
ALL = 2**64 - 1


def row_bytes(k: int) -> int:
    return -(-k // 8)


def padding_mask(k: int) -> int:
    """Mask of the bits of a row's last byte that belong to the domain."""
    return (1 << ((k - 1) % 8 + 1)) - 1


@lru_cache
def plan(share: float, on: bool) -> tuple[float, bool, tuple[np.uint64, ...], np.uint64]:
    """The rest δ, `on`, and the flips and the last flip for `random_kernels.dyadic_words`.

    Draws independent bits that are `on` with probability s. Such a bit is x OR y for independent bits x and y. x is one with
    probability a/2^8, a = ⌊2^8 s⌋, and y with probability δ = (s - a/2^8) / (1 - a/2^8).

    x starts as 0, and takes a random bit w for each binary digit of a, the least significant first. It becomes (NOT w) OR x if
    the digit is 1, and w AND x if it is 0. Both halve the probability of x, and the first adds 1/2. The loop keeps NOT x in
    place of x after a digit 1, so each step is w AND (x XOR flip). A flip has all bits set if the digit differs from the digit
    before it (0 for the first digit). The last flip is that of the result.

    For y, N ~ Poisson(-M ln(1-δ)) uniform and independent places of the M bits are drawn. So each bit is drawn at least once
    with probability δ, independently of the others.
    """
    scaled = math.ldexp(share, PLACES)
    whole = min(int(scaled), 2**PLACES - 1)
    digits = [whole >> place & 1 for place in range(PLACES)]
    flips = tuple(ALL * np.uint64(digit ^ before) for before, digit in pairwise([0, *digits]))
    return (scaled - whole) / (2**PLACES - whole), on, flips, ALL * np.uint64(digits[-1] ^ (not on))


def bernoulli_rows(
    probability: float, n: int, k: int, rng: np.random.Generator, finish: Callable[[Rows, slice], object] | None = None
) -> Rows:
    """(n, ⌈k/8⌉) rows of k independent bits. Each bit is one with the given probability.

    Args:
        finish: called with each part of the rows and its place, while the part is in the processor's cache.
    """
    from ldpstream.mechanisms.kernels.random_kernels import LANES, dyadic_words, scatter

    width = row_bytes(k)
    rest, on, flips, last = min(plan(probability, True), plan(1 - probability, False))
    words, states = np.empty(-(-n * width // 8), np.uint64), rng.integers(0, 2**64, (4, LANES + 1), np.uint64)
    rows, of_places = words.view(np.uint8)[: n * width].reshape(n, width), states[:, LANES].copy()
    together = 8 * max(PART // (8 * width), 1)  # rows of a part; they fill whole words
    for begin in range(0, n, together):
        part = slice(begin, min(begin + together, n))
        of_part = words[begin * width // 8 : -(-part.stop * width // 8)]
        dyadic_words(of_part, flips, last, states)
        scatter(of_part, rng.poisson(-64 * of_part.size * math.log1p(-rest)), on, of_places)
        if k % 8:
            rows[part, -1] &= padding_mask(k)
        if finish:
            finish(rows[part], part)
    return rows


def changed_rows(memos: Rows, p: float, q: float, k: int, rng: np.random.Generator) -> Rows:
    """Rows of k independent bits: one with probability p where the memo has a one, and with probability q elsewhere."""

    def of_memo(rows: Rows, part: slice) -> None:
        if abs(p + q - 1) < ROUNDING:  # ones and zeros flip with the same probability
            rows ^= memos[part]
            return
        ones = bernoulli_rows(p, len(rows), k, rng)
        ones ^= rows
        ones &= memos[part]
        rows ^= ones

    return bernoulli_rows(q, len(memos), k, rng, of_memo)


def set_bits(rows: Rows, values: IntArray, on: npt.NDArray[np.bool_]) -> None:
    """Overwrites bit values[i] of row i with on[i]."""
    from ldpstream.mechanisms.kernels.hash_kernels import overwrite_bits

    overwrite_bits(rows, values, on)


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
