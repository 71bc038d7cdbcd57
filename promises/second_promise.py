"""The second promise, which depends on a crowd, beside the first promise: `check --people`.

The second promise holds against readers of the published histograms and, behind a relay, against the operator. Both bounds are
the same, because histograms are sums of the reports that the operator sees without their senders.
"""

import math

from ldpstream.mechanisms.claims.guessing import Chance, percent_up
from ldpstream.mechanisms.wording import plural
from ldpstream.promises.crowds import DELTA, SecondPromise, Span, in_crowds
from ldpstream.promises.promise import nats
from ldpstream.surveys import Survey

FIRST = "First promise: against everybody who sees the device's reports, whatever other people do."
SECOND = "Second promise: against readers of the published histograms, who see no single report, in a crowd."
RELAYED = (
    "Behind the relay, the second promise also holds against everybody who has neither the relay's logs nor the times of the "
    "traffic between devices and relay."
)
DIRECT = (
    "Survey {name} requires no relay. The operator sees the sender of each report, so only the first promise holds against the "
    "operator."
)
LOSS = (
    "Loss: of this attribute's reports, in nats. Between any two histories of the person's values, the chance of anything that "
    "is seen differs by at most a factor e^loss. In a crowd, δ = {delta} is added. An observation that excludes an answer has "
    "at most the chance δ. Choose δ (--delta) far below 1 / number of people."
)
GUESS = (
    "Guess: chance of a right guess from the reports of all attributes of the device, if no value changes. At first, all "
    "answers are equally likely. Answers to other questions may give the strongest possible hint."
)
CROWD = (
    "Crowd: honest people who report at the same steps, with the same attribute, level and cohort. The service counts reports, "
    "and cannot tell which are honest. Assumed: if the difference of two published tables contains a report of the person, it "
    "contains the reports of such a crowd, too."
)
EVEN = (
    "Assumed: honest people take part all the time, and choose levels and cohorts independently, each equally often. People "
    "with a rarer level or cohort have a smaller crowd. δ includes the chance that a person's own crowd is smaller than stated."
)
ASSUMED = "Assumed: each crowd has at least the number of people that the survey states as `crowd`."
LEGEND_FRESH = (
    "A level without memos: the loss holds for values that may change at every step. If its reports have no end, all numbers "
    "count those of a year."
)
LEGEND_MEMOS = (
    "A memoized level, several reports: both promises need a value that never changes, and one memo of it. The second promise "
    "also needs the same crowd at each step of the person. Nobody in the crowd may change a value or draw a new memo. One step "
    "that breaks this ends the second promise for the reports of all steps."
)
LEGEND_SPL = "The losses of a device's attributes add up, and so do their δ."
CONDITIONS = 'All conditions: docs/explained/privacy.md, "The second promise".'


def second_promise(survey: Survey, people: int | None, colluding: int = 0, delta: float = DELTA) -> list[SecondPromise]:
    """Returns three rows for every attribute and level: one report, a window, all reports.

    For the arguments, see `promises.crowds.in_crowds`.
    """
    spans: tuple[Span, ...] = ("report", "window", "life")
    of_spans = [in_crowds(survey, span, people, colluding, delta) for span in spans]
    return [row for rows in zip(*of_spans, strict=True) for row in rows]


def loss_up(loss: float) -> str:
    """Formats an upper bound with three digits and no exponent, rounded up; at least 0.0001."""
    loss = max(loss, 1e-4)
    digits = 2 - math.floor(math.log10(loss))
    up = math.ceil(round(loss * 10**digits, 5)) / 10**digits
    return f"{up:.3g}" if up < 1000 else f"{up:.0f}"


def conditions(survey: Survey, people: int | None, colluding: int, delta: float) -> list[str]:
    every = [m for levels in survey.mechanisms for m in levels]
    whole = f"each crowd of {survey.crowd or 0:,}" if people is None else f"{people:,} people"
    forged = f"Of {whole}, {colluding:,} forge reports or tell what they sent, and hide nobody."
    return [
        FIRST, SECOND, DIRECT.format(name=survey.name) if survey.relay is None else RELAYED,
        LOSS.format(delta=f"{delta:.12f}".rstrip("0")), GUESS, CROWD, ASSUMED if people is None else EVEN,
        *([forged] if colluding else []),
        *([LEGEND_FRESH] if any(not m.memoized for m in every) else []),
        *([LEGEND_MEMOS] if any(m.memoized for m in every) else []),
        *([LEGEND_SPL] if survey.share > 1 else []), CONDITIONS,
    ]  # fmt: skip


def row_line(row: SecondPromise) -> str:
    if row.reports is None:
        seen = "any number of reports of an unchanged value lose"
        crowd = f"{plural(row.crowd, 'honest person', 'honest people')} with unchanged memos at all the same steps"
    else:
        seen = plural(row.reports, "report loses", "reports lose")
        crowd = f"{plural(row.crowd, 'honest person', 'honest people')} at the same steps"
    known = Chance(row.guess_everybody, exact=row.guess_everybody_exact)
    hidden = f"{plural(loss_up(row.eps_in_crowd), 'nat')} (right guess: at most {percent_up(row.guess_in_crowd)})"
    return (
        f"{row.attribute}, {row.level}: {seen} at most {nats(row.eps_everybody)} to everybody (right guess: {known}). "
        f"In a crowd of {crowd}: at most {hidden}."
    )


def second_promise_lines(
    survey: Survey, people: int | None, rows: list[SecondPromise], colluding: int = 0, delta: float = DELTA
) -> list[str]:
    """The conditions, and a line for all reports of each attribute and level."""
    return [*conditions(survey, people, colluding, delta), *(row_line(row) for row in rows if row.span == "life")]
