"""Packed bit rows: draws the reports of unary encodings, and counts the reports of unary encodings and subsets.

A row of k bits has ⌈k/8⌉ bytes. Bit v of the row is bit v mod 8 (least significant first) of byte ⌊v/8⌋. Padding bits are zero.
"""

import math

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms.arguments import IntArray

Rows = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
MANY_BYTES = 2**15  # from this many bytes of rows on, the compiled loop saves more time than its loading costs


def row_bytes(k: int) -> int:
    return -(-k // 8)


def padding_mask(k: int) -> int:
    """Mask of the bits of a row's last byte that belong to the domain."""
    return (1 << ((k - 1) % 8 + 1)) - 1


def bernoulli_rows(probability: float, n: int, k: int, rng: np.random.Generator) -> Rows:
    """(n, ⌈k/8⌉) rows of k independent bits. Each bit is one with the given probability, to within 2^-64."""
    size = n * row_bytes(k)
    threshold = min(int(probability * 2.0**64), 2**64 - 1)
    if type(rng) is np.random.Generator:
        from ldpstream.mechanisms.random_kernels import LANES, bernoulli_words

        words = np.empty(-(-size // 8), np.uint64)
        bernoulli_words(words, np.uint64(threshold), rng.integers(0, 2**64, (4, LANES), np.uint64))
    else:
        words = _bernoulli_words(threshold, -(-size // 8), rng)
    rows = words.view(np.uint8)[:size].reshape(n, row_bytes(k))
    rows[:, -1] &= padding_mask(k)
    return rows


def _bernoulli_words(threshold: int, size: int, rng: np.random.Generator) -> Words:
    undecided = np.full(size, ~np.uint64(0))
    below = np.zeros(size, np.uint64)
    for place in range(63, -1, -1):
        if threshold % 2 ** (place + 1) == 0 or not undecided.any():
            break
        word = rng.integers(0, 2**64, size, np.uint64)
        if threshold >> place & 1:
            below |= undecided & ~word
            undecided &= word
        else:
            undecided &= ~word
    return below


def set_bits(rows: Rows, values: IntArray, on: npt.NDArray[np.bool_]) -> None:
    """Overwrites bit values[i] of row i with on[i]."""
    if rows.size >= MANY_BYTES:
        from ldpstream.mechanisms.kernels import overwrite_bits

        overwrite_bits(rows, values, on)
        return
    index, byte = np.arange(len(rows)), values >> 3
    bit = (1 << (values & 7)).astype(np.uint8)
    rows[index, byte] = np.where(on, rows[index, byte] | bit, rows[index, byte] & ~bit)


def count_ones(rows: Rows, k: int) -> IntArray:
    """(k,) number of rows in which each bit is set."""
    if rows.size < MANY_BYTES:
        return _count_ones(rows)[:k]
    from ldpstream.mechanisms.kernels import count_bits

    width = row_bytes(k)
    together = 8 // math.gcd(width, 8)
    whole = len(rows) - len(rows) % together
    words = np.ascontiguousarray(rows[:whole]).reshape(-1, together * width).view("<u8")
    counts: IntArray = count_bits(words).reshape(together, -1).sum(axis=0)
    return (counts + _count_ones(rows[whole:]))[:k]


def _count_ones(rows: Rows) -> IntArray:
    ones: IntArray = np.unpackbits(rows, axis=1, bitorder="little").sum(axis=0, dtype=np.int64)
    return ones
