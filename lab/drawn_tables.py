"""Draws count tables of a population, without drawing the reports if the counts have a known distribution."""

import numpy as np

from lab.audit.events import events
from ldpstream.mechanisms import CountTable, Mechanism
from ldpstream.mechanisms.arguments import IntArray


def tabulate(m: Mechanism, values: IntArray, rng: np.random.Generator, steps: int = 1) -> CountTable:
    """Count table of `steps` drawn reports of each value, made in parts that fit into memory."""
    table = m.empty_table()
    for part in np.array_split(values, max(1, len(values) * steps * m.row_bytes // 2**23)):
        table += m.tabulate(m.simulate(part, rng, steps))
    return table


def drawn_counts(m: Mechanism, people: IntArray, rng: np.random.Generator, steps: int = 1) -> IntArray | None:
    """Draws the counts of all reports of people with these values at once; None if their distribution is unknown.

    The counts of independent bits are binomial. A symbol is kept with probability p - q, and else uniform. The counts of a
    channel are multinomial.
    """
    if not m.pure:
        return np.asarray(rng.multinomial(steps * people, m.channel()).sum(axis=0))

    def bits(ones: IntArray, reports: int, p: float, q: float) -> IntArray:
        return np.asarray(rng.binomial(ones, p) + rng.binomial(reports - ones, q))

    def symbols(ones: IntArray, reports: int, p: float, q: float) -> IntArray:
        kept = rng.binomial(ones, p - q)
        return np.asarray(kept + rng.multinomial(reports - kept.sum(), np.full(m.k, 1 / m.k)))

    if events(m).independent_bits:
        draw = bits
    elif m.table_shape == (m.k,) and m.supported == (1, 1) and m.choices is None:
        draw = symbols
    else:
        return None
    n, (memo_p, memo_q, p, q) = int(people.sum()), m.rounds()
    if steps == 1:
        return draw(people, n, m.p, m.q)
    return draw(steps * draw(people, n, memo_p, memo_q), steps * n, p, q)


def drawn_table(m: Mechanism, people: IntArray, rng: np.random.Generator, steps: int = 1) -> CountTable:
    """A count table of `steps` reports of each person, who keeps the value.

    Args:
        people: (k,) int64, n_v, the number of people with each value.
        steps: number of reports of each person, at least 1.
    """
    counts = drawn_counts(m, people, rng, steps)
    if counts is not None:
        return m.table(steps * int(people.sum()), counts)
    return tabulate(m, np.repeat(np.arange(m.k), people), rng, steps)
