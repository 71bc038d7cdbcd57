"""The reports of an attribute with several answers, compared with the mechanism (`Mechanism.choices`).

A report supports the set if it names a member of the padded set.
"""

import numpy as np

from devices.conformance.binomial import BinomialCounts, by_probability, counts
from devices.conformance.rules import Rows
from lab.audit.events import events
from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import IntArray
from ldpstream.mechanisms.sets import members
from ldpstream.mechanisms.wording import plural


def reports_of_sets(place: str, check: str, signal: float, m: Mechanism, fresh: Rows) -> list[BinomialCounts]:
    """Compares independent reports with the distribution of the symbols, for members and for other symbols.

    Args:
        signal: part of the difference between members and others that the first check must be able to detect.
    """
    assert m.choices is not None
    chances = m.symbol_chances()
    assert chances is not None
    inside, outside = chances
    sets = members(fresh.values, m.k - m.choices, m.choices)
    symbols = fresh.rows.astype(np.int64)
    contrast = m.choices * (inside - outside)
    yes = events(m).supports(fresh.rows, fresh.values)
    expected = np.full(yes.size, m.choices * inside)
    sizes = np.bitwise_count(fresh.values)
    of_size, hits = (np.bincount(x, minlength=m.choices + 1) for x in (sizes, sizes[yes]))
    named = [np.bincount(symbols[part], minlength=m.k) for part in (yes, ~yes)]
    having = sets.sum(axis=0)
    return [
        by_probability(place, check, yes, expected, expected - contrast * signal),
        *(
            counts(place, of_answers(size), hits[size], of_size[size], m.choices * inside, m.choices * inside - contrast / 2)
            for size in range(m.choices + 1)
        ),
        counts(place, "reports of each symbol of the padded set", named[0], having, inside),
        counts(place, "reports of each other symbol", named[1], yes.size - having, outside),
    ]


def of_answers(size: int) -> str:
    return f"the same, for {plural(size, 'answer')}"


def pairs_of_sets(place: str, which: str, m: Mechanism, values: IntArray, first: Rows, second: Rows) -> list[BinomialCounts]:
    """Compares two reports of one set by one device: both support the set, and both are equal."""
    both = events(m).supports(first.rows, values) & events(m).supports(second.rows, values)
    equal = events(m).equal_chances()
    assert equal is not None
    kept, fresh = equal
    once = events(m).own_chances(values)
    rival = once**2 if m.memoized else None
    same = (first.rows == second.rows).sum()
    return [
        by_probability(place, f"{which}: both support the value", both, events(m).own_chances(values, 2), rival),
        counts(place, f"{which}: equal reports", same, values.size, kept, fresh if m.memoized else None),
    ]
