"""Loops that are too slow in NumPy, compiled by Numba.

Import this module only inside functions or in other modules of compiled loops, because Numba loads slowly.
"""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Table = npt.NDArray[Any]
SCRATCH = 2**14  # numbers in a block: 128 KiB, a part of the second-level cache


@numba.njit(cache=True)
def count_bits(words: Words) -> Table:
    """(w, 64) number of rows of the (n, w) words in which each bit is set, the least significant bit first.

    Bit 8 j + i of a word adds to byte j of the tally i. The tallies are emptied before a byte can overflow.
    """
    n, width = words.shape
    counts, tallies = np.zeros((width, 64), np.int64), np.zeros((8, width), np.uint64)
    for begin in range(0, n, 255):
        tallies[:] = 0
        for row in range(begin, min(begin + 255, n)):
            for bit in range(8):
                for j in range(width):
                    tallies[bit, j] += words[row, j] >> np.uint64(bit) & np.uint64(0x0101010101010101)
        for j in range(width):
            for place in range(64):
                counts[j, place] += np.int64(tallies[place % 8, j] >> np.uint64(place - place % 8) & np.uint64(255))
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
def _move_columns(x: Table, block: Table, first: int, high: int, low: int, place: int, g: int, back: bool) -> None:
    width = high * low
    for s in range(g):
        for v in range(g):
            source, target = first + s * (x.size // g) + v * place, (v * g + s) * width
            there, here = x[source : source + (high * g - v) * place], block[target : target + width]
            if high == 1:
                if back:
                    for i in range(low):
                        there[i] = here[i]
                else:
                    for i in range(low):
                        here[i] = there[i]
                continue
            for i in range(low):
                for h in range(high):
                    if back:
                        there[h * g * place + i] = here[i * high + h]
                    else:
                        here[i * high + h] = there[h * g * place + i]


@numba.njit(cache=True)
def _radon_pass(x: Table, n: int, place: int, add: Table, multiply: Table, forward: bool, before: Table, after: Table) -> None:
    g = add.shape[0]
    highs, most = x.size // (g * g * place), before.size // (g * g)
    together = max(most // place, 1) if place < 64 else 1  # for place >= 64, a single run of columns is long enough
    for h in range(0, highs, together):
        high = min(together, highs - h)
        for i in range(0, place, most):
            low = min(most, place - i)
            width = high * low
            first = h * g * place + i
            _move_columns(x, before, first, high, low, place, g, False)
            for j in range(g * g * width):
                after[j] = 0
            for v in range(g):
                for a in range(g):
                    shift = add[multiply[a, v]]
                    if width == 1:
                        for s in range(n):
                            if forward:
                                after[a * g + shift[s]] += before[v * g + s]
                            else:
                                after[v * g + s] += before[a * g + shift[s]]
                        continue
                    for s in range(n):
                        source, target = (v * g + s) * width, (a * g + shift[s]) * width
                        if not forward:
                            source, target = (a * g + shift[s]) * width, (v * g + s) * width
                        terms, sums = before[source : source + width], after[target : target + width]
                        for j in range(width):
                            sums[j] += terms[j]
            _move_columns(x, after, first, high, low, place, g, True)


@numba.njit(cache=True)
def radon(f: Table, low: int, stride: int, add: Table, multiply: Table, cells: Table) -> None:
    """Computes the mass of each symbol under each function, in the cells of `linear_pool`, from the (k,) masses f.

    low is g^(m-1). The cells must be zero at first.
    """
    g = add.shape[0]
    before = np.empty(min(max(SCRATCH, 16 * g * g), g * low), f.dtype)
    after = np.empty(before.size, before.dtype)
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
        place = low // g
        while place:
            _radon_pass(x, n, place, add, multiply, True, before, after)
            place, n = place // g, g
        low, n = low // g, g


@numba.njit(cache=True)
def radon_transpose(cells: Table, low: int, stride: int, add: Table, multiply: Table, out: Table) -> None:
    """The transpose of `radon`: (k,) for each value, the sum of the cells that contain the value. Overwrites the cells."""
    g, k = add.shape[0], out.size
    before = np.empty(min(max(SCRATCH, 16 * g * g), g * low), cells.dtype)
    after = np.empty(before.size, before.dtype)
    start, place = cells.size - 2, 1
    below = cells[start : start + 1]
    while place <= low:
        start -= g * place
        x = cells[start : start + g * place]
        n = -(-k // low) if place == low else g
        inner = int(np.int64(1))  # for a literal 1, Numba would compile everything twice
        while inner < place:
            _radon_pass(x, n if inner * g == place else g, inner, add, multiply, False, before, after)
            inner *= g
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
