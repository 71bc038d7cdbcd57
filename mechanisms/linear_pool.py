"""The pool of hash functions for local hashing: all linear forms over GF(g).

Write a value v in base g with m = ⌈log_g k⌉ digits v_0 (least significant) … v_{m-1}. A hash function is a vector a of m
elements of GF(g), numbered a = Σ a_j g^j, and H_a(v) = Σ_j a_j v_j in GF(g) (arithmetic: `mechanisms.finite_field`). So
there are S = g^m functions, and

1. two different values collide under exactly S/g of them, hence q = 1/g holds exactly for a uniform function;
2. the table T[a, y] of reports per function and symbol, shape (S, g), is all that an estimator can use;
3. the support counts C_v = Σ_a T[a, H_a(v)] of all values come from m passes, one digit each:
   F'[… v_j …; s] = Σ_{a_j} F[… a_j …; s + a_j v_j], from F = T to C_v = F[v; 0].

The idea is that of projective geometry response (Feldman, Nelson, Nguyen and Talwar 2022); g = 2 is Hadamard response.
"""

import numpy as np

from mechanisms.arguments import IntArray
from mechanisms.finite_field import field


class LinearPool:
    """All linear forms over GF(g) on values 0 … k-1.

    Attributes:
        k: domain size.
        g: number of symbols, a prime power.
        m: digits of a value in base g.
        size: number S = g^m of hash functions, at least k.
    """

    def __init__(self, k: int, g: int) -> None:
        self.k, self.g = k, g
        self.add, self.multiply = field(g)
        self.m, self.size = digits_needed(k, g)

    def hash(self, functions: IntArray, values: IntArray) -> IntArray:
        """(n,) symbols H_a(v) for function numbers in [0, S) and values in [0, k)."""
        from mechanisms.kernels import linear_hash

        out = np.empty(values.size, np.int64)
        linear_hash(functions, values, self.g, self.add, self.multiply, out)
        return out

    def support(self, counts: IntArray) -> IntArray:
        """(k,) support counts of a table of shape (S, g), by the transform; O(m g S g) additions."""
        from mechanisms.kernels import linear_transform

        low = 1
        for _ in range(self.m):
            source = np.ascontiguousarray(counts.reshape(-1, self.g, low, self.g))
            counts = np.zeros_like(source)
            linear_transform(source, counts, self.add, self.multiply)
            low *= self.g
        return counts.reshape(self.size, self.g)[: self.k, 0].copy()


def digits_needed(k: int, g: int) -> tuple[int, int]:
    """(m, g^m): the digits of the values 0 … k-1 in base g, and how many linear forms there are."""
    m, size = 1, g
    while size < k:
        m, size = m + 1, size * g
    return m, size
