"""Bounds for a reader of the published histograms, who sees no single report: `ledger --people` and `check --people`.

The losses are bounds by `PrivacyClaims.shuffled`: every histogram is a function of sums of reports.
"""

import math

from msgspec import Struct
from rich.table import Table

from ldpstream.mechanisms.guessing import percent, percent_up
from ldpstream.mechanisms.wording import plural
from ldpstream.promise import nats
from ldpstream.surveys import Survey
from ldpstream.surveys.crowds import DELTA, HonestCrowd, all_reports, crowds

LEGEND = (
    "A reader sees published histograms and their differences, but no single report. Operators see more.",
    "all: for whoever sees all these reports, and for any crowd. Loss: in nats. Guess: chance of a right guess.",
    f"reader: an upper bound. The chance of any set of histograms changes by at most a factor e^loss, plus {DELTA:f}.",
    "crowd: the bound needs at least this number of honest reports in each step's table and in each difference of tables.",
    "The crowd here: honest people divide evenly among levels, cohorts and steps, and under smp also among attributes.",
    "reports: of a device in all; in a year, if the survey and the device never stop.",
)
LEGEND_MEMOS = (
    "one memo: any number of reports of a value that never changes. Its crowd: people who are always in the same tables.",
    "The bound ends when the person or the crowd changes a value, misses different steps, or draws new memos.",
)
LEGEND_SPL = "The losses of a device's attributes add up."
READERS = (
    "\nReaders of the published histograms, who see no single report. The chance of any set of histograms changes by at most a "
    f"factor e^loss, plus {DELTA:f}. The conditions: `ldpstream ledger --people`."
)


class Reader(Struct, frozen=True, kw_only=True):
    """Bounds of a reader's knowledge about a person, from the histograms of an attribute and a level.

    Attributes:
        reports: number of fresh reports of the person in all, or in a year if the level has no end. None for a memoized level:
            any number of reports of one value that never changes.
        crowd: n, the least number of honest reports in each published table, or difference of two, with a report of the person.
            For a memoized level, the number of people who are in the same tables throughout and keep their memos.
        delta: δ of `eps_reader`.
        eps_all: loss of these reports in nats, to everybody who sees them.
        guess_all, guess_all_exact: chance of a right guess for whoever sees them; false for an upper bound.
        eps_reader, guess_reader: upper bounds for a reader of the histograms alone.
    """

    attribute: str
    level: str
    reports: int | None
    crowd: int
    delta: float
    eps_all: float
    guess_all: float
    guess_all_exact: bool
    eps_reader: float
    guess_reader: float


def readers(survey: Survey, people: int, colluding: int = 0) -> list[Reader]:
    """Returns a row for every attribute and level. For the arguments, see `surveys.crowds.crowds`."""
    return [_level(survey, crowd) for crowd in crowds(survey, people, colluding)]


def _level(survey: Survey, crowd: HonestCrowd) -> Reader:
    m, t = crowd.mechanism, all_reports(survey, crowd.mechanism)
    eps_all, guess_all = m.eps_inf if m.memoized else m.eps_t(int(t)), m.guess(t)
    eps, guess = m.shuffled(t, crowd.n, DELTA)
    return Reader(
        attribute=crowd.attribute, level=crowd.level, reports=None if m.memoized else int(t), crowd=crowd.n, delta=DELTA,
        eps_all=eps_all, guess_all=float(guess_all), guess_all_exact=guess_all.exact, eps_reader=eps, guess_reader=float(guess),
    )  # fmt: skip


def loss_up(loss: float) -> str:
    """Formats an upper bound with three digits and no exponent, rounded up; at least 0.0001."""
    loss = max(loss, 1e-4)
    digits = 2 - math.floor(math.log10(loss))
    up = math.ceil(round(loss * 10**digits, 5)) / 10**digits
    return f"{up:.3g}" if up < 1000 else f"{up:.0f}"


def legend(survey: Survey) -> list[str]:
    memos = any(m.memoized for levels in survey.mechanisms for m in levels)
    return [*LEGEND, *(LEGEND_MEMOS if memos else ()), *([LEGEND_SPL] if survey.share > 1 else [])]


def reader_line(row: Reader) -> str:
    if row.reports is None:
        seen = "any number of reports of an unchanged value lose"
        crowd = f"{plural(row.crowd, 'person is', 'people are')} always in the same tables"
    else:
        seen = plural(row.reports, "report loses", "reports lose")
        crowd = f"each table has {plural(row.crowd, 'honest report')}"
    return (
        f"{row.attribute}, {row.level}: {seen} at most {nats(row.eps_all)} to whoever sees them. A reader learns at "
        f"most {plural(loss_up(row.eps_reader), 'nat')} (right guess: at most {percent_up(row.guess_reader)}), if {crowd}."
    )


def reader_table(people: int, rows: list[Reader]) -> Table:
    table = Table(title=f"Readers of the published histograms only, {people:,} people", title_justify="left")
    table.add_column("attribute, level")
    for column in ("reports", "crowd", "loss,\nall", "loss,\nreader", "guess,\nall", "guess,\nreader"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        reports = "one memo" if row.reports is None else f"{row.reports:,}"
        known = percent(row.guess_all) if row.guess_all_exact else f"≤ {percent_up(row.guess_all)}"
        table.add_row(
            f"{row.attribute}, {row.level}", reports, f"{row.crowd:,}", f"{row.eps_all:.4g}", f"≤ {loss_up(row.eps_reader)}",
            known, f"≤ {percent_up(row.guess_reader)}",
        )  # fmt: skip
    return table
