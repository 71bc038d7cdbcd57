"""Random bits and random subsets for simulations, drawn by loops that are compiled by Numba.

The generator is SFC64 of Chris Doty-Humphrey's PractRand, as in NumPy, with a state of four words. It is fast but predictable;
devices draw from another source. Import this module only inside functions, because Numba loads slowly.
"""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Table = npt.NDArray[Any]

LANES = 32  # independent generators that work side by side, so that one instruction serves several of them


@numba.njit(cache=True, inline="always")
def _next(a: Any, b: Any, c: Any, n: Any) -> Any:
    word = a + b + n
    return (
        word,
        b ^ (b >> np.uint64(11)),
        c + (c << np.uint64(3)),
        (c << np.uint64(24) | c >> np.uint64(40)) + word,
        n + np.uint64(1),
    )


@numba.njit(cache=True)
def bernoulli_words(out: Words, flips: Words, last: np.uint64, states: Words) -> None:
    """Fills each word with 64 independent bits, from one random word for each flip.

    A bit x starts as 0. For a random bit w and the next flip f, it becomes w & (x ^ f). At the end, `last` flips it. See
    `mechanisms.kernels.bits.plan` for the probability.

    Args:
        out: overwritten.
        flips: words, all bits of a word equal.
        last: a word with equal bits.
        states: (4, LANES) one generator in each column; overwritten. Word i comes from column i mod LANES.
    """
    first, second, third, fourth = states[0], states[1], states[2], states[3]
    for begin in range(0, out.size, LANES):
        block = out[begin : begin + LANES]
        block[:] = 0
        for flip in flips:
            for lane in range(block.size):
                word, first[lane], second[lane], third[lane], fourth[lane] = _next(
                    first[lane], second[lane], third[lane], fourth[lane]
                )
                block[lane] = word & (block[lane] ^ flip)
        block ^= last


@numba.njit(cache=True)
def _uniform(limit: int, state: Words) -> np.int64:
    """A uniform integer in [0, limit), limit < 2^32, without bias (Lemire 2019, 32 bits)."""
    bound, low_bits, smallest = np.uint64(limit), np.uint64(0xFFFFFFFF), np.uint64(0)
    while True:
        word, state[0], state[1], state[2], state[3] = _next(state[0], state[1], state[2], state[3])
        product = (word >> np.uint64(32)) * bound
        low = product & low_bits
        if low < bound and not smallest:  # otherwise `low` is large enough without the slow remainder
            smallest = (np.uint64(1 << 32) - bound) % bound
        if low >= smallest:
            return np.int64(product >> np.uint64(32))


@numba.njit(cache=True)
def members_of(memos: Table, overlaps: Table, omega: int, k: int, rows: Table, state: Words) -> None:
    """Writes a subset of size omega to each row: overlaps[i] uniform members of memo i, and uniform other values.

    The rows must be zero at first; the order of bits is as in `mechanisms.kernels.bits`.
    """
    order = np.empty(k, np.int64)
    for i in range(len(memos)):
        inside, outside = 0, k  # the memo's members come first, the other values last
        for v in range(k):
            if memos[i, v >> 3] >> (v & 7) & 1:
                order[inside] = v
                inside += 1
            else:
                outside -= 1
                order[outside] = v
        overlap = overlaps[i]
        for n in range(omega):  # a partial shuffle of Fisher and Yates of either part
            first, end = (n, inside) if n < overlap else (inside + n - overlap, k)
            drawn = first + _uniform(end - first, state)
            v = order[drawn]
            order[drawn] = order[first]
            rows[i, v >> 3] |= 1 << (v & 7)
