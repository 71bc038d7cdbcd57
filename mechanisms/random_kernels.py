"""Random bits and random subsets for simulations, drawn by loops that are compiled by Numba.

The generator is xoshiro256++ (Blackman and Vigna 2021), with a state of four words, not all zero. It is fast but predictable;
devices draw from another source. Import this module only inside functions, because Numba loads slowly.
"""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Table = npt.NDArray[Any]

LANES = 32  # independent generators that work side by side, so that one instruction serves several of them
BLOCK = 2**11  # words of a block of rows: 16 KiB, half of the first-level cache
SPARSE = 16  # a subset of fewer than k / 16 values is drawn value by value


@numba.njit(cache=True, inline="always")
def _next(s0: Any, s1: Any, s2: Any, s3: Any) -> Any:
    total = s0 + s3
    word = ((total << np.uint64(23)) | (total >> np.uint64(41))) + s0
    c, d = s2 ^ s0, s3 ^ s1
    return word, s0 ^ d, s1 ^ c, c ^ (s1 << np.uint64(17)), (d << np.uint64(45)) | (d >> np.uint64(19))


@numba.njit(cache=True)
def bernoulli_words(out: Words, threshold: np.uint64, states: Words) -> None:
    """Fills each word with 64 independent bits. A bit is one with probability threshold / 2^64 exactly.

    Args:
        out: overwritten.
        threshold: the probability times 2^64.
        states: (4, LANES) one generator in each column; overwritten.
    """
    first, second, third, fourth = states[0], states[1], states[2], states[3]
    undecided, rest, ones = np.empty(LANES, np.uint64), threshold << np.uint64(10), np.empty(10, np.uint64)
    for place in range(10):
        ones[place] = np.uint64(0) - (threshold >> np.uint64(63 - place) & np.uint64(1))  # all bits equal the digit
    digits = (ones[0], ones[1], ones[2], ones[3], ones[4], ones[5], ones[6], ones[7], ones[8], ones[9])
    for begin in range(0, out.size, LANES):
        block = out[begin : begin + LANES]
        for lane in range(block.size):
            s0, s1, s2, s3 = first[lane], second[lane], third[lane], fourth[lane]
            below, equal = np.uint64(0), ~np.uint64(0)
            for digit in digits:
                word, s0, s1, s2, s3 = _next(s0, s1, s2, s3)
                below |= equal & ~word & digit
                equal &= ~(word ^ digit)
            first[lane], second[lane], third[lane], fourth[lane] = s0, s1, s2, s3
            block[lane], undecided[lane] = below, equal
        if not rest:
            continue
        for lane in range(block.size):
            equal, left, below = undecided[lane], rest, np.uint64(0)
            if not equal:
                continue
            s0, s1, s2, s3 = first[lane], second[lane], third[lane], fourth[lane]
            while equal and left:
                word, s0, s1, s2, s3 = _next(s0, s1, s2, s3)
                if left >> np.uint64(63):
                    below |= equal & ~word
                    equal &= word
                else:
                    equal &= ~word
                left <<= np.uint64(1)
            first[lane], second[lane], third[lane], fourth[lane] = s0, s1, s2, s3
            block[lane] |= below


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
    of bits is as in `mechanisms.bits`.
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
def _count(words: Words) -> np.int64:
    total = np.uint64(0)
    for word in words:
        word -= word >> np.uint64(1) & np.uint64(0x5555555555555555)
        word = (word & np.uint64(0x3333333333333333)) + (word >> np.uint64(2) & np.uint64(0x3333333333333333))
        word = word + (word >> np.uint64(4)) & np.uint64(0x0F0F0F0F0F0F0F0F)
        total += word * np.uint64(0x0101010101010101) >> np.uint64(56)
    return np.int64(total)


@numba.njit(cache=True)
def many_members(values: Table, with_value: Table, omega: int, k: int, rows: Table, state: Words, states: Words) -> None:
    """Does the same as `few_members`, by another method.

    Args:
        values, with_value, omega, k, rows: as in `few_members`.
        state: (4,) generator of the changes; overwritten.
        states: as in `bernoulli_words`.
    """
    width, together = (k + 63) // 64, max(BLOCK // ((k + 63) // 64), 1)
    words = np.empty((together, width), np.uint64)
    near = np.uint64(min(max(256 * omega // k, 1), 255)) << np.uint64(56)
    last, inside = (k - 1) // 64, (np.uint64(1) << np.uint64((k - 1) % 64)) - np.uint64(1)
    bound, one, low_bits = np.uint64(k - 1), np.uint64(1), np.uint64(0xFFFFFFFF)
    smallest = (np.uint64(1 << 32) - bound) % bound
    s0, s1, s2, s3 = state[0], state[1], state[2], state[3]
    for begin in range(0, values.size, together):
        block = words[: min(together, values.size - begin)]
        bernoulli_words(block.reshape(block.size), near, states)
        for i in range(len(block)):
            row, value, own = block[i], values[begin + i], with_value[begin + i]
            row[last] &= inside  # members are drawn from 0 … k-2, in which k-1 replaces the person's own value
            missing: Any = (omega - 1 if own else omega) - _count(row)
            while missing:
                word, s0, s1, s2, s3 = _next(s0, s1, s2, s3)
                product = (word >> np.uint64(32)) * bound
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
            bit = one << np.uint64(value & 63)
            if row[value >> 6] & bit:
                row[value >> 6] ^= bit
                row[last] |= one << np.uint64((k - 1) % 64)
            if own:
                row[value >> 6] |= bit
            rows[begin + i] = row.view(np.uint8)[: rows.shape[1]]
    state[0], state[1], state[2], state[3] = s0, s1, s2, s3
