"""The weight of false reports in the estimates of a level, in numbers and in words.

A liar here sends one false report at every step. One liar outweighs T / reports_in(T) times as many honest people in T steps as
in one step.
"""

from typing import Final

import msgspec

from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.wording import plural
from ldpstream.surveys import Survey

LEAST_REPORTS: Final = 1000  # a gateway takes at least so many reports of an attribute and step from one address


class CheckedWeight(msgspec.Struct, frozen=True, kw_only=True):
    """The number of honest people whom false reports outweigh in one share.

    `one_value` is for one report. `in_window` and `in_year` are for a liar who sends one report at every step.
    """

    one_value: float
    in_window: float
    in_year: float


def weight(survey: Survey, m: Mechanism) -> CheckedWeight:
    one = m.outweighs()
    in_window, in_year = (one * steps / m.reports_in(steps) for steps in (survey.window_steps, survey.steps_a_year))
    return CheckedWeight(one_value=one, in_window=in_window, in_year=in_year)


def weight_line(w: CheckedWeight) -> str:
    honest = plural(_people(w.one_value), "honest person", "honest people")
    line = f"One false report moves a share as much as {honest} of this attribute and level"
    if w.in_year <= w.one_value * (1 + 1e-9):
        return f"{line}. A liar who sends one report at every step has the same weight in a window and in a year."
    window, year = (plural(_people(weight), "honest person", "honest people") for weight in (w.in_window, w.in_year))
    liar = "Honest devices report less often. So a liar who sends one report at every step has the weight of"
    return f"{line}. {liar} {window} in a window and of {year} in a year."


def _people(number: float) -> str:
    return f"{number:.3g}" if number < 1000 else f"{number:,.0f}"
