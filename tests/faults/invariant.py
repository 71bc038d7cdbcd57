"""The invariant of a run:

    what is stored of a partition is the direct tally of its records below the stored offset, to the last report;
    no record is passed over, unless retention has removed it;
    every refused envelope is in the dead-letter topic before the commit that covers it;
    every publication that says complete holds every acknowledged report of its steps, and no other;
    in the end all is stored, and every step is published complete.

The direct tally is that of `tests.agents.reference`, which shares no code with the service.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from agents.tally import PaneKey, Record
from estimators.publication import Frequencies, Publication
from mechanisms import CountTable
from surveys import Survey
from tests.agents.reference import Counted, judge

from .memory_log import SURVEY, MemoryLog
from .memory_redis import MemoryRedis, Range


class Violation(AssertionError):
    """The invariant does not hold."""


class Tallied(NamedTuple):
    """By pane the number of reports and the counts, and refused envelopes by reason."""

    panes: dict[PaneKey, tuple[int, tuple[int, ...]]]
    rejected: dict[str, int]


class Invariant:
    """Compares what a count store holds, and what was published, with the log."""

    def __init__(self, log: MemoryLog, redis: MemoryRedis) -> None:
        self._log, self._redis = log, redis

    def acknowledged(self) -> Tallied:
        """The direct tally of all that was ever acknowledged."""
        return self._tally({partition: [(0, len(log))] for partition, log in enumerate(self._log.records)})

    def check_counts(self) -> None:
        """What is stored is what the records below the stored offsets add up to."""
        for partition, checkpoint in self._redis.store.snapshot().items():
            ranges = self._redis.lineage[partition]
            self._check_ranges(partition, ranges, checkpoint.next_offset)
            expected = self._tally({partition: ranges})
            stored = {key: numbers_of(table) for key, table in checkpoint.panes.items() if table.n}
            for key in sorted(expected.panes.keys() | stored.keys()):
                want, have = expected.panes.get(key), stored.get(key)
                if want != have and key.step >= self._redis.pruned_before:
                    raise Violation(f"partition {partition}: {key} {_compared(want, have)}")
            if expected.rejected != checkpoint.rejected:
                raise Violation(f"partition {partition}: rejected {checkpoint.rejected}, should be {expected.rejected}")

    def check_letters(self, partition: int) -> None:
        """The dead letters of all records that went into what is stored have been taken."""
        for record, found in judged_in_order(SURVEY, self._records(partition, self._redis.lineage[partition])):
            if isinstance(found, str) and (partition, record.offset, found) not in self._log.letters:
                raise Violation(f"partition {partition}: committed before the dead letter of offset {record.offset}")

    def check_told(self, told: Sequence[Publication]) -> None:
        """Publications that say complete are so, but for records that retention removed before Redis lost their counts."""
        if any(p.complete for p in told):
            truth, gone = self.acknowledged(), self._gone()
            for p in told:
                if (
                    p.complete
                    and gone.isdisjoint(steps_of(p))
                    and truth_of(SURVEY, truth, p) != p.estimators["raw"].frequencies[1:]
                ):
                    raise Violation(
                        f"published complete: {p.key} with {p.reports} reports, should be {truth_of(SURVEY, truth, p)[0]:.0f}"
                    )

    def check_end(self, told: Sequence[Publication], last_step: int) -> None:
        """Every step is published complete, and what was told last is what is kept."""
        progress = self._redis.progress()
        if progress is None:
            if self.acknowledged().panes and not any(self._log.begins):
                raise Violation("nothing was ever published")
            return
        if progress.next_step <= last_step or (progress.incomplete and not self._gone()):
            raise Violation(f"not published in the end: {progress} of {last_step}")
        latest = {p.key: p for p in told}
        for kept in self._redis.results.history():
            if latest[kept.key] != kept or not (kept.complete or self._gone()):
                raise Violation(f"told last: {latest[kept.key]}, kept: {kept}")

    def _check_ranges(self, partition: int, ranges: Sequence[Range], next_offset: int) -> None:
        begin = self._log.begins[partition]
        for (_, end), (first, _) in pairwise([(0, 0), *ranges, (next_offset, next_offset)]):
            passed = [record.offset for record in self._log.records[partition][end:first] if record is not None]
            if first < end or any(offset >= begin for offset in passed):
                raise Violation(f"partition {partition}: counted {ranges} below {next_offset}, the log begins at {begin}")

    def _gone(self) -> set[int]:
        """Steps of which records have expired and are not counted any more, because Redis lost them after that."""
        gone = set()
        for partition, begin in enumerate(self._log.begins):
            counted = {i for first, end in self._redis.lineage.get(partition, []) for i in range(first, end)}
            expired = [(i, i + 1) for i in range(begin) if i not in counted]
            gone |= {key.step for key in self._tally({partition: expired}).panes}
        return gone

    def _records(self, partition: int, ranges: Sequence[Range]) -> list[Record]:
        log = self._log.records[partition]
        return [record for first, end in ranges for record in log[first:end] if record is not None]

    def _tally(self, ranges: dict[int, list[Range]]) -> Tallied:
        return direct_tally(SURVEY, [self._records(partition, parts) for partition, parts in ranges.items()])


def direct_tally(survey: Survey, partitions: Sequence[Sequence[Record]]) -> Tallied:
    """What the records of some partitions add up to, by the slow reference."""
    n: Counter[PaneKey] = Counter()
    counts: dict[PaneKey, Any] = {}
    rejected: Counter[str] = Counter()
    for records in partitions:
        for _, found in judged_in_order(survey, records):
            if isinstance(found, str):
                rejected[found] += 1
            else:
                key, reports, added = found
                n[key] += reports
                counts[key] = counts[key] + added if key in counts else added
    return Tallied({key: (n[key], tuple(counts[key].tolist())) for key in counts}, dict(rejected))


def judged_in_order(survey: Survey, records: Sequence[Record]) -> list[tuple[Record, tuple[PaneKey, int, Any] | str]]:
    """The records of a partition with what each counts, or why it is refused; judged by append times that never fall."""
    judgement = _judgement(survey)
    newest, found = 0, []
    for record in records:
        newest = max(newest, record.appended_ms)
        found.append((record, judgement(record.value, newest)))
    return found


@cache
def _judgement(survey: Survey) -> Callable[[bytes, int], tuple[PaneKey, int, Any] | str]:
    @cache
    def judged(value: bytes, appended_ms: int) -> tuple[PaneKey, int, Any] | str:
        found = judge(survey, value, appended_ms)
        return (PaneKey(*found.pane), found.n, np.array(found.counts)) if isinstance(found, Counted) else found

    return judged


def _compared(want: tuple[int, Any] | None, have: tuple[int, Any] | None) -> str:
    wanted, held = (0 if numbers is None else numbers[0] for numbers in (want, have))
    what = "lost" if held < wanted else "doubled" if held > wanted else "changed"
    return f"{what}: {held} reports stored, {wanted} acknowledged"


def numbers_of(table: CountTable) -> tuple[int, tuple[int, ...]]:
    """A count table as in `Tallied`."""
    return table.n, tuple(table.counts.ravel().tolist())


# ---- publications that hold counts, so that they can be compared exactly and made quickly


def conclude(
    survey: Survey, attribute: int, step: int, span: Any, panes: list[list[CountTable]], complete: bool, *_: object
) -> Publication:
    """In place of the estimates the counts that they would be made from: the number of panes, then level by level."""
    tables = [sum((pane[i] for pane in panes[1:]), panes[0][i]) for i in range(len(panes[0]))]
    numbers = [float(x) for table in tables for x in (table.n, *table.counts.ravel().tolist())]
    result = Frequencies(frequencies=[float(len(panes)), *numbers], standard_errors=[], iterations=0, converged=True)
    return Publication(
        survey=survey.name, fingerprint="", attribute=survey.attributes[attribute].name, step=step, span=span,
        panes=len(panes), reports=sum(table.n for table in tables), complete=complete, estimators={"raw": result}, privacy={},
    )  # fmt: skip


def steps_of(p: Publication) -> range:
    """The steps that such a publication says to hold."""
    return range(p.step - p.panes + 1, p.step + 1)


def truth_of(survey: Survey, truth: Tallied, p: Publication) -> list[float]:
    """What `conclude` should have found, after the number of panes."""
    attribute = next(i for i, asked in enumerate(survey.attributes) if asked.name == p.attribute)
    numbers: list[float] = []
    for level, mechanism in enumerate(survey.mechanisms[attribute]):
        total = np.zeros(1 + int(np.prod(mechanism.table_shape)))
        for step in steps_of(p):
            n, counts = truth.panes.get(PaneKey(attribute, level, step), (0, (0,)))
            total += [n, *counts] if n else 0
        numbers += total.tolist()
    return numbers
