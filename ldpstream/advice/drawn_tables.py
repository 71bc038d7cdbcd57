"""Draws count tables of a population directly, with the same distribution as tables counted from drawn reports.

Unary encodings allow direct drawing because their bits are independent given the value. K-ary randomized response allows direct
drawing because a report is the value with probability p - q, otherwise a uniform random value. Square Wave is similar. For
other mechanisms the module draws every report.
"""

import numpy as np

from ldpstream.mechanisms import CountTable, Mechanism
from ldpstream.mechanisms.arguments import IntArray
from ldpstream.mechanisms.grr import GRR, LongitudinalGRR
from ldpstream.mechanisms.square_wave import SquareWave
from ldpstream.mechanisms.unary import LongitudinalUnary, UnaryEncoding


def tabulate(m: Mechanism, values: IntArray, rng: np.random.Generator, steps: int = 1) -> CountTable:
    """Count table of `steps` reports of each value; made in parts, so that the bits of a large domain fit into memory."""
    table = m.empty_table()
    for part in np.array_split(values, max(1, len(values) * steps * m.report_dtype.itemsize // 2**23)):
        table += m.tabulate(m.simulate(part, rng, steps))
    return table


def drawn_table(m: Mechanism, people: IntArray, rng: np.random.Generator, steps: int = 1) -> CountTable:
    """A count table of `steps` reports of each person, who keeps the value. A memoized mechanism keeps each person's memo.

        unary encodings   C_v ~ Bin(n_v, p) + Bin(n - n_v, q), independent
        (L-)GRR           C ~ T + Multinomial(n - Σ T, uniform), T_v ~ Bin(n_v, p - q)
        SW                like GRR with T_v ~ Bin(n_v, L (p - q)); each of the T_v reports is uniform on the L cells near v

    For several steps, the formula draws the numbers of memos first, with the memo's probabilities (`Mechanism.rounds`). From
    these numbers, times the number of steps, it then draws the reports.

    Args:
        m: the mechanism.
        people: (k,) int64, n_v, the number of people with each value.
        rng: source of randomness.
        steps: number of reports of each person, at least 1.
    """
    n = int(people.sum())
    if isinstance(m, (UnaryEncoding, LongitudinalUnary, GRR, LongitudinalGRR)):
        draw = _bits if isinstance(m, (UnaryEncoding, LongitudinalUnary)) else _symbols
        if steps == 1:
            return m.table(n, draw(people, n, m.p, m.q, rng))
        memo_p, memo_q, p, q = m.rounds()
        memos = draw(people, n, memo_p, memo_q, rng)
        return m.table(steps * n, draw(steps * memos, steps * n, p, q, rng))
    if isinstance(m, SquareWave):
        return m.table(steps * n, _cells(m, steps * people, steps * n, rng))
    return tabulate(m, np.repeat(np.arange(m.k), people), rng, steps)


def _bits(ones: IntArray, n: int, p: float, q: float, rng: np.random.Generator) -> IntArray:
    """Returns the numbers of ones after randomisation: `ones` of n bits of each value were one before."""
    return np.asarray(rng.binomial(ones, p) + rng.binomial(n - ones, q))


def _symbols(counts: IntArray, n: int, p: float, q: float, rng: np.random.Generator) -> IntArray:
    """Returns the numbers of symbols after randomised response of n symbols."""
    kept = rng.binomial(counts, p - q)
    return np.asarray(kept + rng.multinomial(n - kept.sum(), np.full(counts.size, 1 / counts.size)))


def _cells(m: SquareWave, people: IntArray, n: int, rng: np.random.Generator) -> IntArray:
    """Returns the numbers of Square Wave's reports in each cell."""
    near = rng.binomial(people, m.width * (m.near - m.far))
    counts = rng.multinomial(n - near.sum(), np.full(m.cells, 1 / m.cells))
    for offset, column in enumerate(rng.multinomial(near, np.full(m.width, 1 / m.width)).T):
        counts[offset : offset + m.k] += column
    return np.asarray(counts)
