"""A wallet's file: one SQLite file (`sqlite_file`) for all surveys of a person.

    budget       the wallet's limits, stored by the first use; NULL for no limit
    survey       for every enrolment, unless it ended without a report: the 32 bytes of the survey's pin, in the column
                 `fingerprint`, the name, and the wallet's charges
    loss         for every enrolment and attribute: `eps_per_report`, until the device leaves the survey
    survey_N_…   the device's tables for survey N (`memo_file`), until the device leaves the survey
    consent      the person's answers to each survey, by its pin (`memo_file`)

When the device leaves the survey, the charge for ever becomes the loss of the reports made. The charge per window ends when no
window can touch both a step before `until_ms` and a present step. `until_ms` is the end of the survey's last step, NULL for a
survey without an end. After the device has left, `until_ms` is the end of the last reported step.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

from ldpstream.device.claims import Claim, added, claim, together
from ldpstream.device.errors import StoreCleared, WalletFull
from ldpstream.device.files.memo_file import Enrolment, Transaction
from ldpstream.device.files.sqlite_file import WALLET, SQLiteFile, format_of
from ldpstream.mechanisms.wording import plural
from ldpstream.surveys import Survey

TOLERANCE = 1e-9  # relative; three claims of 0.1 fit a budget of 0.3
LATEST_MS = 2**62  # a later time is stored as this time

_TABLES = (
    "CREATE TABLE budget (per_window REAL, window_s INTEGER, for_ever REAL)",
    "CREATE TABLE survey (number INTEGER PRIMARY KEY AUTOINCREMENT, fingerprint BLOB NOT NULL, name TEXT NOT NULL,"
    " adds_up INTEGER NOT NULL, start_ms INTEGER NOT NULL, step_ms INTEGER NOT NULL,"
    " per_window REAL NOT NULL, for_ever REAL NOT NULL, reports INTEGER, until_ms INTEGER)",
    "CREATE TABLE loss (survey INTEGER, attribute INTEGER, eps REAL NOT NULL, PRIMARY KEY (survey, attribute)) WITHOUT ROWID",
    "CREATE UNIQUE INDEX enrolled ON survey (fingerprint) WHERE reports IS NULL",
)


@dataclass(frozen=True, slots=True)
class Budget:
    """A wallet's limits."""

    per_window: float | None
    window_s: int | None
    for_ever: float | None

    def __str__(self) -> str:
        window = [] if self.per_window is None else [f"{plural(f'{self.per_window:.12g}', 'nat')} within {self.window_s} s"]
        return " and ".join(
            [*window, *([] if self.for_ever is None else [f"{plural(f'{self.for_ever:.12g}', 'nat')} for ever"])]
        )


@dataclass(frozen=True, slots=True)
class SurveySpent:
    """One enrolment in a survey, with the device's loss so far and the wallet's charges.

    `pin` has 64 hexadecimal digits.
    """

    survey: str
    pin: str
    left: bool
    reports: int
    spent: float
    per_window: float
    for_ever: float


class Accounts:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def budget(self) -> Budget | None:
        if format_of(self._db) == 0:
            return None
        return Budget(*self._db.execute("SELECT per_window, window_s, for_ever FROM budget").fetchone())

    def create(self, budget: Budget) -> None:
        for statement in _TABLES:
            self._db.execute(statement)
        self._db.execute("INSERT INTO budget VALUES (?, ?, ?)", astuple(budget))
        self._db.execute(f"PRAGMA user_version = {WALLET}")

    def enrolled(self, pin: bytes) -> int | None:
        row = self._db.execute("SELECT number FROM survey WHERE fingerprint = ? AND reports IS NULL", (pin,)).fetchone()
        return None if row is None else int(row[0])

    def fitting_claim(self, survey: Survey, levels: list[int], from_ms: int) -> Claim:
        """Returns a survey's claim, which fits the budget.

        Args:
            from_ms: beginning of the first step that the device may report.

        Raises:
            WalletFull: if the claim does not fit.
        """
        budget = self.budget()
        assert budget is not None
        asked = claim(survey, levels, budget.window_s)
        per_window, for_ever = self.charged(from_ms)
        if budget.per_window is not None:
            _require(survey.name, budget.window_s, asked.per_window, per_window, budget.per_window)
        if budget.for_ever is not None:
            _require(survey.name, None, asked.for_ever, for_ever, budget.for_ever)
        return asked

    def admit(self, survey: Survey, levels: list[int], from_ms: int) -> int:
        """Charges a survey's claim and returns the survey's number; as `fitting_claim`."""
        asked = self.fitting_claim(survey, levels, from_ms)
        until_ms = None if survey.n_steps is None else survey.opens_ms(survey.n_steps)
        number = self._db.execute(
            "INSERT INTO survey (fingerprint, name, adds_up, start_ms, step_ms, per_window, for_ever, until_ms)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (bytes.fromhex(survey.pin), survey.name, survey.collection == "spl", survey.start_ms, survey.step_ms,
             asked.per_window, asked.for_ever, until_ms),
        ).lastrowid  # fmt: skip
        assert number is not None
        self._db.executemany("INSERT INTO loss VALUES (?, ?, ?)", [(number, a, eps) for a, eps in enumerate(asked.losses)])
        return number

    def charged(self, from_ms: int) -> tuple[float, float]:
        """Returns two sums over all surveys: of the charges per window that still count at `from_ms`, and of those for ever."""
        open_window = "until_ms IS NULL OR until_ms + 1000 * window_s > ?"
        window = f"SELECT survey.per_window FROM survey, budget WHERE {open_window} ORDER BY number"
        for_ever = "SELECT for_ever FROM survey ORDER BY number"
        return self._added(window, from_ms), self._added(for_ever)

    def _added(self, query: str, *values: int) -> float:
        return added(loss for (loss,) in self._db.execute(query, values))

    def leave(self, number: int) -> None:
        """Drops the device's tables of a survey, and charges the loss of its reports."""
        start_ms, step_ms = self._db.execute("SELECT start_ms, step_ms FROM survey WHERE number = ?", (number,)).fetchone()
        reports, spent = self._spent(number)
        if reports:
            last_step = self._db.execute(f"SELECT max(step) FROM {prefix(number)}sent").fetchone()[0]
            self._db.execute(
                "UPDATE survey SET reports = ?, until_ms = ?, per_window = min(per_window, ?), for_ever = ? WHERE number = ?",
                (reports, min(start_ms + (last_step + 1) * step_ms, LATEST_MS), spent, spent, number),
            )
        else:
            self._db.execute("DELETE FROM survey WHERE number = ?", (number,))
        self._db.execute("DELETE FROM loss WHERE survey = ?", (number,))
        Transaction(self._db, prefix(number)).drop()

    def drop_consent(self, pin: str) -> None:
        if self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'consent'").fetchone() is not None:
            self._db.execute("DELETE FROM consent WHERE pin = ?", (pin,))

    def rows(self) -> tuple[SurveySpent, ...]:
        found = []
        read = "SELECT number, fingerprint, name, reports, per_window, for_ever FROM survey ORDER BY number"
        for number, pin, name, reports, per_window, for_ever in self._db.execute(read).fetchall():
            made, spent = self._spent(number) if reports is None else (reports, for_ever)
            found.append(SurveySpent(name, pin.hex(), reports is not None, made, spent, per_window, for_ever))
        return tuple(found)

    def _spent(self, number: int) -> tuple[int, float]:
        adds_up = self._db.execute("SELECT adds_up FROM survey WHERE number = ?", (number,)).fetchone()[0]
        made = self._db.execute(
            f"SELECT reports, eps FROM {prefix(number)}enrolment JOIN loss USING (attribute) WHERE survey = ?", (number,)
        ).fetchall()
        return sum(reports for reports, _ in made), together([reports * eps for reports, eps in made], bool(adds_up))


class Place:
    """A survey's place in a wallet: the memory of the device that answers the survey.

    Args:
        asked: true if the device asks for consent. It then goes on with an enrolment that another process made after a
            withdrawal.
    """

    def __init__(self, file: SQLiteFile, survey: Survey, now_ms: Callable[[], int], asked: bool) -> None:
        self.survey, self.now_ms, self.asked = survey, now_ms, asked
        self.number: int | None = None  # number of the enrolment; None until it is known
        self._file = file

    @property
    def path(self) -> Path:
        return self._file.path

    @contextmanager
    def transaction(self, create: bool = False) -> Iterator[Transaction]:
        with self._file.connection() as connection:
            yield _InWallet(connection, self)


class _InWallet(Transaction):
    _format = WALLET

    def __init__(self, connection: sqlite3.Connection, place: Place) -> None:
        self._accounts, self._place = Accounts(connection), place
        if self._accounts.budget() is None:
            raise StoreCleared(f"{place.path}: the file is empty; make a new Wallet to enroll again")
        found = self._accounts.enrolled(bytes.fromhex(place.survey.pin))
        if place.number is None or place.asked:
            place.number = found
        self._enrolled = found is not None and found == place.number
        super().__init__(connection, prefix(place.number or 0))

    def enroll(self, pin: str, levels: list[int], draw: Callable[[], list[Enrolment]]) -> None:
        survey, place = self._place.survey, self._place
        first = self._first_step()
        place.number = self._accounts.admit(survey, levels, survey.opens_ms(first))
        self._name_tables(prefix(place.number))
        self._create(draw(), forgotten=first - 1)

    def require_room(self, levels: list[int]) -> None:
        survey = self._place.survey
        self._accounts.fitting_claim(survey, levels, survey.opens_ms(self._first_step()))

    def _first_step(self) -> int:
        return max(0, self._place.survey.step_at(self._place.now_ms()))

    def pin(self) -> str | None:
        return self._place.survey.pin if self._enrolled else None

    def enrolled(self) -> bool:
        return self._enrolled

    def erase(self) -> None:
        if self._enrolled and self._place.number is not None:
            self._accounts.leave(self._place.number)

    def forget(self) -> None:
        self.erase()
        self._accounts.drop_consent(self._place.survey.pin)


def prefix(number: int) -> str:
    return f"survey_{number}_"


def _require(survey: str, window_s: int | None, asked: float, charged: float, limit: float) -> None:
    if not asked + charged <= limit * (1 + TOLERANCE):
        raise WalletFull(survey, window_s, asked, max(limit - charged, 0.0))
