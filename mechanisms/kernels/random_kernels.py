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
BLOCK = 2**8  # words; a block has 2^14 bits, so 14 random bits are a uniform position
ROWS_BLOCK = 2**11  # words of a block of subsets: 16 KiB, half of the first-level cache
SPARSE = 16  # a subset of fewer than k / 16 values is drawn value by value


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
    `mechanisms.kernels.bits.BitPlan` for the probability.

    Args:
        out: overwritten.
        flips: a tuple of words, all bits of a word equal.
        last: a word with equal bits.
        states: (4, at least LANES) one generator in each column; overwritten. Word i comes from column i mod LANES.
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
def bernoulli_words(out: Words, flips: Any, last: np.uint64, change: Any, high: Words, low: Words, states: Words) -> None:
    """Fills each word with 64 independent bits with the probability of a plan.

    Args:
        out: overwritten.
        flips, last, change, high, low: as in `mechanisms.kernels.bits.BitPlan`.
        states: (4, LANES + 1) one generator in each column; overwritten. The last generator draws the changes.
    """
    a, b, c, n = states[0, LANES], states[1, LANES], states[2, LANES], states[3, LANES]
    for begin in range(0, out.size, BLOCK):
        block = out[begin : begin + BLOCK]
        dyadic_words(block, flips, last, states)
        if not high.size:
            continue
        u, a, b, c, n = _next(a, b, c, n)
        v, a, b, c, n = _next(a, b, c, n)
        changes = 0
        while changes < high.size and (u > high[changes] or (u == high[changes] and v >= low[changes])):
            changes += 1
        word = np.uint64(0)
        for i in range(changes):
            if i % 4 == 0:
                word, a, b, c, n = _next(a, b, c, n)
            at, bit = np.int64(word >> np.uint64(6) & np.uint64(BLOCK - 1)), np.uint64(1) << (word & np.uint64(63))
            if at < block.size:
                block[at] = block[at] | bit if change else block[at] & ~bit
            word >>= np.uint64(16)
    states[0, LANES], states[1, LANES], states[2, LANES], states[3, LANES] = a, b, c, n


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
def few_members(values: Table, with_value: Table, omega: int, k: int, rows: Table, state: Words) -> None:
    """Writes a uniform subset of size omega to each row. Subset i contains values[i] if and only if with_value[i] is true.

    Floyd's algorithm (Bentley and Floyd 1987) draws the other members from 0 … k-2. The rows must be zero at first; the order
    of bits is as in `mechanisms.kernels.bits`.
    """
    for i in range(values.size):
        value = values[i]
        others = omega - 1 if with_value[i] else omega
        for j in range(k - 1 - others, k - 1):
            drawn = _uniform(j + 1, state)
            bit = k - 1 if drawn == value else drawn
            if rows[i, bit >> 3] >> (bit & 7) & 1:
                bit = k - 1 if j == value else j
            rows[i, bit >> 3] |= 1 << (bit & 7)
        if with_value[i]:
            rows[i, value >> 3] |= 1 << (value & 7)


@numba.njit(cache=True)
def many_members(
    values: Table, with_value: Table, omega: int, k: int, rows: Table, flips: Any, last: np.uint64, states: Words
) -> None:
    """Does the same as `few_members`, by another method.

    Independent bits with a common probability are, given the number of ones, a uniform subset of that size. The subset stays
    uniform if a uniformly drawn member is removed, or a uniformly drawn other value is added. A probability near omega / k
    therefore needs few changes.

    Args:
        values, with_value, omega, k, rows: as in `few_members`.
        flips, last, states: as in `dyadic_words`, for a probability near omega / k.
    """
    width, together = (k + 63) // 64, max(ROWS_BLOCK // ((k + 63) // 64), 1)
    words, numbers = np.empty((together, width), np.uint64), np.empty(BLOCK, np.uint64)
    end, inside = (k - 1) // 64, (np.uint64(1) << np.uint64((k - 1) % 64)) - np.uint64(1)
    bound, one, low_bits = np.uint64(k - 1), np.uint64(1), np.uint64(0xFFFFFFFF)
    smallest = (np.uint64(1 << 32) - bound) % bound
    used = BLOCK
    for begin in range(0, values.size, together):
        block = words[: min(together, values.size - begin)]
        dyadic_words(block.reshape(block.size), flips, last, states)
        for i in range(len(block)):
            row, value, own = block[i], values[begin + i], with_value[begin + i]
            row[end] &= inside  # members are drawn from 0 … k-2, in which k-1 replaces the person's own value
            ones = np.uint64(0)
            for word in row:
                ones += ones_of(word)
            missing: Any = (omega - 1 if own else omega) - np.int64(ones)
            while missing:
                if used == BLOCK:
                    dyadic_words(numbers, (~np.uint64(0),), np.uint64(0), states)
                    used = 0
                product = (numbers[used] >> np.uint64(32)) * bound
                used += 1
                if (product & low_bits) < smallest:  # without bias, as in `_uniform`
                    continue
                place = np.int64(product >> np.uint64(32))
                at, bit = place >> 6, np.uint64(place & 63)
                member = np.int64(row[at] >> bit & one)
                if missing > 0:
                    row[at] |= one << bit
                    missing -= 1 - member
                else:
                    row[at] &= ~(one << bit)
                    missing += member
            at, bit = value >> 6, np.uint64(value & 63)
            replaced = row[at] >> bit & one
            row[at] = row[at] & ~(one << bit) | np.uint64(own) << bit
            row[end] |= replaced << np.uint64((k - 1) % 64)
            to, octets = rows[begin + i], row.view(np.uint8)
            for j in range(to.size):
                to[j] = octets[j]


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
