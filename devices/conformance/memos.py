"""The first reports of two values of one device: two memos are independent, and values with one memo key have one memo.

A device that draws the noise of several memos from one coin passes every test of a single value. Under rs+fd, most attributes
have one fake value and so one memo; this test leaves them out.
"""

import numpy as np

from devices.conformance.binomial import BinomialCounts, by_probability, counts
from devices.conformance.rows import memo_numbers, own_chances, pairs, take
from devices.conformance.rules import Rows
from lab.audit.events import events
from ldpstream.mechanisms import Mechanism

TWO_VALUES = "first reports of two values"
ONE_KEY = "first reports of two values with one memo key"


def memo_counts(place: str, m: Mechanism, reports: Rows) -> list[BinomialCounts]:
    """Compares one pair of reports of each device, those of its first two values, with two memos and with one memo.

    The rival of two memos has one noise: its memos deviate from their values together. The rival of one memo has two.
    """
    if not m.memoized or m.fakes > 1:
        return []
    of_value = reports.devices * 2**31 + reports.values
    first = take(reports, np.sort(np.unique(of_value, return_index=True)[1]))
    left, right = pairs(first.devices)
    one, two = take(first, left), take(first, right)
    keys = memo_numbers(m, first)
    same = keys[left] == keys[right]
    yes = events(m).supports(one.rows, one.values) & events(m).supports(two.rows, two.values)
    apart, together = own_chances(m, one.values) * own_chances(m, two.values), events(m).own_chances(one.values, 2)
    both = "both support their values"
    found = [
        by_probability(place, f"{TWO_VALUES}: {both}", yes[~same], apart[~same], together[~same]),
        by_probability(place, f"{ONE_KEY}: {both}", yes[same], together[same], apart[same]),
    ]
    by_values = m.pure and m.choices is None and m.n_enrolments == 1 and m.k > 2
    return found + _other_values(place, m, one, two) if by_values else found


def _other_values(place: str, m: Mechanism, one: Rows, two: Rows) -> list[BinomialCounts]:
    n = one.values.size
    low, high = np.minimum(one.values, two.values), np.maximum(one.values, two.values)
    third = np.arange(n) % (m.k - 2)
    third += third >= low
    third += third >= high
    found = []
    for which, values, chance in (
        ("the first value", one.values, m.p * m.q),
        ("the second value", two.values, m.p * m.q),
        ("a third value", third, m.q**2),
    ):
        yes = events(m).supports(one.rows, values) & events(m).supports(two.rows, values)
        found.append(counts(place, f"{TWO_VALUES}: both support {which}", yes.sum(), n, chance))
    if events(m).independent_bits:
        set_in_both = int(np.bitwise_count(one.rows & two.rows).sum(dtype=np.int64))
        own = sum(
            int((events(m).supports(one.rows, v) & events(m).supports(two.rows, v)).sum()) for v in (one.values, two.values)
        )
        found.append(counts(place, f"{TWO_VALUES}: other bits set in both", set_in_both - own, n * (m.k - 2), m.q**2))
    return found
