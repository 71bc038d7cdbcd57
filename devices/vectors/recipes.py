"""Histories of use, and the values of all recipes that follow from them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

from msgspec.structs import replace

from ldpstream.device.activity import TABLES, Activity
from ldpstream.device.files.sqlite_file import SQLiteFile
from ldpstream.device.values import index_of
from ldpstream.surveys import Survey

Call = list[Any]  # time in ms since 1970, event ("" for `seen`), seconds (null for `used`)


START = datetime(2026, 1, 5, tzinfo=UTC)  # of the histories


def at(day: float, event: str = "", seconds: float | None = None) -> Call:
    """A call so many days after the survey's start."""
    moment = START + timedelta(days=day)
    return [round(moment.timestamp() * 1000), event, seconds]


@contextmanager
def activity_in_memory() -> Iterator[Activity]:
    """An activity log in memory: the disk would take most of the time."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db, mock.patch.object(SQLiteFile, "_prepare"):
        for statement in TABLES:
            db.execute(statement)
        with mock.patch.object(SQLiteFile, "connection", return_value=nullcontext(db)):
            yield Activity("memory", consent="simulated")


ONE_MS = 1 / 86_400_000
YEARS_70 = 70 * 365.25
HISTORIES: dict[str, list[Call]] = {
    "a week, a pause, and a return": [
        at(0.4), at(0.5, "export"), at(0.6, "export"), at(1.1, "build", 12.5), at(1.2, "build", 100), at(1.3, "crash"), at(4.9),
        at(7.5, "build", 0.25), at(35.5), at(42, "export"), at(56.1), at(63.1),
    ],
    "the ends of days": [at(7 - ONE_MS), at(7), at(14 - ONE_MS), at(14), at(21.5)],
    "first use before the survey, and an event without another call": [at(-40.5, "export"), at(-3), at(2.5), at(8)],
    "use weeks before the survey, and then in it": [at(-20.5), at(-18, "export"), at(-17.2, "build", 30), at(3)],
    "a clock at 1970, then right, then at 2100 for 70 days, then right": [
        [0, "", None], [1_000, "export", None], at(1), at(2), at(8.5), *(at(YEARS_70 + d) for d in range(70)), at(9), at(15.5),
    ],
    "every day for 120 days, then at last a pause": [at(d + 0.5, "export" if d % 3 else "") for d in range(120)] + [at(150)],
    "first use while the clock was at 2100": [at(YEARS_70), at(0.5), at(7.5)],
    "28 days in a row, then single days": [*(at(d + 0.9) for d in range(28)), at(35), at(49), at(70.5), at(71)],
}  # fmt: skip


def recipes(survey: Survey) -> Iterator[dict[str, Any]]:
    """Every history, with steps of a week and of a day."""
    for step_days in (7, 1):
        asked = replace(survey, step_seconds=step_days * 86_400)
        for name, calls in HISTORIES.items():
            used = sorted({step for ms, *_ in calls if 0 <= (step := asked.step_at(ms)) < 200})
            steps = list(_steps(asked, calls, [*used[-11:], used[-1] + 1]))
            yield {"history": name, "survey": asked.device_survey, "calls": calls, "steps": steps}


def _steps(survey: Survey, calls: list[Call], steps: list[int]) -> Iterator[dict[str, Any]]:
    with activity_in_memory() as activity, mock.patch("time.time_ns") as clock:
        for ms, event, seconds in calls:
            clock.return_value = ms * 1_000_000
            if seconds is not None:
                activity.took(event, seconds)
            elif event:
                activity.used(event)
            else:
                activity.seen()
        for step in steps:
            values = activity.values(survey, step)
            yield {"step": step, "indices": {name: index_of(survey, name, value) for name, value in values.items()}}
