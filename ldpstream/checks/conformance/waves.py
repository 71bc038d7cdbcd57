"""The distribution of the reports of Square Wave, compared with its channel (`mechanisms.square_wave`).

A report of the value v is one of the L cells near v with probability P = L p, each equally often, else one of the k-1 other
cells, each equally often. Reports are independent given the values. With fake data (rs+fd), a device encodes a uniform fake
value u with probability 1 - 1/d and keeps u. With N[u, v] = Pr[near v | u]:

    Pr[near v] = N[v, v] / d + (1 - 1/d) mean over u of N[u, v]
    Pr[two reports near v] = N[v, v]² / d + (1 - 1/d) mean over u of N[u, v]²
"""

import numpy as np

from ldpstream.checks.conformance.binomial import CELLS, Counts, by_probability, counts, uniform
from ldpstream.checks.conformance.rows import FIRST_TWO, HELD, SIGNAL_SHARE, ends, one_of_each, pairs, take
from ldpstream.checks.conformance.rules import Rows
from ldpstream.checks.conformance.supports import near_chances, support_one
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.square_wave import SquareWave


def wave_counts(place: str, m: SquareWave, reports: Rows) -> list[Counts]:
    """Compares reports with the channel, and pairs of reports of one value with the distribution of such pairs."""
    fresh = reports if m.fakes == 1 else one_of_each(reports)
    return [*_near(place, m, fresh), *_which_cell(place, m, fresh), *_two_reports(place, m, reports)]


def _mixed(m: SquareWave, chances: FloatArray) -> FloatArray:
    """(k,) from (k, k) chances at [encoded value, value]: with the true value in one of d attributes, else a fake value."""
    return np.asarray((chances.diagonal() + (m.fakes - 1) * chances.mean(axis=0)) / m.fakes)


def _near(place: str, m: SquareWave, fresh: Rows) -> list[Counts]:
    near, expected = support_one(m, fresh.rows, fresh.values), _mixed(m, near_chances(m))
    weaker = expected - (m.keep - m.width * m.far) / SIGNAL_SHARE / m.fakes
    by_value, hits = (np.bincount(v, minlength=m.k) for v in (fresh.values, fresh.values[near]))
    return [
        by_probability(place, HELD, near, expected[fresh.values], weaker[fresh.values]),
        counts(place, "the same, for each value", hits, by_value, expected),
    ]


def _which_cell(place: str, m: SquareWave, fresh: Rows) -> list[Counts]:
    """The cells of the reports: all of them if there are few, else the cells near the value and the other cells."""
    found, cells = [], fresh.rows.astype(np.int64)
    if m.k * m.cells <= CELLS:
        seen = np.bincount(fresh.values * m.cells + cells, minlength=m.k * m.cells).reshape(m.k, m.cells)
        channel = m.device.channel()
        chances = (channel + (m.fakes - 1) * channel.mean(axis=0)) / m.fakes
        found.append(counts(place, "each cell, for each value", seen, seen.sum(axis=1)[:, None], chances))
    if m.fakes == 1:
        near = support_one(m, fresh.rows, fresh.values)
        other, values = cells[~near], fresh.values[~near]
        other -= m.width * (other >= values)
        found += [
            uniform(place, "which cell near the value", (cells - fresh.values)[near], m.width),
            uniform(place, "which other cell, from 0", other, m.k - 1),
            uniform(place, "which other cell, from the value", (other - values) % (m.k - 1), m.k - 1),
        ]
    return found


def _two_reports(place: str, m: SquareWave, reports: Rows) -> list[Counts]:
    """A device that keeps its report, or the cell's place near the value, sends equal cells too often."""
    held, found = reports.devices * 2**31 + reports.values, []
    both = _mixed(m, near_chances(m) ** 2)
    for which, (first, second) in ((FIRST_TWO, pairs(held)), ("first and last reports of a value", ends(held))):
        if m.fakes > 1:  # pairs of one device share the fake value: one pair of each device
            kept = np.sort(np.unique(reports.devices[first], return_index=True)[1])
            first, second = first[kept], second[kept]
        one, two = take(reports, first), take(reports, second)
        near = support_one(m, one.rows, one.values) & support_one(m, two.rows, two.values)
        equal = m.width * m.near**2 + (m.k - 1) * m.far**2
        found += [
            by_probability(place, f"{which}: both near the value", near, both[one.values]),
            counts(place, f"{which}: equal cells", (one.rows == two.rows).sum(), first.size, equal),
        ]
    return found
