"""Packed bit rows: how the reports of unary encodings and subsets are drawn and counted.

A row of k bits takes ⌈k/8⌉ bytes; bit v is bit v mod 8 (least significant first) of byte ⌊v/8⌋; padding bits are zero.
"""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from mechanisms.arguments import IntArray

Rows = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
_BLOCK_BYTES = 2**20
_WIDE_BYTES = 2**14  # of a row: up to here 15 are unpacked at once, so that the sums of 15 times eight fit a byte


def row_bytes(k: int) -> int:
    """Bytes of a row of k bits."""
    return -(-k // 8)


def padding_mask(k: int) -> int:
    """The bits of a row's last byte that belong to the domain."""
    return (1 << ((k - 1) % 8 + 1)) - 1


def bernoulli_rows(probability: float, n: int, k: int, rng: np.random.Generator) -> Rows:
    """(n, ⌈k/8⌉) rows of k independent bits, each one with the probability (to within 2^-64, far below a test's reach).

    A NumPy generator only seeds the compiled loop's own, which is fast and good for simulation but can be predicted. From
    any other source (a subclass of `numpy.random.Generator`: a device's cryptographic one) every random bit is drawn itself.
    """
    size = n * row_bytes(k)
    threshold = min(int(probability * 2.0**64), 2**64 - 1)
    if type(rng) is np.random.Generator:
        from mechanisms.kernels import bernoulli_words

        words = np.empty(-(-size // 8), np.uint64)
        bernoulli_words(words, np.uint64(threshold), rng.integers(0, 2**64, 4, np.uint64))
    else:
        words = _bernoulli_words(threshold, -(-size // 8), rng)
    rows = words.view(np.uint8)[:size].reshape(n, row_bytes(k))
    rows[:, -1] &= padding_mask(k)
    return rows


def _bernoulli_words(threshold: int, size: int, rng: np.random.Generator) -> Words:
    """What `kernels.bernoulli_words` does, with all random words from rng."""
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
    """Overwrite bit values[i] of row i with on[i]."""
    index, byte = np.arange(len(rows)), values >> 3
    bit = (1 << (values & 7)).astype(np.uint8)
    rows[index, byte] = np.where(on, rows[index, byte] | bit, rows[index, byte] & ~bit)


def count_ones(rows: Rows, k: int) -> IntArray:
    """(k,) how many rows have each bit set.

    As many rows as make whole words are taken for one long row, whose parts are added up at the end; so nothing is padded.
    """
    width = row_bytes(k)
    together = 8 // math.gcd(width, 8)
    whole = len(rows) - len(rows) % together
    counts: IntArray = np.unpackbits(rows[whole:], axis=1, bitorder="little").sum(axis=0, dtype=np.int64)
    words = np.ascontiguousarray(rows[:whole]).reshape(-1, together * width).view(np.uint64)
    block = max(_BLOCK_BYTES // (together * width), 64)
    few = 2 if together * width > _WIDE_BYTES else 15
    for start in range(0, len(words), block):
        for weight, left in enumerate(_carry_save(words[start : start + block], few)):
            bits = np.unpackbits(left.view(np.uint8), axis=1, bitorder="little").reshape(-1, 8 * width)
            counts += bits.sum(axis=0, dtype=np.uint8).astype(np.int64) << weight
    return counts[:k]


def _carry_save(level: Words, few: int) -> Iterator[Words]:
    """At most `few` >= 2 rows of words for each weight 1, 2, 4, …: bit by bit, their weighted sum is how many rows have it set.

    A tree of carry-save adders: three words of weight w become one of weight w and one of weight 2w by five bitwise
    operations, so a bit costs a fraction of an operation. Harley and Seal's method, see Warren, Hacker's Delight, §5-2.
    """
    width = level.shape[1]
    spare = np.empty((len(level) // 3, width), np.uint64)
    own = False  # the rows that came must stay as they are; those made here are overwritten
    while len(level):
        carries, made = np.empty((len(level) // 2, width), np.uint64), 0
        while len(level) > few:
            third, left = divmod(len(level), 3)
            a, b, c = level[left : left + third], level[left + third : left + 2 * third], level[left + 2 * third :]
            carry, differ = carries[made : made + third], spare[:third]
            np.bitwise_and(a, b, out=carry)
            np.bitwise_xor(a, b, out=differ)
            level = level[: left + third] if own else np.concatenate((level[:left], a))
            own, made = True, made + third
            np.bitwise_xor(differ, c, out=level[left:])
            np.bitwise_and(differ, c, out=differ)
            np.bitwise_or(carry, differ, out=carry)
        yield level
        level, own = carries[:made], True
