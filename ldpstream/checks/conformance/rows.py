"""The distribution of the reports of one attribute and level, compared with the mechanism's channel.

All counts are exactly binomial if the device is correct, because only independent reports are counted together. Reports of one
memo are dependent: of each memo, one report counts for the channel. Two reports of a memo are compared with the exact
distribution of such pairs:

    Pr[both reports support v] = A = a p₂² + (1-a) q₂²     if v was encoded,   (a, b, p₂, q₂) as in `Mechanism.rounds`
                                 B = b p₂² + (1-b) q₂²     otherwise

A one-time mechanism has a = 1 and b = 0: its reports must be independent. With fake data (rs+fd), a device encodes a fake value
with probability 1 - 1/d, and every formula is the mixture.
"""

import numpy as np

from ldpstream.checks.conformance.binomial import Counts, counts, uniform
from ldpstream.checks.conformance.rules import Rows
from ldpstream.checks.conformance.supports import hashed, memo_keys, support_one, symbols
from ldpstream.mechanisms import Longitudinal, Mechanism
from ldpstream.mechanisms.arguments import IntArray
from ldpstream.mechanisms.subset import SubsetSelection
from ldpstream.mechanisms.unary import LongitudinalUnary, UnaryEncoding

HELD = "reports that support the device's value"
FIRST_TWO = "first two reports of a value"
SIGNAL_SHARE = 4  # a test of `HELD` must be able to detect a change of p by this part of p - q
DISTANCES = (1, 8)  # between the two bits of a pair; 8 finds a byte that is used again


def channel_counts(place: str, m: Mechanism, reports: Rows) -> list[Counts]:
    """Compares reports with the channel, and pairs of reports of one value with the distribution of such pairs."""
    fresh = _independent(m, reports)
    return [
        *_held_value(place, m, fresh),
        *_other_values(place, m, one_of_each(fresh) if _keeps_function(m) else fresh),
        *_other_symbols(place, m, fresh),
        *_functions(place, m, reports),
        *_bit_pairs(place, m, fresh),
        *_repeated(place, m, reports),
    ]


def take(reports: Rows, positions: IntArray) -> Rows:
    return Rows(reports.devices[positions], reports.values[positions], reports.steps[positions], reports.rows[positions])


def one_of_each(reports: Rows) -> Rows:
    """The first report of each device."""
    return take(reports, np.sort(np.unique(reports.devices, return_index=True)[1]))


def _independent(m: Mechanism, reports: Rows) -> Rows:
    """Reports that are independent given the values: all, the first of each memo, or the first of each device (fake data)."""
    if m.fakes > 1:
        return one_of_each(reports)
    if not isinstance(m, Longitudinal):
        return reports
    return take(reports, np.sort(np.unique(_memos(m, reports), return_index=True)[1]))


def _memos(m: Mechanism, reports: Rows) -> IntArray:
    """(n,) a number for each device and memo key."""
    return reports.devices * 2**31 + memo_keys(m, reports.rows, reports.values)


def _keeps_function(m: Mechanism) -> bool:
    return hashed(m) is not None and isinstance(m, Longitudinal)


# ---- one report


def _held_value(place: str, m: Mechanism, fresh: Rows) -> list[Counts]:
    yes, n = support_one(m, fresh.rows, fresh.values), fresh.values.size
    by_value, hits = (np.bincount(v, minlength=m.k) for v in (fresh.values, fresh.values[yes]))
    weaker = m.p - (m.p - m.q) / SIGNAL_SHARE
    return [
        counts(place, HELD, yes.sum(), n, m.p, weaker),
        counts(place, "the same, for each value", hits, by_value, m.p),
    ]


def _other_values(place: str, m: Mechanism, fresh: Rows) -> list[Counts]:
    own = fresh.values[support_one(m, fresh.rows, fresh.values)]
    support = m.device.support(m.device.tabulate(fresh.rows)) - np.bincount(own, minlength=m.k)
    trials = fresh.values.size - np.bincount(fresh.values, minlength=m.k)
    found = [counts(place, "reports that support another value, for each value", support, trials, m.q)]
    if _unary(m) and m.fakes == 1:
        found.append(counts(place, "bits of other values that are set", support.sum(), trials.sum(), m.q))
    return found


def _other_symbols(place: str, m: Mechanism, fresh: Rows) -> list[Counts]:
    """A report of another symbol shows each of the other symbols equally often, counted from 0 and from the encoded symbol.

    Not so with hashed fake values: some functions map the true and the fake value to symbols that depend on one another.
    """
    found = symbols(m, fresh.rows, fresh.values)
    if found is None or found.m < 3 or (hashed(m) is not None and m.fakes > 1):
        return []
    wrong = found.sent != found.encoded
    sent, encoded = found.sent[wrong], found.encoded[wrong]
    return [
        uniform(place, "which other symbol, from 0", sent - (sent > encoded), found.m - 1),
        uniform(place, "which other symbol, from the encoded one", (sent - encoded) % found.m - 1, found.m - 1),
    ]


def _functions(place: str, m: Mechanism, reports: Rows) -> list[Counts]:
    hashing = hashed(m)
    if hashing is None:
        return []
    kept = isinstance(hashing, Longitudinal)
    numbers = (one_of_each(reports) if kept else reports).rows["function"].astype(np.int64)
    found = [uniform(place, "number of the hash function", numbers, hashing.pool.size)]
    if not kept:
        first, second = pairs(reports.devices)
        functions = reports.rows["function"]
        same = (functions[first] == functions[second]).sum()
        found.append(counts(place, "two reports with one hash function", same, first.size, 1 / hashing.pool.size))
    return found


def _bit_pairs(place: str, m: Mechanism, fresh: Rows) -> list[Counts]:
    """Pairs of bits that are both set. Each row has one pair, and the rows go through all pairs."""
    k, d = m.k, m.fakes
    if _unary(m):
        p, q = m.device.p, m.device.q
        with_value, without = p * q, q * q
    elif isinstance(m.device, SubsetSelection):
        s, p = m.device, m.device.p
        with_value = p * (s.omega - 1) / (k - 1)
        without = (p * (s.omega - 1) * (s.omega - 2) + (1 - p) * s.omega * (s.omega - 1)) / ((k - 1) * max(k - 2, 1))
    else:
        return []

    def mixed(true: float) -> float:
        """The probability if a fake value may be encoded: then it is one of the two values with probability 2/k."""
        return true / d + (1 - 1 / d) * (2 / k * with_value + (1 - 2 / k) * without)

    place_in_row = np.arange(fresh.values.size)
    other = (fresh.values + 1 + place_in_row % (k - 1)) % k
    own = support_one(m, fresh.rows, fresh.values)
    both = own & support_one(m, fresh.rows, other)
    found = [counts(place, "the device's bit and another bit both set", both.sum(), both.size, mixed(with_value))]
    for distance in DISTANCES:
        if distance + 1 < k:
            first = 1 + place_in_row % (k - 1 - distance)
            one, two = ((fresh.values + offset) % k for offset in (first, first + distance))
            both = support_one(m, fresh.rows, one) & support_one(m, fresh.rows, two)
            check = f"two other bits at distance {distance} both set"
            found.append(counts(place, check, both.sum(), both.size, mixed(without)))
    return found


def _unary(m: Mechanism) -> bool:
    return isinstance(m.device, (UnaryEncoding, LongitudinalUnary))


# ---- two reports


def pairs(groups: IntArray) -> tuple[IntArray, IntArray]:
    """The positions of the first and of the second member of each group that has two."""
    order = np.argsort(groups, kind="stable")
    begins = np.flatnonzero(np.diff(groups[order], prepend=-1))
    begins = begins[np.diff(begins, append=order.size) > 1]
    return order[begins], order[begins + 1]


def ends(groups: IntArray) -> tuple[IntArray, IntArray]:
    """The positions of the first and of the last member of each group that has three or more."""
    order = np.argsort(groups, kind="stable")
    begins = np.flatnonzero(np.diff(groups[order], prepend=-1))
    sizes = np.diff(begins, append=order.size)
    begins, sizes = begins[sizes > 2], sizes[sizes > 2]
    return order[begins], order[begins + sizes - 1]


def _repeated(place: str, m: Mechanism, reports: Rows) -> list[Counts]:
    held = reports.devices * 2**31 + reports.values  # not the memos: their number of reports would tell which hashes are equal
    found = []
    for which, (first, second) in ((FIRST_TWO, pairs(held)), ("first and last reports of a value", ends(held))):
        if m.fakes > 1 or _keeps_function(m):  # pairs of one device share the fake value or a memo: one pair of each device
            kept = np.sort(np.unique(reports.devices[first], return_index=True)[1])
            first, second = first[kept], second[kept]
        found += _two_reports(place, which, m, take(reports, first), take(reports, second))
    return found


def _two_reports(place: str, which: str, m: Mechanism, first: Rows, second: Rows) -> list[Counts]:
    """Compares two reports of one memo. The rival of a check is a device that draws a fresh memo for every report."""
    a, b, p2, q2 = m.device.rounds()
    both, neither = a * p2**2 + (1 - a) * q2**2, b * p2**2 + (1 - b) * q2**2
    p, q = m.device.p, m.device.q
    k, n, true = m.k, first.values.size, 1 / m.fakes
    memoized = isinstance(m, Longitudinal)
    found = []

    def supported(check: str, values: IntArray, encoded: float) -> None:
        yes = support_one(m, first.rows, values) & support_one(m, second.rows, values)
        expected, fresh = (encoded * one + (1 - encoded) * other for one, other in ((both, neither), (p**2, q**2)))
        found.append(counts(place, f"{which}: {check}", yes.sum(), n, expected, fresh if memoized else None))

    supported("both support the value", first.values, true + (1 - true) / k)
    supported("both support another value", (first.values + 1 + np.arange(n) % (k - 1)) % k, (1 - true) / k)
    if _unary(m) and m.fakes == 1:
        set_in_both = int(np.bitwise_count(first.rows & second.rows).sum(dtype=np.int64))
        own = int((support_one(m, first.rows, first.values) & support_one(m, second.rows, first.values)).sum())
        check = f"{which}: other bits set in both"
        found.append(counts(place, check, set_in_both - own, n * (k - 1), neither, q**2 if memoized else None))
    one, two = (symbols(m, reports.rows, reports.values) for reports in (first, second))
    if one is not None and two is not None and (hashed(m) is None or memoized):
        same, s = (one.sent == two.sent).sum(), one.m
        other = (1 - p) / (s - 1)
        fresh = p**2 + (s - 1) * other**2 if memoized else None
        found.append(counts(place, f"{which}: equal symbols", same, n, p2**2 + (s - 1) * q2**2, fresh))
    return found
