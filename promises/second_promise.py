"""The second promise, which depends on a crowd, beside the first promise: `check --people`.

The second promise holds against readers of the published histograms and, behind a relay, against the operator. Both bounds are
the same, because histograms are sums of the reports that the operator sees without their senders.
"""

import math

from ldpstream.mechanisms.claims.guessing import Chance, percent_up
from ldpstream.mechanisms.wording import plural
from ldpstream.promises.crowds import DELTA, SecondPromise, Span, in_crowds
from ldpstream.promises.filling import facts_of, of_check
from ldpstream.promises.promise import nats
from ldpstream.surveys import Survey


def second_promise(survey: Survey, people: int | None, delta: float = DELTA) -> list[SecondPromise]:
    """Returns three rows for every attribute and level: one report, a window, all reports.

    For the arguments, see `promises.crowds.in_crowds`.
    """
    spans: tuple[Span, ...] = ("report", "window", "life")
    of_spans = [in_crowds(survey, span, people, delta) for span in spans]
    return [row for rows in zip(*of_spans, strict=True) for row in rows]


def loss_up(loss: float) -> str:
    """Formats an upper bound with three digits and no exponent, rounded up; at least 0.0001."""
    loss = max(loss, 1e-4)
    digits = 2 - math.floor(math.log10(loss))
    up = math.ceil(round(loss * 10**digits, 5)) / 10**digits
    return f"{up:.3g}" if up < 1000 else f"{up:.0f}"


def conditions(survey: Survey, delta: float, stated: bool) -> list[str]:
    """`stated`: true if the survey states the crowd, false if the number of people is given."""
    facts = {"delta": f"{delta:.12f}".rstrip("0"), "stated": stated, "adding": survey.share > 1}
    return of_check("second", facts_of(survey) | facts)


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


def second_promise_lines(survey: Survey, rows: list[SecondPromise]) -> list[str]:
    """The conditions for the survey's crowd, and a line for all reports of each attribute and level."""
    return [*conditions(survey, DELTA, stated=True), *(row_line(row) for row in rows if row.span == "life")]
