"""Packed bit rows: draws the reports of unary encodings, and counts the reports of unary encodings and subsets.

A row of k bits has ⌈k/8⌉ bytes. Bit v of the row is bit v mod 8 (least significant first) of byte ⌊v/8⌋. Padding bits are zero.
"""

import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms.arguments import IntArray

Rows = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
MANY_BYTES = 2**15  # from this many bytes of rows on, the compiled loop saves more time than its loading costs
ALL = ~np.uint64(0)
PART = 2**19  # bytes of the rows that are drawn together, a part of the second-level cache


def row_bytes(k: int) -> int:
    return -(-k // 8)


def padding_mask(k: int) -> int:
    """Mask of the bits of a row's last byte that belong to the domain."""
    return (1 << ((k - 1) % 8 + 1)) - 1


class BitPlan(NamedTuple):
    """A way of drawing independent bits with probability p, in blocks of M = 2^14 bits.

    A bit is x OR y for independent bits x and y. x is one with probability a/2^8, a = ⌊2^8 p⌋, and y with probability
    δ = (p - a/2^8) / (1 - a/2^8). If δ is smaller for 1-p, the complement is drawn in this way.

    x takes a random bit w for each binary digit of a, the least significant first. It becomes (NOT w) OR x if the digit is 1,
    and w AND x if it is 0. Both operations halve the probability of x, and the first adds 1/2. If a is 0 or 128, the highest
    digit is enough.

    For y, N positions of the block are drawn, uniform and independent, with N ~ Poisson(μ) and μ = -M ln(1-δ). The numbers of
    draws of the M positions are then independent Poisson(μ/M) numbers. So each bit is drawn at least once with probability
    1 - e^{-μ/M} = δ, independently of the others.

    N is drawn from a table of its distribution function, with 128 binary digits a number. So the joint distribution of a block
    differs from that of independent bits with probability p by less than 2^-120 in total variation.

    Attributes:
        flips: for each digit, all ones if the digit differs from the digit before it (0 for the first digit), else 0. The code
            keeps NOT x in place of x after a digit 1, so each step is w AND (x XOR flip).
        last: the flip of the result.
        change: the value that the bits at the N positions get.
        high, low: upper and lower 64 binary digits of 2^128 Pr[N <= 0], 2^128 Pr[N <= 1], …
    """

    flips: tuple[np.uint64, ...]
    last: np.uint64
    change: bool
    high: Words
    low: Words


@lru_cache(maxsize=256)
def plan(probability: float) -> BitPlan:
    """Calculates the plan for a probability. The result is the same on every platform: `decimal` rounds correctly."""
    with localcontext(Context(prec=60)):
        ones = Decimal(probability)
        shares = [(share, min(int(256 * share), 255)) for share in (ones, 1 - ones)]
        rests = [(256 * share - a) / (256 - a) for share, a in shares]
        complement = rests[1] < rests[0]
        a = shares[complement][1]
        mean = -(2**14) * (1 - rests[complement]).ln()
        term = below = (-mean).exp()
        table = []
        while 1 - below > Decimal(2) ** -128:
            table.append(int(below * 2**128))
            term *= mean / len(table)
            below += term
    flips, last = dyadic(a, complement)
    high, low = (np.array([n >> shift & 2**64 - 1 for n in table], np.uint64) for shift in (64, 0))
    return BitPlan(flips, last, not complement, high, low)


def dyadic(a: int, complement: bool = False) -> tuple[tuple[np.uint64, ...], np.uint64]:
    """The flips and the last flip of a `BitPlan` for bits with probability a/2^8, or for their complement."""
    digits = [a >> 7] if a in (0, 128) else [a >> place & 1 for place in range(8)]
    flips = tuple(ALL * np.uint64(digit ^ before) for before, digit in pairwise([0, *digits]))
    return flips, ALL * np.uint64(digits[-1] ^ complement)


def bernoulli_rows(
    probability: float, n: int, k: int, rng: np.random.Generator, finish: Callable[[Rows, slice], object] | None = None
) -> Rows:
    """(n, ⌈k/8⌉) rows of k independent bits. Each bit is one with the given probability, to within 2^-64.

    Args:
        finish: called with each part of the rows and its place, while the part is in the processor's cache.
    """
    from ldpstream.mechanisms.kernels.random_kernels import LANES, bernoulli_words

    width = row_bytes(k)
    words = np.empty(-(-n * width // 8), np.uint64)
    rows = words.view(np.uint8)[: n * width].reshape(n, width)
    states = rng.integers(0, 2**64, (4, LANES + 1), np.uint64)
    together = 8 * max(PART // (8 * width), 1)  # rows of a part; they fill whole words
    for begin in range(0, n, together):
        part = slice(begin, min(begin + together, n))
        of_part = words[begin * width // 8 : -(-part.stop * width // 8)]
        bernoulli_words(of_part, *plan(probability), states)
        if k % 8:
            rows[part, -1] &= padding_mask(k)
        if finish:
            finish(rows[part], part)
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
    together = 8 // math.gcd(width, 8)
    whole = len(rows) - len(rows) % together
    words = np.ascontiguousarray(rows[:whole]).reshape(-1, together * width).view("<u8")
    counts: IntArray = count_bits(words).reshape(together, -1).sum(axis=0)
    return (counts + _count_ones(rows[whole:]))[:k]


def row_ones(rows: Rows) -> IntArray:
    """(n,) number of ones in each row."""
    if rows.size < MANY_BYTES:
        return np.asarray(np.bitwise_count(rows).sum(axis=1, dtype=np.int64))
    from ldpstream.mechanisms.kernels.hash_kernels import count_row_ones

    ones: IntArray = count_row_ones(rows)
    return ones


def _count_ones(rows: Rows) -> IntArray:
    ones: IntArray = np.unpackbits(rows, axis=1, bitorder="little").sum(axis=0, dtype=np.int64)
    return ones
