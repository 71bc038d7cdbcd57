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


@numba.njit(cache=True, inline="always")
def _uniform(limit: int, a: Any, b: Any, c: Any, n: Any) -> Any:
    """A uniform integer in [0, limit), limit < 2^32, without bias (Lemire 2019, 32 bits), 32 more bits, and the new state."""
    bound = np.uint64(limit)
    smallest = (np.uint64(1 << 32) - bound) % bound  # LLVM moves it out of the caller's loop
    while True:
        word, a, b, c, n = _next(a, b, c, n)
        product = (word >> np.uint64(32)) * bound
        if product & np.uint64(0xFFFFFFFF) >= smallest:
            return np.int64(product >> np.uint64(32)), word & np.uint64(0xFFFFFFFF), a, b, c, n


@numba.njit(cache=True)
def scatter(words: Words, draws: int, on: bool, state: Words) -> None:
    """Draws uniform places of bits, one after another, and sets each of these bits to `on`."""
    a, b, c, n = state
    for _ in range(draws):
        at, other, a, b, c, n = _uniform(words.size, a, b, c, n)
        bit = np.uint64(1) << (other & np.uint64(63))
        words[at] = words[at] | bit if on else words[at] & ~bit
    state[:] = a, b, c, n


@numba.njit(cache=True)
def settle(rows: Table, memos: Table, overlaps: Table, omega: int, k: int, state: Words) -> None:
    """Changes uniformly drawn bits until each row has overlaps[i] members of memo i, and omega members in all.

    If all sets of a size are equally likely before, so they are after: a uniform member leaves, or a uniform other value joins.
    The order of bits is as in `mechanisms.kernels.bits`.
    """
    a, b, c, n = state
    for i in range(len(rows)):
        row, memo, inside, ones = rows[i], memos[i], np.uint32(0), np.uint32(0)
        for j in range(row.size):
            inside += np.uint32(ones_of(row[j] & memo[j]))
            ones += np.uint32(ones_of(row[j]))
        missing_inside = overlaps[i] - np.int64(inside)
        for part in range(2):
            missing = omega - np.int64(ones) - missing_inside if part else missing_inside
            beside, joins, left = np.uint8(255 * part), np.uint8(255 * (missing > 0)), abs(missing)
            while left:  # without branches inside, which a processor would often predict wrongly
                v, _, a, b, c, n = _uniform(k, a, b, c, n)
                at = np.uint64(v >> 3)
                change = (memo[at] ^ beside) & (row[at] ^ joins) & np.uint8(1 << (v & 7))
                row[at] ^= change
                left -= np.int64(change != 0)
