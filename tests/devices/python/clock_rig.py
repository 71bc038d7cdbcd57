"""Every short history of a wrong clock: a device in memory, a gateway with the true time, and the laws between them."""

import sqlite3
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from ldpstream.device import Device, StepForgotten
from ldpstream.device.files.memo_file import TABLES
from ldpstream.device.files.sqlite_file import SQLiteFile
from ldpstream.surveys import Survey
from tests.small_survey import small_survey


def survey(level: dict[str, Any], lateness_steps: int, ends: int | None = None) -> Survey:
    question, window_steps = {"name": "q", "size": 3, "level": [{"name": "all", **level}]}, level.get("every_steps", 1)
    return small_survey(question, name="clocks", lateness_steps=lateness_steps, window_steps=window_steps, ends=ends)


class Memory:
    """A database in memory in place of a file, which can return to an earlier state. It is closed with the object."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        weakref.finalize(self, self.db.close)
        for statement in TABLES:
            self.db.execute(statement)
        patch.setattr(SQLiteFile, "_prepare", lambda *_: None)
        patch.setattr(SQLiteFile, "connection", lambda *_: self.connection())

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        with self.returning(keep=True):
            yield self.db

    @contextmanager
    def returning(self, keep: bool = False) -> Iterator[None]:
        """Undoes all changes at the end, or only after an exception if `keep` is true."""
        self.db.execute("SAVEPOINT before")
        try:
            yield
        except BaseException:
            keep = False
            raise
        finally:
            if not keep:
                self.db.execute("ROLLBACK TO before")
            self.db.execute("RELEASE before")


@dataclass(frozen=True)
class Seen:
    """The events of a device until now.

    Attributes:
        made: key of each report that was charged, by its step.
        counted: steps of the reports that the gateway accepted.
        ended: keys of the reports with a final answer.
        refused: number of calls that ended with an error.
        waiting: largest number of reports without a final answer.
    """

    made: dict[int, str] = field(default_factory=dict)
    counted: frozenset[int] = frozenset()
    ended: frozenset[str] = frozenset()
    refused: int = 0
    waiting: int = 0


@dataclass
class Rig:
    """A device and a gateway with the true time. Each call is at the next true step, or later."""

    asked: Survey
    patch: pytest.MonkeyPatch

    def __post_init__(self) -> None:
        self.store = Memory(self.patch)
        self.device = Device(self.asked, "memory", consent="simulated")
        self.level = self.asked.device_survey.mechanisms[0][0]
        self.phase = 9 % self.level.every_steps
        self.store.db.execute("UPDATE enrolment SET phase = ?", (self.phase,))

    def call(self, seen: Seen, clock: int, true: int, online: bool) -> Seen:
        """One call of `report` at the clock's step, and one attempt to send if the device is online. Checks the laws."""
        made, refused, before = dict(seen.made), 0, self.charged()
        envelope = None
        try:
            envelope = self.device.report("q", clock % 3, clock)
        except StepForgotten as error:
            refused = 1
            assert error.earliest > clock
            assert error.earliest not in made
        waiting = self.device.waiting()
        charged = self.charged() - before
        fresh = [report for report in waiting if report.key not in {*made.values(), *seen.ended}]
        # a report is charged exactly if it is kept to be sent, and no step has a second report
        assert charged == len(fresh) == (envelope is not None and clock not in made), (clock, made, waiting)
        for report in fresh:
            assert (report.step, report.envelope) == (clock, envelope)
            made[clock] = report.key
        most = max(seen.waiting, len(waiting))
        assert len(made) <= (self.level.lifetime_reports or len(made))
        assert all(later - earlier >= self.level.every_steps for earlier, later in pairwise(sorted(made)))
        counted, ended = self._sent(true) if online else (set[int](), set[str]())
        return Seen(made, seen.counted | counted, seen.ended | ended, seen.refused + refused, most)

    def charged(self) -> int:
        """Returns the number of reports that the device has charged."""
        with self.device._transaction() as memory:
            return memory.counts(0)[0]

    def _sent(self, true: int) -> tuple[set[int], set[str]]:
        """Sends the waiting reports to a gateway at this true step. Returns the counted steps and the keys of final answers."""
        counted, ended = set[int](), set[str]()
        for report in self.device.waiting():
            if report.step > true:  # `step in the future` is not final
                continue
            if report.step + self.asked.lateness_steps >= true:
                counted.add(report.step)
            ended.add(report.key)
            self.device.settle(report)
        return counted, ended

    def histories(self, clocks: Sequence[int], calls: int, online: Sequence[bool], seen: Seen = Seen()) -> Iterator[Seen]:
        """Yields what has happened after each sequence of clocks. At each yield, the store has the state of that history."""
        depth = len(online) - calls
        if calls == 0:
            yield seen
            return
        for clock in clocks:
            with self.store.returning():
                after = self.call(seen, clock, depth, online[depth])
                yield from self.histories(clocks, calls - 1, online, after)
