"""Haar wavelets: a rival of Square Wave for the distribution of a number, with the same loss ε and one report of each person.

A node of a binary tree over the bins has the coefficient d(node) = f(left) - f(right). Each person draws one level, and reports
the half of its node that holds the number, by one-time GRR or OUE. This is not the mechanism of arXiv:2509.19661.

Sources: Kulkarni, Cormode and Srivastava 2019, arXiv:1812.10942 (Haar); Zhao et al. 2025, arXiv:2509.19661 (wavelets).
"""

import numpy as np

from lab.drawn_tables import drawn_table
from ldpstream.estimators import matrix_inversion, post_process
from ldpstream.mechanisms import Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray


def oracle(k: int, eps: float) -> Mechanism:
    f = np.full(k, 1 / k)
    return min(
        (mechanism(name, k=k, eps=eps) for name in ("GRR", "OUE")), key=lambda m: m.reading.inversion_variances(f, 1000).sum()
    )


def wavelets(people: IntArray, eps: float, rng: np.random.Generator) -> FloatArray:
    """The estimated shares of the bins, with sum 1, from (k,) numbers of people; k is a power of 2."""
    depth = people.size.bit_length() - 1
    if people.size != 2**depth or depth < 1:
        raise ValueError(f"people must have a power of 2 of bins, got {people.size}")
    of_levels = rng.multinomial(people, np.full(depth, 1 / depth)).T  # (levels, k)
    shares = np.ones(1)
    for level, chosen in enumerate(of_levels, start=1):
        of_halves, m = chosen.reshape(2**level, -1).sum(axis=1), oracle(2**level, eps)
        found = matrix_inversion(m, drawn_table(m, of_halves, rng)).frequencies if chosen.any() else np.zeros(2**level)
        difference = found[::2] - found[1::2]
        shares = np.column_stack([shares + difference, shares - difference]).ravel() / 2
    return post_process(shares, "norm-sub")
