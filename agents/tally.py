"""From envelopes to count tables: a pure, additive fold.

    tally(survey, a + b) == tally(survey, a) + tally(survey, b)

An envelope counts whole or not at all: one row that no device could have sent rejects it, and it changes no count.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from mechanisms import CountTable, Mechanism
from surveys import Reason, Rejected, Survey, open_envelope


class PaneKey(NamedTuple):
    """What one count table counts: the reports of an attribute, at a level, of a time step. Indices as in the survey."""

    attribute: int
    level: int
    step: int


class Record(NamedTuple):
    """One record of the log: its offset in the partition, when the log took it, and the envelope."""

    offset: int
    appended_ms: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Tally:
    """What a batch of records adds.

    Attributes:
        counts: count table of every pane that at least one accepted envelope belongs to.
        rejected: offset and reason of every envelope that was refused, in the order of the records.
    """

    counts: dict[PaneKey, CountTable] = field(default_factory=dict)
    rejected: list[tuple[int, Reason]] = field(default_factory=list)

    @property
    def reports(self) -> int:
        """Number of reports counted."""
        return sum(table.n for table in self.counts.values())

    def __add__(self, other: "Tally") -> "Tally":
        counts = dict(self.counts)
        for key, table in other.counts.items():
            counts[key] = counts[key] + table if key in counts else table
        return Tally(counts, self.rejected + other.rejected)


@dataclass(slots=True)
class _Pane:
    positions: list[int] = field(default_factory=list)  # of the records in the batch
    payloads: list[bytes] = field(default_factory=list)


def tally(survey: Survey, records: Sequence[Record]) -> Tally:
    """Count the reports of the records.

    The payloads of a pane are read, checked and counted together, with one NumPy call each.

    Args:
        survey: the survey that is being counted.
        records: envelopes with the append times by which their lateness is judged.
    """
    panes: dict[tuple[int, int, int], _Pane] = {}
    refused: list[tuple[int, Reason]] = []
    for position, (_, appended_ms, value) in enumerate(records):
        try:
            envelope = open_envelope(survey, value, appended_ms)
        except Rejected as rejected:
            refused.append((position, rejected.reason))
            continue
        key = (envelope.attribute, envelope.level, envelope.step)
        if (pane := panes.get(key)) is None:
            pane = panes[key] = _Pane()
        pane.positions.append(position)
        pane.payloads.append(envelope.payload)
    counts: dict[PaneKey, CountTable] = {}
    for (attribute, level, step), pane in panes.items():
        mechanism = survey.mechanisms[attribute][level]
        table, bad = _count(mechanism, pane.payloads)
        if table.n:
            counts[PaneKey(attribute, level, step)] = table
        refused += [(pane.positions[index], mechanism.invalid) for index in bad]
    refused.sort()
    return Tally(counts, [(records[position].offset, reason) for position, reason in refused])


def _count(mechanism: Mechanism, payloads: list[bytes]) -> tuple[CountTable, list[int]]:
    """The table of the payloads that are whole reports of the mechanism, and the indices of those that are not."""
    row = mechanism.report_dtype
    joined = payloads[0] if len(payloads) == 1 else b"".join(payloads)
    rows = np.frombuffer(joined, row.base).reshape(-1, *row.shape)
    try:
        return mechanism.tabulate(rows), []
    except ValueError:  # tabulate has checked every row, so a check of our own beforehand would read them all twice
        valid = mechanism.valid(rows)
    sizes = [len(payload) // row.itemsize for payload in payloads]  # none is 0
    sound = np.logical_and.reduceat(valid, np.concatenate(([0], np.cumsum(sizes)[:-1])))
    return mechanism.tabulate(rows[np.repeat(sound, sizes)]), np.flatnonzero(~sound).tolist()
