"""The activity log: what a device remembers of the use of an application, and the recipes that turn it into values.

    activity = Activity("usage.activity")      # one file for all surveys of the application
    activity.seen()                            # the application was used
    activity.used("export")                    # an event
    activity.took("build", seconds=12)         # an event with its duration
    activity.answer(device)                    # in place of device.answer: also reports the attributes with a recipe

The log has for each day of world time (UTC) and each event the number of events and their total duration. It keeps the first
day and the `MOST_DAYS` days that are nearest to the present one, so it forgets nothing true after the clock was wrong. All
values of a step follow from the days before the step: every call within a step gives the same values, and so does every
process.

The file contains the true use. `forget` erases it.
"""

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from ldpstream.device.consent.consent import switched_off
from ldpstream.device.device import Device
from ldpstream.device.files.sqlite_file import ACTIVITY, BUSY_S, SQLiteFile
from ldpstream.mechanisms.arguments import real
from ldpstream.surveys import Survey
from ldpstream.surveys.questions import DAY_S, NAME, Recipe

MOST_DAYS = 64  # a window of 28 days, a step of 28 days, and some days for a clock that runs ahead
MOST_EVENTS = 100  # different events of a day
MAX_SECONDS = 10**6
FIRST_DAY = 18_262  # 2020-01-01: a clock that shows an earlier day was never set
SEEN = ""  # the event that the application was used

Log = Mapping[int, Mapping[str, tuple[int, int]]]  # day since 1970 -> event -> number, total duration in ms


TABLES = (
    "CREATE TABLE use (day INTEGER, event TEXT, n INTEGER NOT NULL, ms INTEGER NOT NULL, PRIMARY KEY (day, event))"
    " WITHOUT ROWID",
)


class Activity:
    """The activity log of an application, in one file. Objects, processes and threads that share the file share the log.

    Args:
        path: the file; only its owner may read it.
        consent: "given": the person has agreed; while a switch turns devices off (`device.consent.consent.switched_off`),
            nothing is recorded. "simulated": there is no person, so the switches do not count.
        wait_s: how long a call waits for another process, in seconds.

    Raises (also all methods):
        StoreHeld, StoreFull: if another process holds the file for longer than `wait_s`; if the disk is full.
        DeviceError: if the file is damaged, of another format, or cannot be written. The log stays as it is.
    """

    def __init__(self, path: str | Path, *, consent: Literal["given", "simulated"] = "given", wait_s: float = BUSY_S) -> None:
        self._heeds_switches = consent != "simulated"
        off = self._heeds_switches and switched_off() is not None
        self._file = SQLiteFile(Path(path), ACTIVITY, TABLES, wait_s=wait_s, lazy=off)
        with self._file.connection():
            pass

    def seen(self) -> None:
        """Records that the application was used today."""
        self._record(SEEN, 0)

    def used(self, event: str) -> None:
        """Records an event.

        Args:
            event: a name that the application's code contains, never a text of the person: 1 to 64 letters, digits, dots,
                underscores or hyphens, and at most `MOST_EVENTS` names a day.

        Raises:
            ValueError: if the name is invalid, or there are too many.
        """
        self._record(_event(event), 0)

    def took(self, event: str, seconds: float) -> None:
        """Records an event and its duration.

        Args:
            event: as for `used`.
            seconds: the duration, in [0, 10^6].

        Raises:
            ValueError: as for `used`, and if the duration is out of range. The message hides the duration.
        """
        try:
            duration_ms = int(1000 * real("seconds", seconds, 0, MAX_SECONDS))
        except ValueError:
            raise ValueError(f"seconds must be a number in [0, {MAX_SECONDS}]") from None
        self._record(_event(event), duration_ms)

    def values(self, survey: Survey, step: int) -> dict[str, float]:
        """Returns the values of the attributes with a recipe, by name; none for a step without use of the application."""
        log = self._read()
        if not in_step(log, survey, step):
            return {}
        return {a.name: a.recipe.place(measured(a.recipe, log, survey, step)) for a in survey.attributes if a.recipe}

    def answer(
        self, device: Device, values: Mapping[str, str | float | Sequence[str | float]] | None = None
    ) -> dict[str, bytes]:
        """Reports the attributes with a recipe at the present step, and other values; see `Device.answer`.

        A device reports the attributes with a recipe only at steps at which the application was used. So their reports count
        the people who used it.

        Args:
            values: values of other attributes.

        Raises:
            ValueError, StepForgotten, DeviceError: as for `Device.answer`; ValueError also for a value of an attribute with a
                recipe.
        """
        survey, given = device.survey, dict(values or {})
        for attribute in survey.attributes:
            if attribute.recipe is not None and attribute.name in given:
                raise ValueError(f"{attribute.name} has a recipe: give no value, since the device computes it")
        step = survey.step_at(time.time_ns() // 1_000_000)
        return device.answer(given | self.values(survey, step), step) if step >= 0 else {}

    def forget(self) -> None:
        """Erases the log permanently."""
        with self._file.connection() as db:
            db.execute("DELETE FROM use")

    def _record(self, event: str, duration_ms: int) -> None:
        if (day := time.time_ns() // (10**9 * DAY_S)) < FIRST_DAY or (self._heeds_switches and switched_off()):
            return
        with self._file.connection() as db:
            other = "SELECT count(*) FROM use WHERE day = ? AND event NOT IN ('', ?)"
            if event != SEEN and db.execute(other, (day, event)).fetchone()[0] >= MOST_EVENTS:
                raise ValueError(f"event must be one of at most {MOST_EVENTS} names a day")
            insert = "INSERT INTO use VALUES (?, ?, 1, ?) ON CONFLICT DO UPDATE SET n = n + 1, ms = ms + excluded.ms"
            db.execute(insert, (day, event, duration_ms))
            nearest = "SELECT DISTINCT day FROM use ORDER BY abs(day - ?), day LIMIT ?"
            first = "SELECT min(day) FROM use"
            db.execute(f"DELETE FROM use WHERE day NOT IN ({nearest}) AND day <> ({first})", (day, MOST_DAYS))

    def _read(self) -> Log:
        log: dict[int, dict[str, tuple[int, int]]] = {}
        with self._file.connection() as db:
            for day, event, n, ms in db.execute("SELECT day, event, n, ms FROM use ORDER BY day, event"):
                log.setdefault(day, {})[event] = n, ms
        return log


def in_step(log: Log, survey: Survey, step: int) -> bool:
    """True if the application was used at a step."""
    return any(survey.step_at(1000 * DAY_S * day) == step for day in log)


def measured(recipe: Recipe, log: Log, survey: Survey, step: int) -> float:
    """Returns a recipe's number at a step: see `Recipe`. It depends only on the log's days before the step."""
    step_of = {day: survey.step_at(1000 * DAY_S * day) for day in log}
    before = [day for day in log if step_of[day] < step]
    if recipe.measure == "age":
        return step - min([step, *step_of.values()])
    if not before:
        return float("inf") if recipe.measure == "absence" else 0
    last = max(step_of[day] for day in before)
    if recipe.measure == "absence":
        return step - last
    end = survey.opens_ms(last + 1) // (1000 * DAY_S)
    used = [log[day] for day in before if day >= end - recipe.window_days]
    events = [of[recipe.of] for of in used if recipe.of is not None and recipe.of in of]
    match recipe.measure:
        case "active_days":
            return len(used) if recipe.of is None else len(events)
        case "days_without":
            return len(used) - len(events)
        case "uses_per_day":
            return sum(n for n, _ in events) / len(used)
    return sum(ms for _, ms in events) / 1000 / len(used)


def _event(name: str) -> str:
    if not isinstance(name, str) or re.match(NAME, name) is None:
        raise ValueError("event must be a name with 1 to 64 letters, digits, dots, underscores or hyphens")
    return name
