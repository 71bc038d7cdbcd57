"""The invariant of a run:

    the stored counts of a partition equal the direct tally of the partition's records below the stored offset, exactly; of the
    accepted records with the same report key, only the first is counted;
    the stored report keys are as many as the checkpoint says, each once;
    no record of the log is skipped;
    every complete publication includes every acknowledged report of the publication's steps, and no other report, even if
    the report was appended after the publication;
    no publication is replaced by a less complete publication;
    a saved filter has seen each step once (at most once if Redis lost data), in order, and with the counts of the step's
    complete publication;
    in the end all records are counted, every step is published complete, and the topic and Redis hold the same publications.

The direct tally comes from `tests.agents.reference`, which shares no code with the service.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ldpstream.agents.tally import Record
from ldpstream.engines import PaneKey
from ldpstream.engines.checkpoint import STORED_KEY_BYTES, Checkpoint, first_open_step
from ldpstream.mechanisms import CountTable
from ldpstream.surveys import Survey
from tests.agents.reference import Counted, judge, judge_log

from .memory_log import SURVEY, MemoryLog
from .memory_redis import Lineage, MemoryRedis
from .memory_topic import MemoryTopic

UNCOUNTED = ("duplicate", "marker")  # neither counted nor rejected


class Violation(AssertionError):
    """The invariant does not hold."""


class Tallied(NamedTuple):
    """The number of reports and the counts of each pane, and the number of rejected envelopes for each reason."""

    panes: dict[PaneKey, tuple[int, tuple[int, ...]]]
    rejected: dict[str, int]


@dataclass(frozen=True)
class Published:
    """Replaces a publication. Contains counts instead of estimates, because counts can be compared exactly and fast.

    Attributes:
        steps: the steps of the counts.
        counts: the number of reports and the counts of each level.
        cohort: the cohort; None for all people.
    """

    attribute: int
    step: int
    span: str
    complete: bool
    steps: range
    counts: tuple[tuple[int, tuple[int, ...]], ...]
    cohort: str | None = None

    @property
    def key(self) -> str:
        of_all = f"{SURVEY.attributes[self.attribute].name}|{self.span}|{self.step}"
        return of_all if self.cohort is None else f"{of_all}|{self.cohort}"

    @property
    def reports(self) -> int:
        return sum(n for n, _ in self.counts)


class Invariant:
    """Compares the count store and the publications with the log."""

    def __init__(self, log: MemoryLog, redis: MemoryRedis, topic: MemoryTopic) -> None:
        self._log, self._redis, self._topic = log, redis, topic

    def acknowledged(self) -> Tallied:
        """Returns the direct tally of all records that were ever acknowledged."""
        return direct_tally(SURVEY, self._log.history)

    def check_counts(self) -> None:
        """Checks that the stored counts equal the tally of the records below the stored offsets."""
        for partition, checkpoint in self._redis.store.snapshot().items():
            self._check_lineage(partition, checkpoint)
            expected = tally_lineage(self._redis.lineage[partition])
            stored = {key: numbers_of(table) for key, table in checkpoint.panes.items() if table.n}
            for key in sorted(expected.panes.keys() | stored.keys()):
                want, have = expected.panes.get(key), stored.get(key)
                if want != have and key.step >= checkpoint.pruned_below:
                    raise Violation(f"partition {partition}: {key} {_compared(want, have)}")
            if expected.rejected != checkpoint.rejected:
                raise Violation(f"partition {partition}: rejected {checkpoint.rejected}, expected {expected.rejected}")
            self._check_keys(partition)

    def _check_keys(self, partition: int) -> None:
        checkpoint = self._redis.store._checkpoints[partition]
        for generation, n in checkpoint.n_keys.items():
            keys = checkpoint.keys.get(generation, b"")
            if not len(set(split(keys))) == len(keys) / STORED_KEY_BYTES == n:
                raise Violation(f"partition {partition}: {len(keys)} bytes of report keys, expected {n} keys")

    def check_told(self, first: int) -> None:
        """Checks all publications from number `first` on.

        A complete publication must include all reports. No publication may replace a more complete publication.
        """
        told = [p for _, p in self._topic.records]
        best = {p.key: p for p in told[:first]}
        for p in told[first:]:
            if (before := best.get(p.key)) and (before.complete, before.reports) > (p.complete, p.reports):
                raise Violation(f"a less complete publication: {before} was replaced by {p}")
            best[p.key] = p
        self._check_complete(told[first:])

    def _check_complete(self, told: list[Any]) -> None:
        if any(p.complete for p in told):
            truth = self.acknowledged()
            for p in told:
                if p.complete and p.counts != (should := truth_of(SURVEY, truth, p)):
                    have, want = (sum(n for n, _ in counts) for counts in (p.counts, should))
                    raise Violation(f"published complete: {p.key} with {have} reports, acknowledged {want}")

    def check_end(self, last_step: int) -> None:
        """Checks that every step is published complete, and that Redis holds the last publications."""
        self._check_complete([p for _, p in self._topic.records])  # also with the reports that were appended later
        progress = self._redis.progress()
        if progress is None:
            if self.acknowledged().panes and not any(self._log.begins):
                raise Violation("nothing was ever published")
            return
        if progress.next_step <= last_step or (progress.incomplete):
            raise Violation(f"not published in the end: {progress} of {last_step}")
        latest = self._topic.last
        for kept in self._redis.results.history():
            if latest[kept.key] != kept or not (kept.complete or self._missing()):
                raise Violation(f"published last: {latest[kept.key]}, in Redis: {kept}")
        self._check_filters(latest, progress.next_step)
        if lost := latest.keys() - {kept.key for kept in self._redis.results.history()}:
            raise Violation(f"published and not in Redis: {sorted(lost)}")

    def _check_filters(self, latest: dict[str, Any], next_step: int) -> None:
        for attribute, state in self._redis.results.filters().items():
            seen = json.loads(state)
            steps = [step for step, _ in seen]
            if steps != sorted(set(steps)) or not (self._redis.lost or steps == list(range(steps[0], steps[-1] + 1))):
                raise Violation(f"the filter of {attribute} has seen the steps {steps}")
            if steps[-1] != next_step - 1:
                raise Violation(f"the saved filter of {attribute} ends with step {steps[-1]}, the next step is {next_step}")
            for step, reports in seen:
                published = latest[f"{attribute}|filtered|{step}"]
                if published.complete and published.reports != reports:
                    raise Violation(f"the filter has seen {reports} reports of step {step}, published {published}")

    def _check_lineage(self, partition: int, checkpoint: Checkpoint) -> None:
        """Checks that no record was counted twice, and that no record below the stored offset was skipped."""
        counted = Counter(self._redis.lineage[partition].records)
        if twice := [record.offset for record, n in counted.items() if n > 1]:
            raise Violation(f"partition {partition}: counted twice: {twice}")
        if checkpoint.log_id != self._log.log_id() or self._log.replaced(partition, checkpoint.next_offset):
            return  # the agents have not yet seen what the broker has lost
        below = self._log.records[partition][self._log.begins[partition] : checkpoint.next_offset]
        if skipped := [record.offset for record in below if record is not None and record not in counted]:
            raise Violation(f"partition {partition}: skipped {skipped} below {checkpoint.next_offset}")

    def _missing(self) -> bool:
        """True if records were lost before the stored counts included them."""
        lineages = self._redis.lineage
        expired = [
            entry
            for partition, begin in enumerate(self._log.begins)
            for entry in self._log.records[partition][:begin]
            if entry is not None and entry not in lineages.get(partition, Lineage()).records
        ]
        return bool(expired) or self._log.lost


def records_of(lineage: Lineage) -> list[Record]:
    """Returns the counted records of the present topic, after a record with the newest append time of the earlier topics."""
    before = [record.appended_ms for part in lineage.earlier for record in part.records]
    return [Record(-1, max(before, default=0), b""), *lineage.records]


def tally_lineage(lineage: Lineage) -> Tallied:
    """Tallies the counted records. For each topic made anew, the steps that were open are counted again from nothing."""
    panes: dict[PaneKey, tuple[int, tuple[int, ...]]] = {}
    rejected: Counter[str] = Counter()
    newest_ms = 0
    for i, part in enumerate((*lineage.earlier, lineage)):
        first = first_open_step(SURVEY, newest_ms)
        panes = {key: counts for key, counts in panes.items() if key.step < first}
        added = direct_tally(SURVEY, [records_of(Lineage(part.records, lineage.earlier[:i]))])
        panes |= added.panes
        rejected.update(added.rejected)
        newest_ms = max([newest_ms, *(record.appended_ms for record in part.records)])
    return Tallied(panes, dict(+rejected))


def split(keys: bytes) -> list[bytes]:
    """Returns the stored report keys of a generation."""
    return [keys[i : i + STORED_KEY_BYTES] for i in range(0, len(keys), STORED_KEY_BYTES)]


def direct_tally(survey: Survey, partitions: Sequence[Sequence[Record]]) -> Tallied:
    """Tallies the records of some partitions with the slow reference."""
    n: Counter[PaneKey] = Counter()
    counts: dict[PaneKey, Any] = {}
    rejected: Counter[str] = Counter()
    for records in partitions:
        for _, found in judged_in_order(survey, records):
            if isinstance(found, str):
                rejected[found] += found not in UNCOUNTED
            else:
                key, reports, added = found
                n[key] += reports
                counts[key] = counts[key] + added if key in counts else added
    return Tallied({key: (n[key], tuple(counts[key].tolist())) for key in counts}, dict(+rejected))


def judged_in_order(survey: Survey, records: Sequence[Record]) -> list[tuple[Record, tuple[PaneKey, int, Any] | str]]:
    """Returns each record of a partition with its counts, or the reason why it is not counted."""
    return list(zip(records, judge_log(records, _judgement(survey)), strict=True))


_judgements: dict[bytes, Callable[[bytes, int], tuple[PaneKey, int, Any] | str]] = {}  # by fingerprint


def _judgement(survey: Survey) -> Callable[[bytes, int], tuple[PaneKey, int, Any] | str]:
    if (known := _judgements.get(survey.fingerprint)) is not None:
        return known

    @cache
    def judged(value: bytes, appended_ms: int) -> tuple[PaneKey, int, Any] | str:
        found = judge(survey, value, appended_ms)
        return (PaneKey(*found.pane), found.n, np.array(found.counts)) if isinstance(found, Counted) else found

    return _judgements.setdefault(survey.fingerprint, judged)


def _compared(want: tuple[int, Any] | None, have: tuple[int, Any] | None) -> str:
    wanted, held = (0 if numbers is None else numbers[0] for numbers in (want, have))
    what = "lost" if held < wanted else "doubled" if held > wanted else "changed"
    return f"{what}: {held} reports stored, {wanted} acknowledged"


def numbers_of(table: CountTable) -> tuple[int, tuple[int, ...]]:
    """Returns a count table in the form that `Tallied` uses."""
    return table.n, tuple(table.counts.ravel().tolist())


def conclude(
    survey: Survey,
    attribute: int,
    step: int,
    span: str,
    panes: Sequence[list[CountTable]],
    complete: bool,
    *_: object,
    **__: object,
) -> Published:
    """Replaces `publishing.estimates.conclusions.conclude`."""
    return Published(attribute, step, span, complete, range(step - len(panes) + 1, step + 1), _sums(panes))


def conclude_cohort(survey: Survey, cohort: int, everybody: Published, panes: Sequence[list[CountTable]]) -> Published:
    """Replaces `publishing.estimates.cohorts.conclude_cohort`."""
    return replace(everybody, counts=_sums(panes), cohort=survey.cohort_name(cohort))


def _sums(panes: Sequence[list[CountTable]]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    return tuple(numbers_of(sum((pane[i] for pane in panes[1:]), panes[0][i])) for i in range(len(panes[0])))


def conclude_filtered(
    _: object, tables: list[CountTable], made: list[Published], state: bytes | None, *__: object
) -> tuple[Published, bytes]:
    """Replaces `publishing.estimates.filtering.conclude_filtered`. The state lists the steps and reports seen."""
    return replace(made[0], span="filtered", counts=tuple(map(numbers_of, tables))), replay((), made[0], state)


def replay(_: object, step: Published, state: bytes | None) -> bytes:
    """Replaces `publishing.estimates.filtering.replay`."""
    seen = [] if state is None else json.loads(state)
    return json.dumps([*seen, (step.step, step.reports)]).encode()


def publish_counts(schedule: Any) -> None:
    """Replaces the estimates of the module `Code.schedule` by counts."""
    schedule.conclude, schedule.conclude_cohort = conclude, conclude_cohort
    schedule.conclude_filtered, schedule.replay = conclude_filtered, replay


def truth_of(survey: Survey, truth: Tallied, p: Published) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Returns the counts that a publication must have."""
    found = []
    for level, mechanism in enumerate(survey.mechanisms[p.attribute]):
        total = np.zeros(1 + int(np.prod(mechanism.table_shape)), np.int64)
        cohorts = range(survey.n_cohorts) if p.cohort is None else [survey.cohort_index(p.cohort)]
        for step, cohort in product(p.steps, cohorts):
            n, counts = truth.panes.get(PaneKey(p.attribute, level, step, cohort), (0, ()))
            total += [n, *counts] if n else 0
        found.append((int(total[0]), tuple(total[1:].tolist())))
    return tuple(found)
