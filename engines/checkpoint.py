"""Checkpoints: the counts of one partition, with the first offset not yet counted."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ldpstream.mechanisms import CountTable
from ldpstream.surveys import Reason, Survey

STORED_KEY_BYTES: Final = 8  # number of bytes that are stored of a report key
ALL_STEPS: Final = range(2**53)  # doubles, the numbers of Redis's scripts, represent these integers exactly
MAX_MS: Final = 2**53 - 1  # later than any real time; doubles represent all integers up to this value exactly


class PaneKey(NamedTuple):
    """Key of a count table: attribute, level, time step and cohort of the table's reports, with indices as in the survey."""

    attribute: int
    level: int
    step: int
    cohort: int = 0  # the only cohort of a survey without cohorts


class Missing(NamedTuple):
    """Records that can never be counted, because the log no longer has them.

    Attributes:
        after_ms, until_ms: the missing records were appended in [after_ms, until_ms), in Unix milliseconds.
        below_offset: counting continued at this offset, after the missing records.
    """

    after_ms: int
    until_ms: int
    below_offset: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The counts of one partition, over its records below an offset.

    Attributes:
        next_offset: the first offset that is not counted.
        newest_ms: the latest append time among the counted records, in Unix milliseconds; 0 if no record is counted.
        panes: count tables by pane.
        rejected: number of envelopes rejected so far, by reason.
        log_id: id of the log to which the offset belongs; "" if unknown.
        missing: one range that covers the records missing from the counts; None for none.
        writer: random name of the counting run that wrote the checkpoint.
        pruned_below: `prune` has removed the panes of the steps before this step.
        n_keys: number of remembered report keys, by generation; see `agents.remembered_keys`.
        keys: report keys by generation, 8 bytes each. In a change, an empty value removes the generation.
    """

    next_offset: int
    newest_ms: int = 0
    panes: dict[PaneKey, CountTable] = field(default_factory=dict)
    rejected: dict[Reason, int] = field(default_factory=dict)
    log_id: str = ""
    missing: Missing | None = None
    writer: str = field(default="", compare=False)
    pruned_below: int = 0
    n_keys: dict[int, int] = field(default_factory=dict)
    keys: dict[int, bytes] = field(default_factory=dict)
    base_writer: str = field(default="", compare=False)

    @property
    def position(self) -> tuple[int, str]:
        return self.next_offset, self.log_id

    def is_whole(self, generation: int) -> bool:
        """True if this checkpoint has all report keys of the generation."""
        return len(self.keys.get(generation, b"")) == STORED_KEY_BYTES * self.n_keys.get(generation, 0)

    def follows(self, earlier: "Checkpoint") -> bool:
        """True if one writer wrote both checkpoints, of one log, and this one's offset is not lower."""
        same_fold = (self.writer, self.log_id) == (earlier.writer, earlier.log_id)
        return same_fold and self.next_offset >= earlier.next_offset

    def same_change(self, stored: "Checkpoint") -> bool:
        """True if this change is already stored: same position, same missing records, same writer."""
        return (self.position, self.missing, self.writer) == (stored.position, stored.missing, stored.writer)

    def starts_from(self, stored: "Checkpoint | None", expected: tuple[int, str] | None) -> bool:
        """True if `stored` has the position `expected` and the writer `base_writer`, or if both arguments are None."""
        if stored is None:
            return expected is None
        return stored.position == expected and stored.writer == self.base_writer


def checkpoint_of(
    next_offset: int, newest_ms: int, rejected: str, log_id: str, missing: str, writer: str, n_keys: str, pruned_below: int = 0
) -> Checkpoint:
    """Returns a checkpoint without panes and report keys, from the fields in which a store keeps it."""
    keys = {int(generation): n for generation, n in json.loads(n_keys).items()}
    return Checkpoint(
        next_offset, newest_ms, {}, json.loads(rejected), log_id, missing_from_json(missing), writer,
        pruned_below=pruned_below, n_keys=keys,
    )  # fmt: skip


def missing_to_json(missing: Missing | None) -> str:
    return "" if missing is None else json.dumps(missing)


def missing_from_json(text: str) -> Missing | None:
    return Missing(*json.loads(text)) if text else None


def first_open_step(survey: Survey, newest_ms: int) -> int:
    """Returns the number of the first step that has not closed at the time `newest_ms`; the number may be negative."""
    return survey.step_at(newest_ms) - survey.lateness_steps


def sum_tables(partitions: Iterable[dict[PaneKey, CountTable]]) -> dict[PaneKey, CountTable]:
    total: dict[PaneKey, CountTable] = {}
    for panes in partitions:
        for key, table in panes.items():
            total[key] = total[key] + table if key in total else table
    return total


def sum_cohorts(tables: dict[PaneKey, CountTable]) -> dict[PaneKey, CountTable]:
    """Adds up the tables of all cohorts, under keys with the cohort 0."""
    return sum_tables({key._replace(cohort=0): table} for key, table in tables.items())


def tables_of(
    survey: Survey, tables: dict[PaneKey, CountTable], attribute: int, step: int, cohort: int = 0
) -> list[CountTable]:
    """Returns the count table of every level of an attribute at a step; an empty table for a level without reports."""
    return [
        tables.get(PaneKey(attribute, level, step, cohort), m.empty_table())
        for level, m in enumerate(survey.mechanisms[attribute])
    ]
