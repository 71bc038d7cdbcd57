"""The pool of hash functions for local hashing: all linear forms over GF(g).

Write a value v in base g with m = ⌈log_g k⌉ digits v_0 (least significant) … v_{m-1}. A hash function is a vector a of m
elements of GF(g), numbered a = Σ a_j g^j, and H_a(v) = Σ_j a_j v_j in GF(g) (arithmetic: `mechanisms.finite_field`). So
there are S = g^m functions, and

1. two different values collide under exactly S/g of them, hence q = 1/g holds exactly for a uniform function;
2. the table T[a, y] of reports per function and symbol, shape (S, g), is all that an estimator can use;
3. of that, the functions whose top non-zero digit is 1 are enough: H_{ca} = c H_a, so a report (a, y) says what (ca, cy)
   says, and folding the table onto them makes it about g - 1 times smaller: to S g / (g - 1) cells;
4. what a distribution f of values puts on each symbol under each function, Σ_v f_v [H_a(v) = y], is its Radon transform
   over GF(g), and comes from one pass a digit: for a with top digit a_j = 1, from R = f (without the digits above j) by
   R'[s; … a_i …] = Σ_{v_i} R[s - a_i v_i; … v_i …] for each i < j, where s = v_j to begin with;
5. the support counts C_v = Σ_a T[a, H_a(v)] of all values come from the transpose of that.

Both transforms add at most (m-1) S g² / (g-1) numbers. The idea of such pools is that of projective geometry response
(Feldman, Nelson, Nguyen and Talwar 2022), g = 2 being Hadamard response; the transform's that of Bolker, "The finite Radon
transform", 1987. No number is subtracted anywhere, so sums of counts are exact and tiny masses keep their digits.
"""

import numpy as np

from mechanisms.arguments import FloatArray, IntArray
from mechanisms.finite_field import field


class LinearPool:
    """All linear forms over GF(g) on values 0 … k-1.

    Attributes:
        k: domain size.
        g: number of symbols, a prime power.
        m: digits of a value in base g.
        size: number S = g^m of hash functions, at least k.
        cells: length g (S - 1) / (g - 1) + 2 of a folded table. For each j = m-1 … 0 it holds, for the functions with top
            digit a_j = 1, the array [y, a_{j-1}, …, a_0] (the last axis fastest); then, for the function that hashes
            everything to 0, symbol 0, and all other symbols together.
    """

    def __init__(self, k: int, g: int) -> None:
        self.k, self.g = k, g
        self.add, self.multiply = field(g)
        self.m, self.size = digits_needed(k, g)
        self.cells = g * (self.size - 1) // (g - 1) + 2

    def hash(self, functions: IntArray, values: IntArray) -> IntArray:
        """(n,) symbols H_a(v) for function numbers in [0, S) and values in [0, k)."""
        from mechanisms.kernels import linear_hash

        out = np.empty(values.size, np.int64)
        linear_hash(functions, values, self.g, self.add, self.multiply, out)
        return out

    def images(self) -> list[tuple[int, int]]:
        """How many functions take how many different symbols on the k values, as pairs (functions, symbols).

        Values below g^{m-1} take all combinations of the digits below the top one, so a function that uses one of these digits
        takes all g symbols. One that uses the top digit alone takes as many as that digit does.
        """
        top = -(-self.k * self.g // self.size)
        return [(self.size - self.g, self.g), (self.g - 1, top), (1, 1)]

    def support(self, counts: IntArray) -> IntArray:
        """(k,) int64 support counts of a table of shape (S, g)."""
        from mechanisms.kernels import radon_transpose

        out = np.empty(self.k, np.int64)
        radon_transpose(self.fold(counts), self.size // self.g, self.add, self.multiply, out)
        return out

    def fold(self, counts: IntArray) -> IntArray:
        """(cells,) int64 folded table of a table of shape (S, g): reports of equal meaning are one cell."""
        from mechanisms.kernels import fold_functions

        folded = np.zeros(self.cells, np.int64)
        fold_functions(counts, self.add, self.multiply, folded)
        return folded

    def radon(self, f: FloatArray) -> FloatArray:
        """(cells,) what the (k,) masses f put on each symbol under each function that a folded table knows."""
        from mechanisms.kernels import radon

        out = np.zeros(self.cells)
        radon(f, self.size // self.g, self.add, self.multiply, out)
        return out

    def radon_transpose(self, x: FloatArray) -> FloatArray:
        """(k,) for each value the sum of x over the cells that it hashes to."""
        from mechanisms.kernels import radon_transpose

        out = np.empty(self.k)
        radon_transpose(x.copy(), self.size // self.g, self.add, self.multiply, out)
        return out


def digits_needed(k: int, g: int) -> tuple[int, int]:
    """(m, g^m): the digits of the values 0 … k-1 in base g, and how many linear forms there are."""
    m, size = 1, g
    while size < k:
        m, size = m + 1, size * g
    return m, size
