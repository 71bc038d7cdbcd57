"""A person's memory: the tables of one SQLite file (`sqlite_file`), of one device or of a wallet.

    budget       only in a wallet: its limits, stored by the first consent or refusal; NULL for no limit
    survey       for every enrolment: the survey's pin and name, and the charges (`wallet_file`)
    enrolment    for every attribute: the level, whether the device answers, the hash function, the fake value, the phase; the
                 number of distinct steps reported (`reports`) and the latest step that was forgotten (`forgotten`); the loss of
                 a report (`eps`)
    memo         for every attribute and memo key: the memo, never changed, and the number of steps reported from it
    sent         the reported steps that are remembered, each with its envelope, and its idempotency key until the envelope is
                 settled or dropped; a dropped envelope is empty. `due_ms` is the time from which it may leave
    consent      for every survey, by its pin: the person's answers (`consent`)
    journal      the latest reports that left or may have left; the key until the report is settled

The rows of an enrolment have its number in the column `survey`. A withdrawal erases them.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from ldpstream.device.errors import DeviceError, StoreCleared
from ldpstream.device.files.sqlite_file import WALLET, SQLiteFile
from ldpstream.device.files.wallet_file import Accounts, Budget
from ldpstream.surveys import Survey

MAX_DROPPED = 10_000  # steps of dropped envelopes that an attribute remembers
MAX_JOURNAL = 200  # reports of a survey in a journal

TABLES = (
    "CREATE TABLE budget (per_window REAL, window_s INTEGER, for_ever REAL)",
    "CREATE TABLE survey (number INTEGER PRIMARY KEY AUTOINCREMENT, pin TEXT NOT NULL, name TEXT NOT NULL,"
    " adds_up INTEGER NOT NULL, start_ms INTEGER NOT NULL, step_ms INTEGER NOT NULL,"
    " per_window REAL NOT NULL, for_ever REAL NOT NULL, reports INTEGER, until_ms INTEGER)",
    "CREATE UNIQUE INDEX enrolled ON survey (pin) WHERE reports IS NULL",
    "CREATE TABLE enrolment (survey INTEGER, attribute INTEGER, level INTEGER NOT NULL, answers INTEGER NOT NULL,"
    " function INTEGER NOT NULL, fake INTEGER NOT NULL, phase INTEGER NOT NULL, eps REAL NOT NULL, forgotten INTEGER NOT NULL,"
    " reports INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (survey, attribute)) WITHOUT ROWID",
    "CREATE TABLE memo (survey INTEGER, attribute INTEGER, key INTEGER, memo BLOB NOT NULL, reports INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY (survey, attribute, key)) WITHOUT ROWID",
    "CREATE TABLE sent (survey INTEGER, attribute INTEGER, step INTEGER, envelope BLOB NOT NULL, key TEXT,"
    " due_ms INTEGER NOT NULL, PRIMARY KEY (survey, attribute, step)) WITHOUT ROWID",
    "CREATE TABLE consent (pin TEXT PRIMARY KEY, answers TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE journal (number INTEGER PRIMARY KEY, survey INTEGER, at_ms INTEGER, attribute TEXT, step INTEGER,"
    " envelope BLOB, local INTEGER, key TEXT UNIQUE)",
)
DROP = "UPDATE sent SET envelope = x'', key = NULL, due_ms = 0 WHERE survey = ?1 AND attribute = ?2"


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


def journal_of(connection: sqlite3.Connection, survey: int | None = None) -> list[Left]:
    """Returns the journal, the latest report last.

    Args:
        survey: number of the enrolment; None for all.
    """
    how = "CASE WHEN local THEN 'local' WHEN key IS NULL THEN 'answered' ELSE 'sent' END"
    rows = connection.execute(
        f"SELECT at_ms, name, attribute, step, envelope, {how} FROM journal JOIN survey ON survey.number = journal.survey"
        " WHERE ifnull(survey.number = ?, true) ORDER BY journal.number", (survey,)
    )  # fmt: skip
    return [Left(*row) for row in rows]


class WalletFile(SQLiteFile):
    """The file of a wallet with these limits. The first consent or refusal makes it; until then it is empty.

    Raises:
        StoreCleared: if a file that had been made is missing or empty. If `create` is false, it had been made before.
        DeviceError: if the file has other limits.
    """

    def __init__(self, path: Path, budget: Budget, create: bool, wait_s: float) -> None:
        super().__init__(path, WALLET, TABLES, create, wait_s, lazy=create)
        self.budget = budget

    @contextmanager
    def connection(self, create: bool = False) -> Iterator[sqlite3.Connection]:
        with super().connection(create) as connection:
            kept = Accounts(connection).budget()
            if kept is None and not self._lazy:
                raise StoreCleared(f"{self.path}: the file is empty; make a new Wallet to enroll again")
            if kept is None:
                Accounts(connection).create(self.budget)
            elif kept != self.budget:
                raise DeviceError(f"{self.path}: the wallet's limits are permanently {kept}, got {self.budget}")
            yield connection
        self._lazy = self._lazy and self._is_empty()


class Transaction:
    """The memory of a survey's device during one transaction."""

    def __init__(self, connection: sqlite3.Connection, file: SQLiteFile, survey: Survey) -> None:
        self._db, self._survey, self._in_wallet = connection, survey, file.format == WALLET
        self._accounts = Accounts(connection)
        self._number = self._accounts.enrolled(survey.pin)

    def _run(self, statement: str, *values: object) -> sqlite3.Cursor:
        """Runs a statement whose first parameter is the enrolment's number."""
        return self._db.execute(statement, (self._number, *values))

    # ---- enrolment

    def enroll(self, levels: list[int], choices: list[Enrolment]) -> None:
        """Stores the device's choices, one per attribute. In a wallet, charges the survey's claim.

        Raises:
            WalletFull: if the claim does not fit the budget.
        """
        first = self._first_step()
        self._number, losses = self._accounts.admit(self._survey, levels, first)
        for a, (choice, eps) in enumerate(zip(choices, losses, strict=True)):
            columns = "survey, attribute, level, answers, function, fake, phase, eps, forgotten"
            insert = f"INSERT INTO enrolment ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
            self._run(insert, a, *astuple(choice), eps, first - 1)

    def require_room(self, levels: list[int]) -> None:
        """Requires that the survey's claim fits the budget of a wallet."""
        self._accounts.fitting_claim(self._survey, levels, self._first_step())

    def _first_step(self) -> int:
        return max(0, self._survey.step_at(time.time_ns() // 1_000_000)) if self._in_wallet else 0

    def pin(self) -> str | None:
        """Returns the pin of the survey to which the memory belongs; None for an empty file, or without a place in a wallet."""
        if self._in_wallet:
            return None if self._number is None else self._survey.pin
        row = self._db.execute("SELECT pin FROM survey UNION SELECT pin FROM consent").fetchone()
        return None if row is None else str(row[0])

    def enrolled(self) -> bool:
        return self._number is not None

    def erase(self) -> None:
        """Erases everything but the consent, and in a wallet the charge of the reports."""
        if self._number is not None:
            self._accounts.leave(self._number, charge=self._in_wallet)

    def forget(self) -> None:
        """Erases everything, as `erase`, and the consent."""
        self.erase()
        self._accounts.drop_consent(self._survey.pin)

    def enrolment(self, attribute: int) -> Enrolment:
        read = "SELECT level, answers, function, fake, phase FROM enrolment WHERE survey = ? AND attribute = ?"
        level, answers, function, fake, phase = self._run(read, attribute).fetchone()
        return Enrolment(level, bool(answers), function, fake, phase)

    # ---- consent

    def consent(self) -> str | None:
        """Returns the kept answers to the survey, as JSON; None without an answer."""
        row = self._db.execute("SELECT answers FROM consent WHERE pin = ?", (self._survey.pin,)).fetchone()
        return None if row is None else str(row[0])

    def keep_consent(self, answers: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO consent VALUES (?, ?)", (self._survey.pin, answers))

    def withdraw(self, attribute: int, name: str) -> None:
        """Erases an attribute's memos, envelopes and journal. The reported steps stay, so that none gets a second report."""
        self._run("DELETE FROM memo WHERE survey = ? AND attribute = ?", attribute)
        self._run(DROP, attribute)
        self._run("DELETE FROM journal WHERE survey = ? AND attribute = ?", name)

    # ---- journal

    def leaves(self, key: str, at_ms: int, attribute: str, local: bool) -> bool:
        """Writes a report into the journal, before its first attempt. Returns false if the report does not wait any more."""
        row = self._run("SELECT step, envelope FROM sent WHERE survey = ? AND key = ?", key).fetchone()
        if row is None:
            return False
        insert = "INSERT INTO journal (survey, at_ms, attribute, step, envelope, local, key) VALUES (?, ?, ?, ?, ?, ?, ?)"
        again = "ON CONFLICT DO UPDATE SET local = min(local, excluded.local)"
        self._run(f"{insert} {again}", at_ms, attribute, *row, local, key)
        oldest = "SELECT number FROM journal WHERE survey = ? ORDER BY number DESC LIMIT -1 OFFSET ?"
        self._run(f"DELETE FROM journal WHERE number IN ({oldest})", MAX_JOURNAL)
        return True

    def journal(self) -> list[Left]:
        """Returns the journal, the latest report last."""
        return [] if self._number is None else journal_of(self._db, self._number)

    # ---- memos

    def memo(self, attribute: int, key: int, draw: Callable[[], bytes]) -> bytes:
        """Returns the memo of a key; draws and stores a memo if the key has none."""
        read = "SELECT memo FROM memo WHERE survey = ? AND attribute = ? AND key = ?"
        if self._run(read, attribute, key).fetchone() is None:
            insert = "INSERT INTO memo (survey, attribute, key, memo) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
            self._run(insert, attribute, key, draw())
        return bytes(self._run(read, attribute, key).fetchone()[0])

    # ---- envelopes

    def sent(self, attribute: int, step: int) -> bytes | None:
        """Returns the step's envelope; empty if it was dropped; None if the file does not remember the step."""
        read = "SELECT envelope FROM sent WHERE survey = ? AND attribute = ? AND step = ?"
        row = self._run(read, attribute, step).fetchone()
        return None if row is None else bytes(row[0])

    def forgotten(self, attribute: int) -> int:
        """Returns the latest forgotten step: no step up to this one gets a new report; -1 if no step is forgotten."""
        return int(self._run("SELECT forgotten FROM enrolment WHERE survey = ? AND attribute = ?", attribute).fetchone()[0])

    def earliest(self, attribute: int, step: int, every_steps: int) -> int:
        """Returns the first step after `step`, in the same phase, that is neither reported nor forgotten."""
        step += every_steps * max(1, (self.forgotten(attribute) - step) // every_steps + 1)
        while self.sent(attribute, step) is not None:
            step += every_steps
        return step

    def waiting(self) -> list[tuple[int, tuple[int, bytes, str, int]]]:
        """Returns the attribute and (step, envelope, idempotency key, `due_ms`) of each envelope that may need another attempt,
        by step."""
        columns = "attribute, step, envelope, key, due_ms"
        read = f"SELECT {columns} FROM sent WHERE survey = ? AND key IS NOT NULL ORDER BY step, attribute"
        return [(attribute, tuple(row)) for attribute, *row in self._run(read)]

    def settle(self, key: str, n_kept: int) -> None:
        """Marks the envelope with this key as settled, and forgets the steps before the n_kept latest settled ones."""
        found = self._run("SELECT attribute FROM sent WHERE survey = ? AND key = ?", key).fetchone()
        if found is None:
            return
        for table in ("sent", "journal"):
            self._run(f"UPDATE {table} SET key = NULL WHERE survey = ? AND key = ?", key)
        settled = "SELECT step FROM sent WHERE survey = ? AND attribute = ? AND key IS NULL AND envelope != x''"
        oldest = self._run(f"{settled} ORDER BY step DESC LIMIT 1 OFFSET ?", *found, n_kept - 1).fetchone()
        if oldest is not None:
            self._run("DELETE FROM sent WHERE survey = ? AND attribute = ? AND step < ?", *found, *oldest)
            self._forget_up_to(found[0], oldest[0] - 1)

    def keep(
        self, attribute: int, step: int, envelope: bytes, key: int | None, n_waiting: int, idempotency_key: str, due_ms: int
    ) -> None:
        """Counts a step's report and stores its envelope.

        If more than n_waiting envelopes are not settled, drops the one whose step is farthest from the new step. If more than
        `MAX_DROPPED` dropped steps are remembered, forgets the earliest and the steps before it.

        Args:
            key: key of the memo behind the report; None for a one-time mechanism.
        """
        self._run("INSERT INTO sent VALUES (?, ?, ?, ?, ?, ?)", attribute, step, envelope, idempotency_key, due_ms)
        self._run("UPDATE enrolment SET reports = reports + 1 WHERE survey = ? AND attribute = ?", attribute)
        self._run("UPDATE memo SET reports = reports + 1 WHERE survey = ? AND attribute = ? AND key = ?", attribute, key)
        unsettled = "SELECT step FROM sent WHERE survey = ?1 AND attribute = ?2 AND key IS NOT NULL"
        surplus = f"{unsettled} ORDER BY abs(step - ?3), step DESC LIMIT -1 OFFSET ?4"
        self._run(f"{DROP} AND step IN ({surplus})", attribute, step, n_waiting)
        dropped = "FROM sent WHERE survey = ? AND attribute = ? AND envelope = x''"
        earliest = self._run(f"SELECT step {dropped} ORDER BY step DESC LIMIT 1 OFFSET ?", attribute, MAX_DROPPED).fetchone()
        if earliest is not None:
            self._run(f"DELETE {dropped} AND step <= ?", attribute, *earliest)
            self._forget_up_to(attribute, earliest[0])

    def _forget_up_to(self, attribute: int, step: int) -> None:
        forget = "UPDATE enrolment SET forgotten = max(forgotten, ?3) WHERE survey = ?1 AND attribute = ?2"
        self._run(forget, attribute, step)

    def counts(self, attribute: int) -> tuple[int, int, int]:
        """Returns the number of distinct steps reported, of memos used, and of steps reported from these memos."""
        [reports] = self._run("SELECT reports FROM enrolment WHERE survey = ? AND attribute = ?", attribute).fetchone()
        used = "FROM memo WHERE survey = ? AND attribute = ? AND reports > 0"
        return reports, *self._run(f"SELECT count(*), ifnull(sum(reports), 0) {used}", attribute).fetchone()
