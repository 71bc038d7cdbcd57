"""Computes count tables from envelopes, by a pure, additive function.

    tally(survey, a + b) == tally(survey, a) + tally(survey, b)

Either all reports of an envelope are counted, or none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress, pairwise
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from ldpstream.engines.checkpoint import PaneKey, sum_tables
from ldpstream.mechanisms import CountTable, Mechanism
from ldpstream.mechanisms.arguments import IntArray
from ldpstream.surveys import Reason, Rejected, Survey, open_envelope
from ldpstream.surveys.envelope import AnyEnvelope
from ldpstream.surveys.envelope_groups import open_groups


class Record(NamedTuple):
    """One record of the log.

    Attributes:
        appended_ms: append time in Unix milliseconds.
        value: the envelope; empty if the record is a marker, which is neither counted nor rejected.
        key: the value of the record's `key` header; empty if there is no such header; `MALFORMED_KEY` if the header is empty or
            repeated.
    """

    offset: int
    appended_ms: int
    value: bytes
    key: bytes = b""


@dataclass(frozen=True, slots=True)
class Tally:
    """The counts of a batch of records.

    Attributes:
        counts: the count table of every pane with at least one accepted envelope.
        rejected: offset and reason of every rejected envelope, in the order of the records.
        duplicates, not_remembered: as in `agents.fold.FoldResult`; 0 if the report keys are ignored.
    """

    counts: dict[PaneKey, CountTable] = field(default_factory=dict)
    rejected: list[tuple[int, Reason]] = field(default_factory=list)
    duplicates: int = 0
    not_remembered: int = 0

    @property
    def reports(self) -> int:
        return sum(table.n for table in self.counts.values())

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            sum_tables([self.counts, other.counts]),
            self.rejected + other.rejected,
            self.duplicates + other.duplicates,
            self.not_remembered + other.not_remembered,
        )


class Records(Sequence[Record]):
    """Records as columns.

    Attributes:
        keys: `Record.key` of each record; None if no record has a `key` header, and after `without`.
    """

    __slots__ = ("appended_ms", "keys", "offsets", "values")

    def __init__(
        self,
        offsets: Sequence[int],
        appended_ms: Sequence[int],
        values: Sequence[bytes],
        keys: Sequence[bytes] | None = None,
    ) -> None:
        self.offsets, self.appended_ms, self.values, self.keys = offsets, appended_ms, values, keys

    @classmethod
    def of(cls, records: Sequence[Record]) -> "Records":
        if isinstance(records, Records):
            return records
        if not records:
            return cls((), (), ())
        offsets, appended_ms, values, keys = zip(*records, strict=True)
        return cls(offsets, appended_ms, values, keys if any(keys) else None)

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> "Records": ...
    def __getitem__(self, index: int | slice) -> "Record | Records":
        if isinstance(index, slice):
            keys = None if self.keys is None else self.keys[index]
            return Records(self.offsets[index], self.appended_ms[index], self.values[index], keys)
        return Record(self.offsets[index], self.appended_ms[index], self.values[index], self.keys[index] if self.keys else b"")

    def where(self, mask: npt.NDArray[np.bool_]) -> "Records":
        """Returns the records for which `mask` is true, without their keys."""
        kept = mask.tolist()
        offsets, appended_ms = tuple(compress(self.offsets, kept)), tuple(compress(self.appended_ms, kept))
        return Records(offsets, appended_ms, tuple(compress(self.values, kept)))

    def by_step(self, survey: Survey) -> "Iterator[Records]":
        if not len(self):
            return
        if survey.step_at(self.appended_ms[0]) == survey.step_at(self.appended_ms[-1]):
            yield self
            return
        steps = (np.asarray(self.appended_ms, np.int64) - survey.start_ms) // survey.step_ms
        for first, last in pairwise([0, *(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(self)]):
            yield self[first:last]


@dataclass(slots=True)
class _Pane:
    positions: list[IntArray | list[int]] = field(default_factory=list)  # for each run, the envelopes' positions in the batch
    n: list[int] = field(default_factory=list)  # for each run, the number of reports in each of its envelopes
    payloads: list[bytes] = field(default_factory=list)  # for each run, the joined payloads


def tally(survey: Survey, records: Sequence[Record]) -> Tally:
    """Counts the reports of the records.

    Report keys are ignored: `agents.remembered_keys.tally_once` counts each key once.

    Args:
        records: the append time determines whether a report is late. Markers are skipped.
    """
    batch = Records.of(records)
    panes: dict[PaneKey, _Pane] = {}
    refused: list[tuple[int, Reason]] = []

    def add(envelope: AnyEnvelope, positions: IntArray | list[int], payload: bytes) -> None:
        key = PaneKey(envelope.attribute, envelope.level, envelope.step, envelope.cohort)
        if (pane := panes.get(key)) is None:
            pane = panes[key] = _Pane()
        pane.positions.append(positions)
        pane.n.append(envelope.n)
        pane.payloads.append(payload)

    groups, left = open_groups(survey, batch.values, batch.appended_ms)
    for group in groups:
        add(*group)
    for position in left:
        if not batch.values[position]:
            continue
        try:
            envelope = open_envelope(survey, batch.values[position], batch.appended_ms[position])
        except Rejected as rejected:
            refused.append((position, rejected.reason))
        else:
            add(envelope, [position], envelope.payload)
    counts: dict[PaneKey, CountTable] = {}
    for key, pane in panes.items():
        mechanism = survey.mechanisms[key.attribute][key.level]
        table, bad = _count(mechanism, pane)
        if table.n:
            counts[key] = table
        refused += [(position, mechanism.invalid) for position in bad]
    refused.sort()
    return Tally(counts, [(batch.offsets[position], reason) for position, reason in refused])


def _count(mechanism: Mechanism, pane: _Pane) -> tuple[CountTable, list[int]]:
    row = mechanism.report_dtype
    joined = pane.payloads[0] if len(pane.payloads) == 1 else b"".join(pane.payloads)
    rows = np.frombuffer(joined, row.base).reshape(-1, *row.shape)
    try:
        return mechanism.tabulate(rows), []
    except ValueError:  # tabulate checks every row; a separate check would read all rows twice
        valid = mechanism.valid(rows)
    positions = np.concatenate(pane.positions)
    sizes = np.repeat(pane.n, [len(run) for run in pane.positions])  # number of reports of each envelope, at least 1
    sound = np.logical_and.reduceat(valid, np.concatenate(([0], np.cumsum(sizes)[:-1])))
    return mechanism.tabulate(rows[np.repeat(sound, sizes)]), positions[~sound].tolist()
