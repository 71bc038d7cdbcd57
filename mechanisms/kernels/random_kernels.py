"""Random bits and random subsets for simulations, drawn by loops that are compiled by Numba.

The generator is SFC64 of Chris Doty-Humphrey's PractRand, as in NumPy, with a state of four words. It is fast but predictable;
devices draw from another source. Import this module only inside functions, because Numba loads slowly.
"""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms.kernels.hash_kernels import ones_of

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
def dyadic_words(out: Words, flips: Any, last: np.uint64, states: Words) -> None:
    """Fills each word with 64 independent bits, from one random word for each flip.

    A bit x starts as 0. For a random bit w and the next flip f, it becomes w & (x ^ f). At the end, `last` flips it. See
    `mechanisms.kernels.bits.plan` for the probability.

    Args:
        out: overwritten.
        flips: a tuple of words, all bits of a word equal.
        last: a word with equal bits.
        states: (4, LANES) one generator in each column; overwritten. Word i comes from column i mod LANES.
    """
    first, second, third, fourth = states[0], states[1], states[2], states[3]
    for begin in range(0, out.size, LANES):
        block = out[begin : begin + LANES]
        for lane in range(block.size):
            a, b, c, n, x = first[lane], second[lane], third[lane], fourth[lane], np.uint64(0)
            for flip in flips:
                word, a, b, c, n = _next(a, b, c, n)
                x = word & (x ^ flip)
            first[lane], second[lane], third[lane], fourth[lane] = a, b, c, n
            block[lane] = x ^ last


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
def settle(rows: Table, memos: Table, overlaps: Table, omega: int, k: int, state: Words) -> None:
    """Changes uniformly drawn bits until each row has overlaps[i] members of memo i, and omega members in all.

    If all sets of a size are equally likely before, so they are after: a uniform member leaves, or a uniform other value joins.
    The order of bits is as in `mechanisms.kernels.bits`.
    """
    for i in range(len(rows)):
        row, memo, members, inside, ones = rows[i], memos[i], np.uint32(0), np.uint32(0), np.uint32(0)
        for j in range(row.size):
            members += np.uint32(ones_of(memo[j]))
        if not 0 < overlaps[i] < members:
            for j in range(row.size):
                row[j] = row[j] | memo[j] if overlaps[i] else row[j] & ~memo[j]
        for j in range(row.size):
            inside += np.uint32(ones_of(row[j] & memo[j]))
            ones += np.uint32(ones_of(row[j]))
        missing_inside = overlaps[i] - np.int64(inside)
        missing = omega - np.int64(ones) - missing_inside
        while missing or missing_inside:
            v = _uniform(k, state)
            at, bit = v >> 3, np.uint8(1 << (v & 7))
            of_memo = memo[at] & bit != 0
            wanted = missing_inside if of_memo else missing
            change = 0 if wanted == 0 or (wanted > 0) == (row[at] & bit != 0) else 1 if wanted > 0 else -1
            if change:
                row[at] ^= bit
            missing_inside, missing = missing_inside - change * of_memo, missing - change * (not of_memo)
