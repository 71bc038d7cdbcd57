"""The distribution of the reports of one attribute and level, compared with the mechanism's channel.

Only independent reports are counted together, so the counts of a correct device are binomial. Two reports of a memo are
compared with the exact distribution of such pairs:

    Pr[both reports support v] = A = a p₂² + (1-a) q₂²     if v was encoded,   (a, b, p₂, q₂) as in `Mechanism.rounds`
                                 B = b p₂² + (1-b) q₂²     otherwise

A one-time mechanism has a = 1 and b = 0: its reports must be independent. With fake data (rs+fd), a device encodes a fake value
with probability 1 - 1/d, and every formula is the mixture.
"""

import numpy as np

from devices.conformance.binomial import CELLS, BinomialCounts, by_probability, counts, uniform, uniform_given
from devices.conformance.rules import Rows
from devices.conformance.sets import pairs_of_sets, reports_of_sets
from lab.audit.events import events
from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray

HELD = "reports that support the device's value"
FIRST_TWO = "first two reports of a value"
SIGNAL_SHARE = 4  # a test of `HELD` must be able to detect a change of p by (p - q) / SIGNAL_SHARE
DISTANCES = (1, 8)  # between the two bits of a pair; 8 finds a byte that is used again


def channel_counts(place: str, m: Mechanism, reports: Rows) -> list[BinomialCounts]:
    fresh = _independent(m, reports)
    if m.choices is not None:
        return [*reports_of_sets(place, HELD, 1 / SIGNAL_SHARE, m, fresh), *_repeated(place, m, reports)]
    return [
        *_held_value(place, m, fresh),
        *_other_values(place, m, one_of_each(fresh) if m.n_enrolments > 1 else fresh),
        *_outcomes(place, m, fresh),
        *_functions(place, m, reports),
        *_bit_pairs(place, m, fresh),
        *_repeated(place, m, reports),
    ]


def take(reports: Rows, positions: IntArray) -> Rows:
    return Rows(reports.devices[positions], reports.values[positions], reports.steps[positions], reports.rows[positions])


def one_of_each(reports: Rows) -> Rows:
    return take(reports, np.sort(np.unique(reports.devices, return_index=True)[1]))


def _independent(m: Mechanism, reports: Rows) -> Rows:
    if m.fakes > 1:
        return one_of_each(reports)
    if not m.memoized:
        return reports
    return take(reports, np.sort(np.unique(memo_numbers(m, reports), return_index=True)[1]))


def memo_numbers(m: Mechanism, reports: Rows) -> IntArray:
    """(n,) a number for each report, equal for reports of one device and memo key."""
    hashed = events(m).functions(reports.rows)
    enrolment = np.zeros(reports.values.size, np.int64) if hashed is None else hashed[0]
    return reports.devices * 2**31 + m.memo_keys(reports.values, enrolment)


# ---- one report


def _mixed(m: Mechanism, chances: tuple[FloatArray, FloatArray]) -> FloatArray:
    own, fake = chances
    return np.asarray((own + (m.fakes - 1) * fake) / m.fakes)


def held_chances(m: Mechanism) -> FloatArray:
    """(k,) the probability for each value that a report of a device with this value supports it."""
    return _mixed(m, events(m).support_chances())


def own_chances(m: Mechanism, values: IntArray) -> FloatArray:
    """(n,) the probability for each device with these values that a report supports its value."""
    return events(m).own_chances(values) if m.choices is not None else held_chances(m)[values]


def _held_value(place: str, m: Mechanism, fresh: Rows) -> list[BinomialCounts]:
    yes, expected = events(m).supports(fresh.rows, fresh.values), held_chances(m)
    by_value, hits = (np.bincount(v, minlength=m.k) for v in (fresh.values, fresh.values[yes]))
    weaker = expected - events(m).contrast / m.fakes / SIGNAL_SHARE
    return [
        by_probability(place, HELD, yes, expected[fresh.values], weaker[fresh.values]),
        counts(place, "the same, for each value", hits, by_value, expected),
    ]


def _other_values(place: str, m: Mechanism, fresh: Rows) -> list[BinomialCounts]:
    if not m.pure:
        return []
    own = fresh.values[events(m).supports(fresh.rows, fresh.values)]
    support = m.device.support(m.device.tabulate(fresh.rows)) - np.bincount(own, minlength=m.k)
    trials = fresh.values.size - np.bincount(fresh.values, minlength=m.k)
    found = [counts(place, "reports that support another value, for each value", support, trials, m.q)]
    if m.k**2 <= CELLS:
        found.append(
            counts(place, "reports that support another value, for each pair of values", *_pairs_of_values(m, fresh), m.q)
        )
    if events(m).independent_bits and m.fakes == 1:
        found.append(counts(place, "bits of other values that are set", support.sum(), trials.sum(), m.q))
    return found


def _pairs_of_values(m: Mechanism, fresh: Rows) -> tuple[IntArray, IntArray]:
    seen = np.array([m.device.support(m.device.tabulate(fresh.rows[fresh.values == v])) for v in range(m.k)])
    trials = np.bincount(fresh.values, minlength=m.k)[:, None] * (1 - np.eye(m.k, dtype=np.int64))
    return np.where(trials > 0, seen, 0), trials


def _outcomes(place: str, m: Mechanism, fresh: Rows) -> list[BinomialCounts]:
    found = [uniform(place, *part) for part in events(m).uniform_parts(fresh.rows, fresh.values)]
    columns = events(m).outcomes(fresh.rows)
    if columns is not None and m.k * m.table_shape[0] <= CELLS:
        channel = m.channel()
        seen = np.bincount(fresh.values * channel.shape[1] + columns, minlength=channel.size).reshape(channel.shape)
        found.append(counts(place, "each cell, for each value", seen, seen.sum(axis=1)[:, None], channel))
    return found


def _functions(place: str, m: Mechanism, reports: Rows) -> list[BinomialCounts]:
    kept = m.n_enrolments > 1
    chosen = one_of_each(reports) if kept else reports
    hashed = events(m).functions(chosen.rows)
    if hashed is None:
        return []
    numbers, n = hashed
    check = "number of the hash function"
    found = [uniform(place, check, numbers, n), uniform_given(place, check, numbers, n, chosen.values, m.k)]
    if not kept:
        first, second = pairs(reports.devices)
        same = (numbers[first] == numbers[second]).sum()
        found.append(counts(place, "two reports with one hash function", same, first.size, 1 / n))
    return found


def _bit_pairs(place: str, m: Mechanism, fresh: Rows) -> list[BinomialCounts]:
    k, d = m.k, m.fakes
    if (chances := events(m).pair_chances()) is None:
        return []
    with_value, without = chances

    def mixed(true: float) -> float:
        return true / d + (1 - 1 / d) * (2 / k * with_value + (1 - 2 / k) * without)

    place_in_row = np.arange(fresh.values.size)
    other = (fresh.values + 1 + place_in_row % (k - 1)) % k
    own = events(m).supports(fresh.rows, fresh.values)
    both = own & events(m).supports(fresh.rows, other)
    found = [counts(place, "the device's bit and another bit both set", both.sum(), both.size, mixed(with_value))]
    for distance in DISTANCES:
        if distance + 1 < k:
            first = 1 + place_in_row % (k - 1 - distance)
            one, two = ((fresh.values + offset) % k for offset in (first, first + distance))
            both = events(m).supports(fresh.rows, one) & events(m).supports(fresh.rows, two)
            check = f"two other bits at distance {distance} both set"
            found.append(counts(place, check, both.sum(), both.size, mixed(without)))
    return found


# ---- two reports


def pairs(groups: IntArray) -> tuple[IntArray, IntArray]:
    order = np.argsort(groups, kind="stable")
    begins = np.flatnonzero(np.diff(groups[order], prepend=-1))
    begins = begins[np.diff(begins, append=order.size) > 1]
    return order[begins], order[begins + 1]


def ends(groups: IntArray) -> tuple[IntArray, IntArray]:
    order = np.argsort(groups, kind="stable")
    begins = np.flatnonzero(np.diff(groups[order], prepend=-1))
    sizes = np.diff(begins, append=order.size)
    begins, sizes = begins[sizes > 2], sizes[sizes > 2]
    return order[begins], order[begins + sizes - 1]


def _repeated(place: str, m: Mechanism, reports: Rows) -> list[BinomialCounts]:
    held = reports.devices * 2**31 + reports.values  # not the memos: their number of reports would tell which hashes are equal
    found = []
    for which, (first, second) in ((FIRST_TWO, pairs(held)), ("first and last reports of a value", ends(held))):
        if m.fakes > 1 or m.n_enrolments > 1:  # pairs of one device share the fake value or a memo: one pair of each device
            kept = np.sort(np.unique(reports.devices[first], return_index=True)[1])
            first, second = first[kept], second[kept]
        found += _two_reports(place, which, m, take(reports, first), take(reports, second))
    return found


def _two_reports(place: str, which: str, m: Mechanism, first: Rows, second: Rows) -> list[BinomialCounts]:
    if m.choices is not None:
        return pairs_of_sets(place, which, m, first.values, first, second)
    device, n = m.device, first.values.size
    both = events(m).supports(first.rows, first.values) & events(m).supports(second.rows, first.values)
    encoded = (1 + (m.fakes - 1) / m.k) / m.fakes  # probability that the device encoded the value
    rival = np.full(n, encoded * device.p**2 + (1 - encoded) * device.q**2) if m.memoized else None
    expected = _mixed(m, events(m).support_chances(2))[first.values]
    found = [by_probability(place, f"{which}: both support the value", both, expected, rival)]
    if m.pure:
        found += _other_pairs(place, which, m, first, second)
    if (equal := events(m).equal_chances()) is not None:
        same = first.rows == second.rows
        same = same.all(axis=tuple(range(1, same.ndim)))
        kept, fresh = equal
        found.append(counts(place, f"{which}: equal reports", same.sum(), n, kept, fresh if m.memoized else None))
    return found


def _other_pairs(place: str, which: str, m: Mechanism, first: Rows, second: Rows) -> list[BinomialCounts]:
    a, b, p2, q2 = m.device.rounds()
    both, neither = a * p2**2 + (1 - a) * q2**2, b * p2**2 + (1 - b) * q2**2
    p, q = m.device.p, m.device.q
    k, n = m.k, first.values.size
    encoded = (1 - 1 / m.fakes) / k
    others = (first.values + 1 + np.arange(n) % (k - 1)) % k
    yes = events(m).supports(first.rows, others) & events(m).supports(second.rows, others)
    expected, fresh = (encoded * one + (1 - encoded) * other for one, other in ((both, neither), (p**2, q**2)))
    rival = fresh if m.memoized else None
    found = [counts(place, f"{which}: both support another value", yes.sum(), n, expected, rival)]
    if events(m).independent_bits and m.fakes == 1:
        set_in_both = int(np.bitwise_count(first.rows & second.rows).sum(dtype=np.int64))
        own = int((events(m).supports(first.rows, first.values) & events(m).supports(second.rows, first.values)).sum())
        check = f"{which}: other bits set in both"
        found.append(counts(place, check, set_in_both - own, n * (k - 1), neither, q**2 if m.memoized else None))
    return found
