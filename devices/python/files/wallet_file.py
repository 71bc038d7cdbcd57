"""The accounts of a person's file (tables `budget` and `survey` of `memo_file`): what a wallet charges for each enrolment.

The table `survey` has no row of an enrolment that ended without a report, and in a device's own file none of an enrolment that
ended. When the device leaves the survey, the charge for ever becomes the loss of the reports made. The charge per window ends
when no window can touch both a step before `until_ms` and a present step. `until_ms` is the end of the survey's last step, NULL
for a survey without an end. After the device has left, `until_ms` is the end of the last reported step.
"""

import sqlite3
from dataclasses import astuple, dataclass

from ldpstream.device.claims import Claim, added, claim, together
from ldpstream.device.errors import WalletFull
from ldpstream.mechanisms.wording import plural
from ldpstream.surveys import Survey

TOLERANCE = 1e-9  # relative; three claims of 0.1 fit a budget of 0.3
LATEST_MS = 2**62  # a later time is stored as this time


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
        """Returns a wallet's limits; None in a device's own file, and in an empty wallet."""
        row = self._db.execute("SELECT per_window, window_s, for_ever FROM budget").fetchone()
        return None if row is None else Budget(*row)

    def create(self, budget: Budget) -> None:
        self._db.execute("INSERT INTO budget VALUES (?, ?, ?)", astuple(budget))

    def enrolled(self, pin: str) -> int | None:
        """Returns the number of the present enrolment in a survey."""
        row = self._db.execute("SELECT number FROM survey WHERE pin = ? AND reports IS NULL", (pin,)).fetchone()
        return None if row is None else int(row[0])

    def fitting_claim(self, survey: Survey, levels: list[int], first: int) -> Claim:
        """Returns a survey's claim, which fits the budget.

        Args:
            first: the first step that the device may report.

        Raises:
            WalletFull: if the claim does not fit.
        """
        budget = self.budget() or Budget(None, None, None)
        asked = claim(survey, levels, budget.window_s)
        per_window, for_ever = self.charged(survey.opens_ms(first))
        if budget.per_window is not None:
            _require(survey.name, budget.window_s, asked.per_window, per_window, budget.per_window)
        if budget.for_ever is not None:
            _require(survey.name, None, asked.for_ever, for_ever, budget.for_ever)
        return asked

    def admit(self, survey: Survey, levels: list[int], first: int) -> tuple[int, tuple[float, ...]]:
        """Charges a survey's claim, as `fitting_claim`. Returns the enrolment's number, and the loss of a report of each
        attribute."""
        asked = self.fitting_claim(survey, levels, first)
        until_ms = None if survey.n_steps is None else survey.opens_ms(survey.n_steps)
        number = self._db.execute(
            "INSERT INTO survey (pin, name, adds_up, start_ms, step_ms, per_window, for_ever, until_ms)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (survey.pin, survey.name, survey.collection == "spl", survey.start_ms, survey.step_ms,
             asked.per_window, asked.for_ever, until_ms),
        ).lastrowid  # fmt: skip
        assert number is not None
        return number, asked.losses

    def charged(self, from_ms: int) -> tuple[float, float]:
        """Returns two sums over all surveys: of the charges per window that still count at `from_ms`, and of those for ever."""
        open_window = "until_ms IS NULL OR until_ms + 1000 * window_s > ?"
        window = f"SELECT survey.per_window FROM survey, budget WHERE {open_window} ORDER BY number"
        for_ever = "SELECT for_ever FROM survey ORDER BY number"
        return self._added(window, from_ms), self._added(for_ever)

    def _added(self, query: str, *values: int) -> float:
        return added(loss for (loss,) in self._db.execute(query, values))

    def leave(self, number: int, charge: bool = True) -> None:
        """Erases the device's rows of an enrolment, and charges the loss of its reports, unless `charge` is false."""
        start_ms, step_ms = self._db.execute("SELECT start_ms, step_ms FROM survey WHERE number = ?", (number,)).fetchone()
        reports, spent = self._spent(number)
        if reports and charge:
            last_step = self._db.execute("SELECT max(step) FROM sent WHERE survey = ?", (number,)).fetchone()[0]
            self._db.execute(
                "UPDATE survey SET reports = ?, until_ms = ?, per_window = min(per_window, ?), for_ever = ? WHERE number = ?",
                (reports, min(start_ms + (last_step + 1) * step_ms, LATEST_MS), spent, spent, number),
            )
        else:
            self._db.execute("DELETE FROM survey WHERE number = ?", (number,))
        for table in ("enrolment", "memo", "sent", "journal"):
            self._db.execute(f"DELETE FROM {table} WHERE survey = ?", (number,))

    def drop_consent(self, pin: str) -> None:
        self._db.execute("DELETE FROM consent WHERE pin = ?", (pin,))

    def rows(self) -> tuple[SurveySpent, ...]:
        found = []
        read = "SELECT number, pin, name, reports, per_window, for_ever FROM survey ORDER BY number"
        for number, pin, name, reports, per_window, for_ever in self._db.execute(read).fetchall():
            made, spent = self._spent(number) if reports is None else (reports, for_ever)
            found.append(SurveySpent(name, pin, reports is not None, made, spent, per_window, for_ever))
        return tuple(found)

    def _spent(self, number: int) -> tuple[int, float]:
        adds_up = self._db.execute("SELECT adds_up FROM survey WHERE number = ?", (number,)).fetchone()[0]
        made = self._db.execute("SELECT reports, eps FROM enrolment WHERE survey = ?", (number,)).fetchall()
        return sum(reports for reports, _ in made), together([reports * eps for reports, eps in made], bool(adds_up))


def _require(survey: str, window_s: int | None, asked: float, charged: float, limit: float) -> None:
    if not asked + charged <= limit * (1 + TOLERANCE):
        raise WalletFull(survey, window_s, asked, max(limit - charged, 0.0))
