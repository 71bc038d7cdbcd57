"""Loops that are too slow in NumPy, compiled by Numba.

Import this module only inside functions or in other modules of compiled loops, because Numba loads slowly.
"""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Table = npt.NDArray[Any]
SCRATCH = 2**11  # numbers of a pass of the Radon transform, twice: 32 KiB, most of the first-level cache
WORDS_AT_ONCE = 256  # words of a row; the sums and tallies of 256 words fill 26 KiB, most of the first-level cache


@numba.njit(cache=True, nogil=True)
def count_symbols(symbols: Table, k: int) -> Table:
    """(k,) number of times that each symbol occurs; every symbol must be below k. Four tables need not wait for each other."""
    counts, whole = np.zeros((4, k), np.int64), symbols.size - symbols.size % 4
    for i in range(0, whole, 4):
        for part in range(4):
            counts[part, symbols[i + part]] += 1
    for symbol in symbols[whole:]:
        counts[0, symbol] += 1
    total: Table = counts.sum(axis=0)
    return total


@numba.njit(cache=True)
def overwrite_bits(rows: Table, values: Table, on: Table) -> None:
    """Overwrites bit values[i] of row i with on[i]; the order of bits is as in `mechanisms.kernels.bits`."""
    for i in range(values.size):
        byte, bit = values[i] >> 3, np.uint8(1 << (values[i] & 7))
        rows[i, byte] = rows[i, byte] | bit if on[i] else rows[i, byte] & ~bit


def _ones_of(_: Any, word: Any) -> Any:
    """The number of ones of an unsigned integer."""

    def code(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return word(word), code


ones_of: Any = numba.extending.intrinsic(_ones_of)


@numba.njit(cache=True)
def count_row_ones(rows: Table) -> Table:
    """(n,) number of ones in each row of bytes."""
    counts = np.empty(len(rows), np.int64)
    for i in range(len(rows)):
        ones = np.uint32(0)
        for octet in rows[i]:
            ones += np.uint32(ones_of(octet))
        counts[i] = ones
    return counts


@numba.njit(cache=True)
def _add(a: Any, b: Any, c: Any) -> Any:
    differ = a ^ b
    return differ ^ c, a & b | differ & c


@numba.njit(cache=True)
def _add_four(one: Any, two: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    one, low = _add(one, a, b)
    one, high = _add(one, c, d)
    two, four = _add(two, low, high)
    return one, two, four


@numba.njit(cache=True)
def _tally(words: Words, tallies: Words) -> None:
    for j in range(words.size):
        for bit in range(8):
            tallies[bit, j] += words[j] >> np.uint64(bit) & np.uint64(0x0101010101010101)


@numba.njit(cache=True)
def _empty(tallies: Words, weight: int, counts: Table) -> None:
    for j in range(len(counts)):
        for bit in range(8):
            tally, tallies[bit, j] = tallies[bit, j], 0
            for byte in range(8):
                counts[j, 8 * byte + bit] += weight * np.int64(tally >> np.uint64(8 * byte) & np.uint64(255))


@numba.njit(cache=True)
def count_bits(words: Words) -> Table:
    """(w, 64) number of rows of the (n, w) words in which each bit is set, the least significant bit first.

    Source: Harley and Seal's method (Warren, Hacker's Delight, §5-2).
    """
    n, width = words.shape
    counts = np.zeros((width, 64), np.int64)
    tallies = np.zeros((8, WORDS_AT_ONCE), np.uint64)
    for left in range(0, width, WORDS_AT_ONCE):
        part, into = words[:, left : left + WORDS_AT_ONCE], counts[left : left + WORDS_AT_ONCE]
        sums = np.zeros((5, len(into)), np.uint64)
        one, two, four, eight, sixteen = sums
        for i in range(n // 16):
            r = part[16 * i : 16 * i + 16]
            for j in range(len(into)):
                one[j], two[j], a = _add_four(one[j], two[j], r[0, j], r[1, j], r[2, j], r[3, j])
                one[j], two[j], b = _add_four(one[j], two[j], r[4, j], r[5, j], r[6, j], r[7, j])
                four[j], c = _add(four[j], a, b)
                one[j], two[j], a = _add_four(one[j], two[j], r[8, j], r[9, j], r[10, j], r[11, j])
                one[j], two[j], b = _add_four(one[j], two[j], r[12, j], r[13, j], r[14, j], r[15, j])
                four[j], d = _add(four[j], a, b)
                eight[j], sixteen[j] = _add(eight[j], c, d)
            _tally(sixteen, tallies)
            if i % 255 == 254:  # one more addition could overflow a byte of the tallies
                _empty(tallies, 16, into)
        if n >= 16:
            _empty(tallies, 16, into)
            for level in range(1, 4):
                _tally(sums[level], tallies)
                _empty(tallies, 1 << level, into)
            _tally(one, tallies)
        for row in range(n - n % 16, n):
            _tally(part[row], tallies)
        _empty(tallies, 1, into)
    return counts


@numba.njit(cache=True)
def linear_hash(functions: Table, values: Table, g: int, add: Table, multiply: Table, out: Table) -> None:
    """out[i] = sum over j of a_j v_j in GF(g), for the base-g digits of function i and of value i, both below 2^32."""
    base = np.uint32(g)  # a 32-bit division is faster than a 64-bit one
    for i in range(functions.size):
        a, v, total = np.uint32(functions[i]), np.uint32(values[i]), 0
        while v:  # digits above the value's highest non-zero digit add nothing
            next_a, next_v = a // base, v // base
            total = add[total, multiply[a - next_a * base, v - next_v * base]]
            a, v = next_a, next_v
        out[i] = total


@numba.njit(cache=True)
def fold_functions(table: Table, multiply: Table, cells: Table) -> None:
    """Adds up the counts of functions that are multiples of each other, in the cells of `mechanisms.families.linear_pool`.

    The cells must be zero at first.
    """
    size, g = table.shape
    scaled = np.zeros(max(size // g, 1), np.int64)  # the low digits of a function, each multiplied by the same element
    start, low = 0, size // g
    while low:
        for lead in range(1, g):
            inverse = 1
            while multiply[inverse, lead] != 1:
                inverse += 1
            filled = 1
            while filled < low:
                for digit in range(1, g):
                    for i in range(filled):
                        scaled[digit * filled + i] = multiply[inverse, digit] * filled + scaled[i]
                filled *= g
            for i in range(low):
                for y in range(g):
                    cells[start + multiply[inverse, y] * low + scaled[i]] += table[lead * low + i, y]
        start, low = start + low * g, low // g
    cells[start] = table[0, 0]
    for y in range(1, g):
        cells[start + 1] += table[0, y]


@numba.njit(cache=True)
def _radon_pass(x: Table, n: int, place: int, add: Table, multiply: Table, forward: bool) -> None:
    """Replaces, at one place of the digits, the digit v of a value by the digit a of a function: symbol s becomes s + a v."""
    g = add.shape[0]
    low, most = x.size // g, max(SCRATCH // (g * g), 16)
    before, after = np.empty((2, g, g, min(most, place)), x.dtype)
    for first in range(0, low, g * place):
        for begin in range(first, first + place, most):
            width = min(most, first + place - begin)
            for s in range(g):
                for v in range(g):
                    terms, copied = x[s * low + v * place + begin :], before[v, s]
                    for i in range(width):
                        copied[i] = terms[i]
            after[:] = 0
            for v in range(g):
                for a in range(g):
                    shift = add[multiply[a, v]]
                    for s in range(n):
                        terms, sums = (before[v, s], after[a, shift[s]]) if forward else (before[a, shift[s]], after[v, s])
                        if width == 1:
                            sums[0] += terms[0]
                            continue
                        for i in range(width):
                            sums[i] += terms[i]
            for s in range(g):
                for v in range(g):
                    terms, sums = x[s * low + v * place + begin :], after[v, s]
                    for i in range(width):
                        terms[i] = sums[i]


@numba.njit(cache=True)
def _radon_passes(x: Table, n: int, add: Table, multiply: Table, forward: bool) -> None:
    """Does `_radon_pass` at all places. Only n symbols are in x before (forward) or needed after.

    The upper half of the digits comes first, then the lower half on transposed arrays: the inner loops are long in both.
    """
    g, y = add.shape[0], np.empty_like(x)
    low, rows = x.size // g, 1
    while rows * rows < low:
        rows *= g
    if not forward:
        rows = low // rows
    for half in range(2):
        place = low
        while place > low // rows:
            place //= g
            few = half == 0 and place == low // g if forward else half == 1 and place == low // rows
            _radon_pass(x, n if few else g, place, add, multiply, forward)
        for s in range(g):
            of_s = x[s * low : s * low + low].reshape(rows, low // rows)
            y[s * low : s * low + low].reshape(low // rows, rows)[:] = of_s.T
        x, y, rows = y, x, low // rows


@numba.njit(cache=True)
def radon(f: Table, low: int, stride: int, add: Table, multiply: Table, cells: Table) -> None:
    """Computes the mass of each symbol under each function, in the cells of `linear_pool`, from the (k,) masses f.

    low is g^(m-1). The cells must be zero at first.
    """
    g = add.shape[0]
    at = 0
    for v in range(f.size):
        cells[at] = f[v]
        cells[cells.size - 2] += f[v]
        at += stride
        if at >= f.size:
            at -= f.size
    n, start = -(-f.size // low), 0
    while low:
        x, start = cells[start : start + g * low], start + g * low
        if low > 1:
            for top in range(n):
                for i in range(low):  # adds up over the top digit
                    cells[start + i] += x[top * low + i]
        _radon_passes(x, n, add, multiply, True)
        low, n = low // g, g


@numba.njit(cache=True)
def radon_transpose(cells: Table, low: int, stride: int, add: Table, multiply: Table, out: Table) -> None:
    """The transpose of `radon`: (k,) for each value, the sum of the cells that contain the value. Overwrites the cells."""
    g, k = add.shape[0], out.size
    start, place = cells.size - 2, 1
    below = cells[start : start + 1]
    while place <= low:
        start -= g * place
        x = cells[start : start + g * place]
        n = -(-k // low) if place == low else g
        _radon_passes(x, n, add, multiply, False)
        for top in range(n):
            for i in range(place):
                x[top * place + i] += below[i]
        below, place = x, place * g
    at = 0
    for v in range(k):
        out[v] = cells[at]
        at += stride
        if at >= k:
            at -= k
