"""The loops that NumPy cannot do at speed, compiled by Numba. Imported only where they are called, because Numba takes
half a second to load and an agent that counts never needs it."""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Table = npt.NDArray[Any]


@numba.njit(cache=True)
def _next(state: Words) -> np.uint64:
    """One word of xoshiro256++ (Blackman and Vigna 2021); the state is four words, not all zero."""
    s0, s1, s2, s3 = state[0], state[1], state[2], state[3]
    total = s0 + s3
    word = ((total << np.uint64(23)) | (total >> np.uint64(41))) + s0
    shifted = s1 << np.uint64(17)
    s2 ^= s0
    s3 ^= s1
    state[1] = s1 ^ s2
    state[0] = s0 ^ s3
    state[2] = s2 ^ shifted
    state[3] = (s3 << np.uint64(45)) | (s3 >> np.uint64(19))
    return np.uint64(word)


@numba.njit(cache=True)
def bernoulli_words(out: Words, threshold: np.uint64, state: Words) -> None:
    """Fill words with 64 independent bits each, every bit one with probability threshold / 2^64 exactly.

    Each lane compares the binary digits of a uniform number with those of the threshold, most significant first, and all
    64 lanes share one random word per digit; a word is finished when every lane has found a digit that differs.
    """
    for i in range(out.size):
        undecided = ~np.uint64(0)
        below = np.uint64(0)
        digit = np.uint64(1) << np.uint64(63)
        rest = threshold
        while undecided and rest:
            word = _next(state)
            if rest & digit:
                below |= undecided & ~word
                undecided &= word
                rest ^= digit
            else:
                undecided &= ~word
            digit >>= np.uint64(1)
        out[i] = below


@numba.njit(cache=True)
def _uniform(limit: int, state: Words) -> np.int64:
    """A uniform integer in [0, limit), limit < 2^32, without bias (Lemire 2019, 32 bits)."""
    bound = np.uint64(limit)
    low_bits = np.uint64(0xFFFFFFFF)
    product = (_next(state) >> np.uint64(32)) * bound
    if (product & low_bits) < bound:
        smallest = (np.uint64(1 << 32) - bound) % bound
        while (product & low_bits) < smallest:
            product = (_next(state) >> np.uint64(32)) * bound
    return np.int64(product >> np.uint64(32))


@numba.njit(cache=True)
def subset_rows(values: Table, with_value: Table, omega: int, k: int, rows: Table, state: Words) -> None:
    """Row i gets a uniform subset of the k-1 other values, completed by values[i] if with_value[i] to size omega.

    Floyd's algorithm (Bentley and Floyd 1987) on 0 … k-2, where the number k-1 stands in for the value's own. Rows are zero
    when they come and hold bits as in `mechanisms.bits`.
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
def linear_hash(functions: Table, values: Table, g: int, add: Table, multiply: Table, out: Table) -> None:
    """out[i] = sum over j of a_j v_j in GF(g), for the base-g digits of function i and of value i, both below 2^32."""
    base = np.uint32(g)  # divides in half the time that 64 bits take
    for i in range(functions.size):
        a, v, total = np.uint32(functions[i]), np.uint32(values[i]), 0
        while v:  # the digits above the value's highest add nothing
            next_a, next_v = a // base, v // base
            total = add[total, multiply[a - next_a * base, v - next_v * base]]
            a, v = next_a, next_v
        out[i] = total


@numba.njit(cache=True)
def linear_transform(source: Table, out: Table, add: Table, multiply: Table) -> None:
    """One digit of the support transform: out[h, v, l, s] += sum over a of source[h, a, l, s + a v] in GF(g).

    Both arrays have shape (high digits, g, low digits, g); out starts at zero.
    """
    high, g, low, _ = source.shape
    for h in range(high):
        for v in range(g):
            for a in range(g):
                shift = add[multiply[a, v]]
                for i in range(low):
                    for s in range(g):
                        out[h, v, i, s] += source[h, a, i, shift[s]]
