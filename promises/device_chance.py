"""The chance of a right guess from all reports of a device, which may answer several attributes.

The bound holds even if the answers to all other attributes depend on the value in the worst possible way.

- smp: a device answers one attribute, drawn once, and each report shows this attribute. The bound is for the devices that drew
  the attribute that reveals most about the value.
- spl: a device answers all attributes; the evidence of their reports is joined (`mechanisms.claims.evidence`).
- rs+fd: as smp, for an observer who knows which answer is true.
"""

import math
from functools import lru_cache
from itertools import chain
from operator import itemgetter

from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import MAX_COUNT
from ldpstream.mechanisms.claims.evidence import Evidence, joined
from ldpstream.mechanisms.claims.guessing import Chance, round_up
from ldpstream.surveys.survey import Survey


def reports_in(m: Mechanism, steps: float) -> float:
    """The largest number of reports of a device in this number of steps; for `math.inf` steps, in its lifetime."""
    return (m.lifetime_reports or math.inf) if steps == math.inf else m.reports_in(int(steps))


def all_reports(survey: Survey, m: Mechanism) -> float:
    """Returns the largest number of reports of a device: in all, or in a year if the level has no end.

    The number is infinite for a memoized level.
    """
    last = survey.n_steps or (MAX_COUNT if m.lifetime_reports else survey.steps_a_year)
    return math.inf if m.memoized else m.reports_in(last)


def device_chance(survey: Survey, attribute: int, m: Mechanism, steps: float | None, *, any_values: bool = False) -> Chance:
    """Chance of a right guess of an attribute's value from all reports of the device, at the other attributes' worst levels.

    Args:
        steps: number of consecutive steps whose reports are seen; `math.inf` only without `any_values`. None for `all_reports`,
            without `any_values`.
        any_values: true for the value at one step, if all values may change; false if this value and the values of the other
            attributes never change, except those that `_changing` names.
    """
    changing = frozenset(range(len(survey.attributes))) if any_values else _changing(survey, attribute)
    known = {o: all_reports(survey, o) if steps is None else reports_in(o, steps) for o in (m, *chain(*survey.mechanisms))}
    reports = tuple(tuple(known[o] for o in levels) for levels in survey.mechanisms)
    return _device_chance(survey.mechanisms, survey.collection, attribute, m, known[m], reports, any_values, changing)


def _changing(survey: Survey, attribute: int) -> frozenset[int]:
    """The attributes that may change while this attribute's value stays: its partners in pairs, and all pairs of the partners.

    The steps of the changes can depend on the value, and equal memos show these steps.
    """
    pairs = [(i, set(pair)) for i in range(len(survey.attributes)) if (pair := survey.members(i))]
    fixed = {attribute, *(survey.members(attribute) or ())}
    partners = {member for _, pair in pairs if pair & fixed for member in pair - fixed}
    return frozenset(partners | {i for i, pair in pairs if pair & partners})


@lru_cache(maxsize=4096)  # a call may take a tenth of a second
def _device_chance(
    mechanisms: tuple[tuple[Mechanism, ...], ...],
    collection: str,
    attribute: int,
    m: Mechanism,
    own_reports: float,
    reports: tuple[tuple[float, ...], ...],
    any_values: bool,
    changing: frozenset[int],
) -> Chance:
    own = m.claims.guess_any_values(int(own_reports)) if any_values else m.guess(own_reports)
    others = [
        [(o, number, other in changing) for o, number in zip(levels, numbers, strict=True)]
        for other, (levels, numbers) in enumerate(zip(mechanisms, reports, strict=True))
        if other != attribute
    ]
    if not others:
        return own
    if collection == "spl":
        evidence = [[o.claims.evidence(number, any_values=changes) for o, number, changes in levels] for levels in others]
        found = joined([[m.claims.evidence(own_reports, any_values=any_values)], *evidence]).guess(m.claims.guessed)
        return Chance(max(own, found), exact=False)
    kinds = {(o.signature, number, changes): o for levels in others for o, number, changes in levels}
    return max(own, *(_hint(o, m.claims.guessed, kind[1], kind[2]) for kind, o in sorted(kinds.items(), key=itemgetter(0))))


@lru_cache(maxsize=4096)
def _hint(o: Mechanism, k: int, reports: float, any_values: bool) -> Chance:
    return o.claims.guess_hint(k, reports, any_values=any_values)


def chance_of_both(first: Survey, second: Survey, name: str) -> Chance:
    """Upper bound of the chance of a right guess of a value that never changes, from all reports of a device in two surveys.

    The bound holds even if all attributes of both surveys depend on the value in the worst possible way.

    Args:
        first, second: the surveys.
        name: name of an attribute of both.
    """
    evidence = [one for survey in (first, second) for one in _evidence(survey, survey.index(name))]
    k = min(survey.mechanisms[survey.index(name)][0].claims.guessed for survey in (first, second))
    return Chance(joined(evidence).guess(k), exact=False)


def _evidence(survey: Survey, attribute: int) -> list[list[Evidence]]:
    steps = math.inf if survey.n_steps is None else survey.n_steps
    changing = _changing(survey, attribute)
    found = [
        [m.device.claims.evidence(reports_in(m, steps), any_values=other in changing) for m in levels]
        for other, levels in enumerate(survey.mechanisms)
    ]
    return found if survey.collection == "spl" else [list(chain(*found))]


def guesses(survey: Survey, attribute: int, m: Mechanism, steps: int) -> dict[str, Chance]:
    """The chances of a right guess from all reports that a device may make in these steps, by their names in the API.

    `guess` is for a value that never changes, and `guess_any_values` for the value at one step, if values may change.
    """
    alone, any_values = _alone(m, m.reports_in(steps))
    return {
        "guess": alone,
        "guess_any_values": any_values,
        "guess_device": device_chance(survey, attribute, m, steps),
        "guess_any_values_device": device_chance(survey, attribute, m, steps, any_values=True),
    }


def guess_bounds(survey: Survey, name: str, steps: int) -> dict[str, dict[str, float]]:
    """By level of an attribute, the chances of `guesses`, bounds rounded up, and `blind`: the chance without any report."""
    attribute = survey.index(name)
    return {
        level.name: {"blind": 1 / m.claims.guessed}
        | {of: c if c.exact else round_up(c) for of, c in guesses(survey, attribute, m, steps).items()}
        for level, m in zip(survey.attributes[attribute].levels, survey.mechanisms[attribute], strict=True)
    }


@lru_cache(maxsize=4096)  # a call may take a tenth of a second
def _alone(m: Mechanism, t: int) -> tuple[Chance, Chance]:
    return m.guess(t), m.claims.guess_any_values(t)
