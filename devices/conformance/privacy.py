"""The empirical privacy audit of a device's reports: attacks as in `checks.audit`, on the rows that the device emitted."""

from dataclasses import dataclass

import numpy as np

from devices.conformance.rules import Rows
from lab.audit.audit import Supports, attack
from lab.audit.events import events
from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import IntArray

VALUES = 4  # values that the attack distinguishes: those that most devices hold
MOST = 10  # reports of one value
LEAST = 200  # devices for each of two values


@dataclass(frozen=True, slots=True)
class Bound:
    """One audited loss.

    Attributes:
        t: number of reports of an unchanged value.
        bound: audited lower bound, in nats; None if the sample is too small for an attack.
        n: devices with the two values of the attack.
    """

    place: str
    t: int
    claimed: float
    bound: float | None
    n: int

    @property
    def kept(self) -> bool:
        return self.bound is None or self.bound <= self.claimed


def audit_rows(place: str, m: Mechanism, reports: Rows, alpha: float) -> list[Bound]:
    """Bounds the loss of one report and of several reports of an unchanged value, each with error probability alpha / 2."""
    device, found = m.device, []
    for t in sorted({1, _reports_of_a_value(reports)}):
        counts = _supports(m, reports, t)
        claimed = device.eps_1 if t == 1 else device.eps_t(t)
        if len(counts) < 2:
            found.append(Bound(place, t, claimed, None, 0))
            continue
        bound, (a, b), *_ = attack(counts, t, alpha / 2)
        found.append(Bound(place, t, claimed, bound, len(counts[a]) + len(counts[b])))
    return found


def _groups(reports: Rows) -> tuple[IntArray, IntArray, IntArray]:
    groups = reports.devices * 2**31 + reports.values
    order = np.argsort(groups, kind="stable")
    begins = np.flatnonzero(np.diff(groups[order], prepend=-1))
    return order, begins, np.diff(begins, append=order.size)


def _reports_of_a_value(reports: Rows) -> int:
    order, begins, sizes = _groups(reports)
    most = np.zeros(int(reports.devices.max()) + 1, np.int64)
    np.maximum.at(most, reports.devices[order[begins]], sizes)
    return int(min(np.median(most[most > 0]), MOST))


def _supports(m: Mechanism, reports: Rows, t: int) -> dict[int, Supports]:
    order, begins, sizes = _groups(reports)
    begins = begins[sizes >= t]
    devices = reports.devices[order[begins]]
    begins = begins[np.sort(np.unique(devices, return_index=True)[1])]
    held = reports.values[order[begins]]
    different, number = np.unique(held, return_counts=True)
    most = np.argsort(-number, kind="stable")[:VALUES]
    chosen = different[most[number[most] >= LEAST]].tolist()
    counts: dict[int, Supports] = {}
    for place, value in enumerate(chosen):
        mine = begins[held == value]
        total = np.zeros((mine.size, len(chosen)), np.uint8)
        for i in range(t):
            rows = reports.rows[order[mine + i]]
            for column, other in enumerate(chosen):
                total[:, column] += events(m).supports(rows, np.full(mine.size, other))
        counts[place] = total
    return counts
