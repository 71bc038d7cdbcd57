"""The pool of hash functions for local hashing: all linear forms over GF(g).

A value v has the *place* v · stride mod k, where stride and k have no common factor. Write the place in base g with
m = ⌈log_g k⌉ digits v_0 (least significant) … v_{m-1}. A hash function is a vector a of m elements of GF(g),
numbered a = Σ a_j g^j, and H_a(v) = Σ_j a_j v_j in GF(g) (arithmetic: `finite_field`). There are S = g^m functions.

1. Two different values collide under exactly S/g of the functions.
2. The table T[a, y] of reports per function and symbol, shape (S, g), is a sufficient statistic of reports of different
   devices.
3. H_{ca} = c H_a, so the reports (a, y) and (ca, cy) are equivalent. A *folded* table adds up the counts of equivalent reports:
   it has cells for the functions whose top non-zero digit is 1, and for function 0.
4. Under function a, a distribution f gives symbol y the mass Σ_v f_v [H_a(v) = y]. The masses of all a, y are the Radon
   transform of f over GF(g).
5. The transpose of this transform gives the support counts C_v = Σ_a T[a, H_a(v)] of all values.
6. A report of a device with value u supports two other values independently, unless the places of the three values lie on a
   line of GF(g)^m.

If m > 1, `stride` puts the value i s mod k at place i, where s is near k/φ with the golden ratio φ (`spread`).

Sources: projective geometry response (Feldman, Nelson, Nguyen and Talwar 2022) for the pools (the pool for g = 2 is Hadamard
response); Bolker, "The finite Radon transform", 1987, for the transform.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.mechanisms.arrays import np, npt
from ldpstream.mechanisms.families.finite_field import field


class LinearPool:
    """All linear forms over GF(g) on values 0 … k-1.

    Attributes:
        k: domain size.
        g: number of symbols, a prime power.
        m: number of digits of a place in base g.
        size: number S = g^m of hash functions, at least k.
        stride: in [1, k), without a common factor with k; 1 if m = 1, since all places then lie on one line.
        cells: length g (S - 1) / (g - 1) + 2 of a folded table. For each j = m-1 … 0 the table holds the array
            [y, a_{j-1}, …, a_0] (last axis fastest) of the functions with top digit a_j = 1. The last two cells are for the
            function that hashes every value to 0: symbol 0, then all other symbols together.
    """

    def __init__(self, k: int, g: int) -> None:
        self.k, self.g = k, g
        self.m, self.size = digits_needed(k, g)
        self.stride = spread(k) if self.m > 1 else 1
        self.cells = g * (self.size - 1) // (g - 1) + 2

    @property
    def add(self) -> npt.NDArray[np.uint16]:
        return field(self.g)[0]

    @property
    def multiply(self) -> npt.NDArray[np.uint16]:
        return field(self.g)[1]

    def hash(self, functions: IntArray, values: IntArray) -> IntArray:
        """(n,) symbols H_a(v) for function numbers in [0, S) and int64 values in [0, k); if m = 1, for values in [0, g)."""
        from ldpstream.mechanisms.kernels.hash_kernels import linear_hash

        out = np.empty(values.size, np.int64)
        places = values if self.stride == 1 else values * self.stride % self.k
        linear_hash(functions, places, self.g, self.add, self.multiply, out)
        return out

    def images(self) -> list[tuple[int, int]]:
        """Pairs (F, s), one for each part of the pool: the F functions of this part map the k values to s different symbols."""
        top = -(-self.k * self.g // self.size)
        return [(self.size - self.g, self.g), (self.g - 1, top), (1, 1)]

    @cached_property
    def collinear(self) -> float:
        """The share of the triples of different values whose places lie on a line; 0 for two values.

        Σ n³ / S over all functions and symbols, n being the number of values with the symbol, counts the triples of values with
        one symbol. Three different values have one symbol under S/g functions if they are collinear, else under S/g².
        """
        k, g = float(self.k), self.g
        if self.m == 1 or self.k == 2:
            return float(self.k > 2)
        alike = ((g - 1) * (self.radon(np.ones(self.k))[:-2] ** 3).sum() + k**3) / self.size
        triples = k * (k - 1) * (k - 2)
        found = alike - k - 3 * k * (k - 1) / g - triples / g**2
        return float(max(0.0, found / triples * g**2 / (g - 1)))

    def support(self, counts: IntArray) -> IntArray:
        return self._transpose(self.fold(counts))

    def fold(self, counts: IntArray) -> IntArray:
        from ldpstream.mechanisms.kernels.hash_kernels import fold_functions

        folded = np.zeros(self.cells, np.int64)
        fold_functions(counts, self.multiply, folded)
        return folded

    def radon(self, f: FloatArray) -> FloatArray:
        """(cells,) mass of each symbol under each function of the folded table, from the (k,) masses f of the values."""
        from ldpstream.mechanisms.kernels.hash_kernels import radon

        out = np.zeros(self.cells)
        radon(f, self.size // self.g, self.stride, self.add, self.multiply, out)
        return out

    def radon_transpose(self, x: FloatArray) -> FloatArray:
        """(k,) for each value, the sum of x over the cells to which the value hashes."""
        return self._transpose(x.copy())

    def _transpose(self, cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
        from ldpstream.mechanisms.kernels.hash_kernels import radon_transpose

        out = np.empty(self.k, cells.dtype)
        radon_transpose(cells, self.size // self.g, self.stride, self.add, self.multiply, out)
        return out


def spread(k: int) -> int:
    """The inverse modulo k of s, for k >= 3; s is the number nearest to k/φ in [1, k) that has no common factor with k."""
    golden = k * (math.sqrt(5) - 1) / 2
    below = next(s for s in range(math.floor(golden), 0, -1) if math.gcd(s, k) == 1)
    above = next(s for s in range(math.floor(golden) + 1, k) if math.gcd(s, k) == 1)
    return pow(below if golden - below < above - golden else above, -1, k)


def digits_needed(k: int, g: int) -> tuple[int, int]:
    """(m, g^m): number of base-g digits of the places 0 … k-1, and number of linear forms."""
    m, size = 1, g
    while size < k:
        m, size = m + 1, size * g
    return m, size
