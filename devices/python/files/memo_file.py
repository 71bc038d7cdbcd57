"""A device's memory: tables of one SQLite file (`sqlite_file`).

    survey       in the column `fingerprint`, the 32 bytes of the survey's pin
    enrolment    for every attribute: the level, whether the device answers, the hash function, the fake value, the phase; the
                 number of distinct steps reported (`reports`) and the latest step that was forgotten (`forgotten`)
    memo         for every attribute and memo key: the memo, never changed, and the number of steps reported from it
    sent         the reported steps that are remembered, each with its envelope, and its idempotency key until the envelope is
                 settled or dropped; a dropped envelope is empty
    moment       only for a survey that requires a relay: the time from which each unsettled envelope may leave, by its key
    consent      the survey's pin, and the person's answers (`consent`); after a withdrawal, the only table
    journal      the latest reports that left or may have left; the key until the report is settled

A wallet's file has one `consent` for all surveys, and for each survey one set of the other tables, without the first one
(`wallet_file`).
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Protocol

from ldpstream.device.files.sqlite_file import BUSY_S, DEVICE, SQLiteFile, format_of

MAX_DROPPED = 10_000  # steps of dropped envelopes that an attribute remembers
MAX_JOURNAL = 200  # reports in a journal

_TABLES = {
    "enrolment": "(attribute INTEGER PRIMARY KEY, level INTEGER NOT NULL, answers INTEGER NOT NULL, function INTEGER NOT NULL,"
    " fake INTEGER NOT NULL, phase INTEGER NOT NULL, reports INTEGER NOT NULL DEFAULT 0, forgotten INTEGER NOT NULL)",
    "memo": "(attribute INTEGER, key INTEGER, memo BLOB NOT NULL, reports INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY (attribute, key)) WITHOUT ROWID",
    "sent": "(attribute INTEGER, step INTEGER, envelope BLOB NOT NULL, key TEXT, PRIMARY KEY (attribute, step)) WITHOUT ROWID",
}


@dataclass(frozen=True, slots=True, repr=False)
class Enrolment:
    """A device's permanent choices for an attribute.

    Attributes:
        answers: true if the device answers the attribute.
        function: number of the device's hash function, 0 for mechanisms without one.
        fake: the value that the device always reports in place of the person's value (rs+fd); -1 for none.
        phase: φ, in 0 … w-1, where w is `every_steps`: the device reports only at steps t with t mod w = φ (`OneTime.spaced`).
    """

    level: int
    answers: bool
    function: int
    fake: int
    phase: int


class Left(NamedTuple):
    """A report that left, or may have left.

    Attributes:
        at_ms: time of the first attempt by the device's clock, in ms since 1970.
        step: the report's step.
        envelope: the bytes.
        how: "answered": the gateway gave a final answer; "sent": it did not yet; "local": the report was only shown as sent.
    """

    at_ms: int
    survey: str
    attribute: str
    step: int
    envelope: bytes
    how: str

    def __str__(self) -> str:
        """One line of the journal.

        >>> print(Left(1_767_571_200_000, "commute", "mode", 3, bytes.fromhex("9701"), "sent"))
        2026-01-05 00:00:00  commute  mode  step 3  sent  9701
        """
        time = datetime(1970, 1, 1) + timedelta(milliseconds=self.at_ms)
        return f"{time:%Y-%m-%d %H:%M:%S}  {self.survey}  {self.attribute}  step {self.step}  {self.how}  {self.envelope.hex()}"


def journal_of(connection: sqlite3.Connection, table: str) -> list[Left]:
    how = "CASE WHEN local THEN 'local' WHEN key IS NULL THEN 'answered' ELSE 'sent' END"
    rows = connection.execute(f"SELECT at_ms, survey, attribute, step, envelope, {how} FROM {table} ORDER BY number")
    return [Left(*row) for row in rows]


class Store(Protocol):
    """The memory of one device: a file of its own (`MemoFile`), or a part of a wallet (`wallet_file.Place`)."""

    @property
    def path(self) -> Path: ...

    def transaction(self, create: bool = False) -> AbstractContextManager["Transaction"]: ...


class MemoFile(SQLiteFile):
    def __init__(self, path: Path, create: bool = True, wait_s: float = BUSY_S, *, lazy: bool = False) -> None:
        super().__init__(path, DEVICE, create, wait_s, lazy=lazy)

    @contextmanager
    def transaction(self, create: bool = False) -> Iterator["Transaction"]:
        """Runs one transaction; with `create`, a lazy file is created if it is missing."""
        if create and self.lazy:
            self.prepare(True)
        with self.connection() as connection:
            yield Transaction(connection)


class Transaction:
    _format = DEVICE

    def __init__(self, connection: sqlite3.Connection, prefix: str = "") -> None:
        self._db = connection
        self._name_tables(prefix)

    # ---- enrolment

    def enroll(self, pin: str, levels: list[int], draw: Callable[[], list[Enrolment]]) -> None:
        """Creates the tables and stores the device's choices, one per attribute."""
        self._db.execute("CREATE TABLE survey (fingerprint BLOB NOT NULL)")
        self._db.execute("INSERT INTO survey VALUES (?)", (bytes.fromhex(pin),))
        self._create(draw())
        self._db.execute(f"PRAGMA user_version = {DEVICE}")

    def pin(self) -> str | None:
        """Returns the pin of the survey to which the file belongs; None for an empty file, or without a place in a wallet."""
        if format_of(self._db) == 0:
            return None
        if not self._has("survey"):
            return str(self._db.execute("SELECT pin FROM consent").fetchone()[0])
        return bytes(self._db.execute("SELECT fingerprint FROM survey").fetchone()[0]).hex()

    def enrolled(self) -> bool:
        return self._has(self._enrolment)

    def erase(self) -> None:
        """Erases everything but the consent."""
        self.drop()
        self._db.execute("DROP TABLE IF EXISTS survey")

    def forget(self) -> None:
        """Erases everything."""
        self.erase()
        self._db.execute("DROP TABLE IF EXISTS consent")
        self._db.execute("PRAGMA user_version = 0")

    def require_room(self, levels: list[int]) -> None:
        """In a wallet: requires that the survey's claim fits the budget."""

    def _has(self, table: str) -> bool:
        return self._db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is not None

    def _name_tables(self, prefix: str) -> None:
        self._enrolment, self._memo, self._sent = (prefix + table for table in _TABLES)
        self._moment, self._journal = f"{prefix}moment", f"{prefix}journal"

    def _tables(self) -> tuple[str, ...]:
        return self._enrolment, self._memo, self._sent

    def _create(self, choices: list[Enrolment], forgotten: int = -1) -> None:
        """Creates the tables of one device, which reports no step up to `forgotten`."""
        for name, columns in zip(self._tables(), _TABLES.values(), strict=True):
            self._db.execute(f"CREATE TABLE {name} {columns}")
        self._db.executemany(
            f"INSERT INTO {self._enrolment} (attribute, level, answers, function, fake, phase, forgotten)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(a, c.level, c.answers, c.function, c.fake, c.phase, forgotten) for a, c in enumerate(choices)],
        )

    def drop(self) -> None:
        for name in (*self._tables(), self._moment, self._journal):
            self._db.execute(f"DROP TABLE IF EXISTS {name}")

    def enrolment(self, attribute: int) -> Enrolment:
        read = f"SELECT level, answers, function, fake, phase FROM {self._enrolment} WHERE attribute = ?"
        level, answers, function, fake, phase = self._db.execute(read, (attribute,)).fetchone()
        return Enrolment(level, bool(answers), function, fake, phase)

    # ---- consent

    def consent(self, pin: str) -> str | None:
        """Returns the kept answers to a survey, as JSON; None without an answer."""
        if not self._has("consent"):
            return None
        row = self._db.execute("SELECT answers FROM consent WHERE pin = ?", (pin,)).fetchone()
        return None if row is None else str(row[0])

    def keep_consent(self, pin: str, answers: str) -> None:
        self._db.execute("CREATE TABLE IF NOT EXISTS consent (pin TEXT PRIMARY KEY, answers TEXT NOT NULL) WITHOUT ROWID")
        self._db.execute("INSERT OR REPLACE INTO consent VALUES (?, ?)", (pin, answers))
        self._db.execute(f"PRAGMA user_version = {self._format}")

    def withdraw(self, attribute: int, name: str) -> None:
        """Erases an attribute's memos, envelopes and journal. The reported steps stay, so that none gets a second report."""
        self._db.execute(f"DELETE FROM {self._memo} WHERE attribute = ?", (attribute,))
        self._db.execute(f"UPDATE {self._sent} SET envelope = x'', key = NULL WHERE attribute = ?", (attribute,))
        if self._has(self._journal):
            self._db.execute(f"DELETE FROM {self._journal} WHERE attribute = ?", (name,))

    # ---- journal

    def leaves(self, key: str, at_ms: int, survey: str, attribute: str, local: bool) -> bool:
        """Writes a report into the journal, before its first attempt. Returns false if the report does not wait any more."""
        row = self._db.execute(f"SELECT step, envelope FROM {self._sent} WHERE key = ?", (key,)).fetchone()
        if row is None:
            return False
        columns = "number INTEGER PRIMARY KEY, at_ms, survey, attribute, step, envelope, local, key UNIQUE"
        self._db.execute(f"CREATE TABLE IF NOT EXISTS {self._journal} ({columns})")
        insert = f"INSERT INTO {self._journal} VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)"
        again = "ON CONFLICT DO UPDATE SET local = min(local, excluded.local)"
        self._db.execute(f"{insert} {again}", (at_ms, survey, attribute, *row, local, key))
        oldest = f"SELECT max(number) - {MAX_JOURNAL} FROM {self._journal}"
        self._db.execute(f"DELETE FROM {self._journal} WHERE number <= ({oldest})")
        return True

    def journal(self) -> list[Left]:
        """Returns the journal, the latest report last."""
        return journal_of(self._db, self._journal) if self._has(self._journal) else []

    # ---- memos

    def memo(self, attribute: int, key: int, draw: Callable[[], bytes]) -> bytes:
        """Returns the memo of a key; draws and stores a memo if the key has none."""
        read = f"SELECT memo FROM {self._memo} WHERE attribute = ? AND key = ?"
        if self._db.execute(read, (attribute, key)).fetchone() is None:
            insert = f"INSERT INTO {self._memo} (attribute, key, memo) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
            self._db.execute(insert, (attribute, key, draw()))
        return bytes(self._db.execute(read, (attribute, key)).fetchone()[0])

    # ---- envelopes

    def sent(self, attribute: int, step: int) -> bytes | None:
        """Returns the step's envelope; empty if it was dropped; None if the file does not remember the step."""
        row = self._db.execute(
            f"SELECT envelope FROM {self._sent} WHERE attribute = ? AND step = ?", (attribute, step)
        ).fetchone()
        return None if row is None else bytes(row[0])

    def forgotten(self, attribute: int) -> int:
        """Returns the latest forgotten step: no step up to this one gets a new report; -1 if no step is forgotten."""
        return int(self._db.execute(f"SELECT forgotten FROM {self._enrolment} WHERE attribute = ?", (attribute,)).fetchone()[0])

    def earliest(self, attribute: int, step: int, every_steps: int) -> int:
        """Returns the first step after `step`, in the same phase, that is neither reported nor forgotten."""
        step += every_steps * max(1, (self.forgotten(attribute) - step) // every_steps + 1)
        while self.sent(attribute, step) is not None:
            step += every_steps
        return step

    def waiting(self) -> list[tuple[int, int, bytes, str]]:
        """Returns (attribute, step, envelope, idempotency key) of each envelope that may need another attempt, by step."""
        read = f"SELECT attribute, step, envelope, key FROM {self._sent} WHERE key IS NOT NULL ORDER BY step, attribute"
        return [(attribute, step, bytes(envelope), key) for attribute, step, envelope, key in self._db.execute(read)]

    def moments(self) -> dict[str, int]:
        """Returns the time from which each report may leave, in ms since 1970, by idempotency key."""
        self._create_moments()
        return dict(self._db.execute(f"SELECT key, due_ms FROM {self._moment}"))

    def keep_moment(self, key: str, due_ms: int) -> None:
        """Stores the time from which a report may leave, and drops the times of settled and dropped reports."""
        self._create_moments()
        unsettled = f"SELECT key FROM {self._sent} WHERE key IS NOT NULL"
        self._db.execute(f"DELETE FROM {self._moment} WHERE key NOT IN ({unsettled})")
        self._db.execute(f"INSERT INTO {self._moment} VALUES (?, ?)", (key, due_ms))

    def _create_moments(self) -> None:
        columns = "(key TEXT PRIMARY KEY, due_ms INTEGER NOT NULL) WITHOUT ROWID"
        self._db.execute(f"CREATE TABLE IF NOT EXISTS {self._moment} {columns}")

    def settle(self, key: str, n_kept: int) -> None:
        """Marks the envelope with this key as settled, and forgets the steps before the n_kept latest settled ones."""
        db = self._db
        found = db.execute(f"SELECT attribute FROM {self._sent} WHERE key = ?", (key,)).fetchone()
        if found is None:
            return
        db.execute(f"UPDATE {self._sent} SET key = NULL WHERE key = ?", (key,))
        if self._has(self._journal):
            db.execute(f"UPDATE {self._journal} SET key = NULL WHERE key = ?", (key,))
        oldest = db.execute(
            f"SELECT step FROM {self._sent} WHERE attribute = ? AND key IS NULL AND envelope != x''"
            " ORDER BY step DESC LIMIT 1 OFFSET ?",
            (found[0], n_kept - 1),
        ).fetchone()
        if oldest is not None:
            db.execute(f"DELETE FROM {self._sent} WHERE attribute = ? AND step < ?", (found[0], oldest[0]))
            self._forget_up_to(found[0], oldest[0] - 1)

    def keep(self, attribute: int, step: int, envelope: bytes, key: int | None, n_waiting: int, idempotency_key: str) -> None:
        """Counts a step's report and stores its envelope.

        If more than n_waiting envelopes are not settled, drops the one whose step is farthest from the new step. If more than
        `MAX_DROPPED` dropped steps are remembered, forgets the earliest and the steps before it.

        Args:
            key: key of the memo behind the report; None for a one-time mechanism.
        """
        db = self._db
        db.execute(f"INSERT INTO {self._sent} VALUES (?, ?, ?, ?)", (attribute, step, envelope, idempotency_key))
        db.execute(f"UPDATE {self._enrolment} SET reports = reports + 1 WHERE attribute = ?", (attribute,))
        if key is not None:
            db.execute(f"UPDATE {self._memo} SET reports = reports + 1 WHERE attribute = ? AND key = ?", (attribute, key))
        surplus = (
            f"SELECT step FROM {self._sent} WHERE attribute = ? AND key IS NOT NULL"
            " ORDER BY abs(step - ?), step DESC LIMIT -1 OFFSET ?"
        )
        for (dropped,) in db.execute(surplus, (attribute, step, n_waiting)).fetchall():
            drop = f"UPDATE {self._sent} SET envelope = x'', key = NULL WHERE attribute = ? AND step = ?"
            db.execute(drop, (attribute, dropped))
        steps = f"SELECT step FROM {self._sent} WHERE attribute = ? AND envelope = x'' ORDER BY step DESC LIMIT 1 OFFSET ?"
        if (earliest := db.execute(steps, (attribute, MAX_DROPPED)).fetchone()) is not None:
            db.execute(f"DELETE FROM {self._sent} WHERE attribute = ? AND envelope = x'' AND step <= ?", (attribute, *earliest))
            self._forget_up_to(attribute, *earliest)

    def _forget_up_to(self, attribute: int, step: int) -> None:
        self._db.execute(f"UPDATE {self._enrolment} SET forgotten = max(forgotten, ?) WHERE attribute = ?", (step, attribute))

    def counts(self, attribute: int) -> tuple[int, int, int]:
        """Returns the number of distinct steps reported, of memos used, and of steps reported from these memos."""
        reports = self._db.execute(f"SELECT reports FROM {self._enrolment} WHERE attribute = ?", (attribute,)).fetchone()[0]
        used = f"SELECT count(*), ifnull(sum(reports), 0) FROM {self._memo} WHERE attribute = ? AND reports > 0"
        return reports, *self._db.execute(used, (attribute,)).fetchone()
