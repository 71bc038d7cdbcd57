"""The crowds in which reports hide from an observer who cannot see their senders, and the number of a device's reports."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import MAX_COUNT, integer
from ldpstream.surveys.survey import Survey

DELTA = 1e-6  # δ of the stated losses; see `Mechanism.shuffled`


class HonestCrowd(NamedTuple):
    """The honest reports among which a report of an attribute and a level hides; `n` counts also the person's."""

    attribute: str
    level: str
    mechanism: Mechanism
    n: int


def crowds(survey: Survey, people: int | None, colluding: int = 0) -> Iterator[HonestCrowd]:
    """Yields the crowd of every attribute and level.

    Args:
        people: number of people of the whole survey; None if each crowd has the survey's `crowd`.
        colluding: number of these people, or of each crowd, who forge reports or tell what they sent; less than all.

    Raises:
        ValueError: if an argument is out of range, or the survey has no `crowd` for None.
    """
    number = people if people is not None else survey.crowd
    if number is None:
        raise ValueError(f"people must be given: survey {survey.name} has no crowd")
    honest = integer("people", number, 1, MAX_COUNT) - integer("colluding", colluding, 0, number - 1)
    parts = survey.n_cohorts * (len(survey.attributes) if survey.collection == "smp" else 1)
    for attribute, mechanisms in zip(survey.attributes, survey.mechanisms, strict=True):
        for level, m in zip(attribute.levels, mechanisms, strict=True):
            n = honest // (parts * len(attribute.levels) * m.every_steps) if people is not None else honest
            yield HonestCrowd(attribute.name, level.name, m, max(n, 1))


def all_reports(survey: Survey, m: Mechanism) -> float:
    """Returns the largest number of reports of a device: in all, or in a year if the level has no end.

    The number is infinite for a memoized level.
    """
    last = survey.n_steps or (MAX_COUNT if m.lifetime_reports else survey.steps_a_year)
    return math.inf if m.memoized else m.reports_in(last)
