"""The loss of reports behind a relay, beside their loss to everybody: `ledger --relay` and `check --relay`.

Behind a relay the operator sees each report, but not its sender. The loss behind a relay is a second promise, under the
conditions of docs/privacy.md.
"""

import math
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct
from rich.table import Table

from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.guessing import Chance, percent_up
from ldpstream.mechanisms.wording import plural
from ldpstream.promise import nats
from ldpstream.reader import loss_up
from ldpstream.surveys import Survey
from ldpstream.surveys.crowds import DELTA, HonestCrowd, all_reports, crowds
from ldpstream.terminal import table

Span = Literal["report", "window", "life"]
LEGEND = (
    "all: the first promise, against everybody, also against whoever knows which reports are of one device. Loss: in nats.",
    "relay: the second promise, against everybody who has neither the relay's logs nor the times of the traffic between "
    "devices and relay. An upper bound: the chance of anything that the operator sees changes by at most a factor e^loss, plus "
    f"{DELTA:f}.",
    "crowd: the bound needs at least this number of honest reports of the same attribute, level, cohort and step. The service "
    "counts reports, and cannot tell which are honest.",
)
EVEN = "The crowd here: honest people divide evenly among levels, cohorts and steps, and under smp also among attributes."
ASSUMED = "The crowd here: the survey's crowd."
LEGEND_FRESH = (
    "A level without memos: for values that may change at every step. Life: all reports, or those of a year if there is no end."
)
LEGEND_MEMOS = (
    "A memoized level: for a value that never changes, in a crowd that reports at the same steps and keeps its memos. If the "
    "person or the crowd changes a value or draws new memos, only the first promise holds."
)
CONDITIONS = 'All conditions: docs/privacy.md, "Behind a relay".'
LEGEND_SPL = "The losses of a device's attributes add up, and so do the additions of δ."
DIRECT = (
    "Survey {name} requires no relay: devices send directly, and against the operator only the first promise holds. The second "
    'would need relay = "required".'
)


class BehindRelay(Struct, frozen=True, kw_only=True):
    """The two promises about the reports of a person, for an attribute, a level and a span of time.

    Attributes:
        span: "report": one report. "window": the reports of `window_steps` steps. "life": any number of reports of one memo;
            at a one-time level all reports of the device, or those of a year if the level has no end.
        reports: number of these reports; None for any number of reports of one memo.
        crowd: n, the least number of honest reports of the same attribute, level, cohort and step, the person's included. For
            several reports of one memo, the number of people who report at the same steps and keep their memos.
        delta: δ of `eps_behind_relay`.
        eps_everybody: loss of these reports to everybody who sees them, in nats.
        guess_everybody, guess_everybody_exact: chance of a right guess for them; false for an upper bound.
        eps_behind_relay, guess_behind_relay: upper bounds for everybody without the relay's logs and the times of the traffic.
    """

    attribute: str
    level: str
    span: Span
    reports: int | None
    crowd: int
    delta: float
    eps_everybody: float
    guess_everybody: float
    guess_everybody_exact: bool
    eps_behind_relay: float
    guess_behind_relay: float


def behind_relay(survey: Survey, people: int | None, colluding: int = 0) -> list[BehindRelay]:
    """Returns three rows for every attribute and level: one report, a window, all reports.

    For the arguments, see `surveys.crowds.crowds`.
    """
    return [
        _row(crowd, span, t)
        for crowd in crowds(survey, people, colluding)
        for span, t in _spans(survey, crowd.mechanism)
    ]  # fmt: skip


def _spans(survey: Survey, m: Mechanism) -> Iterator[tuple[Span, float]]:
    yield "report", 1
    yield "window", m.reports_in(survey.window_steps)
    yield "life", all_reports(survey, m)


def _row(crowd: HonestCrowd, span: Span, t: float) -> BehindRelay:
    m = crowd.mechanism
    everybody, (eps, guess) = m.guess(t), m.shuffled(t, crowd.n, DELTA)
    return BehindRelay(
        attribute=crowd.attribute, level=crowd.level, span=span, reports=None if t == math.inf else int(t), crowd=crowd.n,
        delta=DELTA, eps_everybody=m.eps_inf if t == math.inf else m.eps_t(int(t)), guess_everybody=float(everybody),
        guess_everybody_exact=everybody.exact, eps_behind_relay=eps, guess_behind_relay=float(guess),
    )  # fmt: skip


def relay_lines(survey: Survey, people: int | None, colluding: int) -> list[str]:
    every = [m for levels in survey.mechanisms for m in levels]
    lines = [] if survey.relay is not None else [DIRECT.format(name=survey.name)]
    lines += [*LEGEND, ASSUMED if people is None else EVEN]
    lines += colluding_lines(survey, people, colluding)
    lines += [LEGEND_FRESH] if any(not m.memoized for m in every) else []
    lines += [LEGEND_MEMOS] if any(m.memoized for m in every) else []
    return [*lines, *([LEGEND_SPL] if survey.share > 1 else []), CONDITIONS]


def colluding_lines(survey: Survey, people: int | None, colluding: int) -> list[str]:
    whole = f"each crowd of {survey.crowd or 0:,}" if people is None else f"{people:,} people"
    return [f"Of {whole}, {colluding:,} forge reports or tell what they sent, and hide nobody."] if colluding else []


def relay_line(row: BehindRelay) -> str:
    if row.reports is None:
        seen = "any number of reports of an unchanged value lose"
    else:
        seen = plural(row.reports, "report loses", "reports lose")
    known = Chance(row.guess_everybody, exact=row.guess_everybody_exact)
    people = plural(row.crowd, "honest person reports", "honest people report")
    hidden = f"{plural(loss_up(row.eps_behind_relay), 'nat')} (right guess: at most {percent_up(row.guess_behind_relay)})"
    return (
        f"{row.attribute}, {row.level}: {seen} at most {nats(row.eps_everybody)} to everybody (right guess: {known}). Behind "
        f"the relay: at most {hidden}, if {people} at the same steps."
    )


def second_promise(survey: Survey, people: int | None, colluding: int, rows: list[BehindRelay]) -> list[str]:
    told = [row for row in rows if row.span != "window" or row.reports != 1]
    return [*relay_lines(survey, people, colluding), *map(relay_line, told)]


def relay_table(people: int | None, rows: list[BehindRelay]) -> Table:
    columns = ("crowd", "loss,\nall", "loss,\nrelay", "guess,\nall", "guess,\nrelay")
    shown = table("Two promises" + ("" if people is None else f", {people:,} people"), "attribute, level", "reports", *columns)
    for row in rows:
        reports = "one" if row.span == "report" else f"{row.span}: {'one memo' if row.reports is None else f'{row.reports:,}'}"
        known = Chance(row.guess_everybody, exact=row.guess_everybody_exact)
        shown.add_row(
            f"{row.attribute}, {row.level}" if row.span == "report" else "", reports,
            f"{row.crowd:,}", f"{row.eps_everybody:.4g}", f"≤ {loss_up(row.eps_behind_relay)}",
            str(known).replace("at most", "≤"), f"≤ {percent_up(row.guess_behind_relay)}",
            end_section=row.span == "life",
        )  # fmt: skip
    return shown
