"""Draws count tables of a population directly, with the same distribution as tables counted from drawn reports.

Unary encodings allow direct drawing because their bits are independent given the value. K-ary randomized response allows direct
drawing because a report is the value with probability p - q, otherwise a uniform random value. With a memoized mechanism each
person sends one report of a fresh memo. For other mechanisms the module draws every report.
"""

import numpy as np

from experiments.bench.accuracy import tabulate
from mechanisms import CountTable, Mechanism
from mechanisms.arguments import IntArray
from mechanisms.grr import GRR, LongitudinalGRR
from mechanisms.unary import LongitudinalUnary, UnaryEncoding


def drawn_table(m: Mechanism, people: IntArray, rng: np.random.Generator) -> CountTable:
    """A count table of one report of each person.

        unary encodings   C_v ~ Bin(n_v, p) + Bin(n - n_v, q), independent
        (L-)GRR           C ~ T + Multinomial(n - Σ T, uniform), T_v ~ Bin(n_v, p - q)

    Args:
        m: the mechanism.
        people: (k,) int64, n_v, the number of people with each value.
        rng: source of randomness.
    """
    n = int(people.sum())
    if isinstance(m, (UnaryEncoding, LongitudinalUnary)):
        return m.table(n, rng.binomial(people, m.p) + rng.binomial(n - people, m.q))
    if isinstance(m, (GRR, LongitudinalGRR)):
        truthful = rng.binomial(people, m.p - m.q)
        return m.table(n, truthful + rng.multinomial(n - truthful.sum(), np.full(m.k, 1 / m.k)))
    return tabulate(m, np.repeat(np.arange(m.k), people), rng)
