"""Draws count tables of a population, directly if the mechanism can (`Mechanism.draw_counts`)."""

import numpy as np

from ldpstream.mechanisms import CountTable, Mechanism
from ldpstream.mechanisms.arguments import IntArray


def tabulate(m: Mechanism, values: IntArray, rng: np.random.Generator, steps: int = 1) -> CountTable:
    """Count table of `steps` drawn reports of each value, made in parts that fit into memory."""
    table = m.empty_table()
    for part in np.array_split(values, max(1, len(values) * steps * m.report_dtype.itemsize // 2**23)):
        table += m.tabulate(m.simulate(part, rng, steps))
    return table


def drawn_table(m: Mechanism, people: IntArray, rng: np.random.Generator, steps: int = 1) -> CountTable:
    """A count table of `steps` reports of each person, who keeps the value.

    Args:
        people: (k,) int64, n_v, the number of people with each value.
        steps: number of reports of each person, at least 1.
    """
    counts = m.draw_counts(people, steps, rng)
    if counts is not None:
        return m.table(steps * int(people.sum()), counts)
    return tabulate(m, np.repeat(np.arange(m.k), people), rng, steps)
