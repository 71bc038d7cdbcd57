"""The chance of a right guess from all reports of a device, which may answer several attributes.

The bound holds even if the answers to all other attributes depend on the value in the worst possible way.

- smp: a device answers one attribute, drawn once, and each report shows this attribute. The bound is for the devices that drew
  the attribute that reveals most about the value.
- spl: a device answers all attributes; the evidence of their reports adds up (`mechanisms.evidence`).
- rs+fd: as smp, for an observer who knows which answer is true.
"""

import math
from functools import lru_cache

from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.evidence import Evidence, guess_bound
from ldpstream.mechanisms.guessing import Chance
from ldpstream.surveys.survey import Survey


def reports_in(m: Mechanism, steps: float) -> float:
    """The largest number of reports of a device in this number of steps; for `math.inf` steps, in its lifetime."""
    return (m.lifetime_reports or math.inf) if steps == math.inf else m.reports_in(int(steps))


def device_chance(survey: Survey, attribute: int, m: Mechanism, steps: float, *, any_values: bool = False) -> Chance:
    """Chance of a right guess of an attribute's value from all reports of the device, at the other attributes' worst levels.

    Args:
        steps: number of consecutive steps whose reports are seen; `math.inf` only without `any_values`.
        any_values: false if this value and the answers to the other questions never change, except the other value of a pair;
            true for the value at one step, if all values may change.
    """
    memos = tuple(_memos(survey, other, attribute) for other in range(len(survey.attributes)))
    return _device_chance(survey.mechanisms, survey.collection, attribute, m, steps, any_values, memos)


def _memos(survey: Survey, other: int, attribute: int) -> int:
    pair = survey.members(other)
    return survey.attributes[sum(pair) - attribute].k if pair and attribute in pair else 1


def _told(o: Mechanism, reports: float, any_values: bool, memos: int) -> Evidence:
    found = o.evidence(reports, any_values=any_values)
    if any_values or memos == 1 or not o.memoized:
        return found
    shared = o.max_memos < o.k  # local hashing: several values have one memo, so the memos' number does not bound the evidence
    return Evidence(found.eps, found.favours, math.inf if shared else found.rounds * memos)


@lru_cache(maxsize=4096)  # a call may take a tenth of a second
def _device_chance(
    mechanisms: tuple[tuple[Mechanism, ...], ...],
    collection: str,
    attribute: int,
    m: Mechanism,
    steps: float,
    any_values: bool,
    memos: tuple[int, ...],
) -> Chance:
    reports = reports_in(m, steps)
    own = m.guess_any_values(int(reports)) if any_values else m.guess(reports)
    others = [
        (levels, drawn) for other, (levels, drawn) in enumerate(zip(mechanisms, memos, strict=True)) if other != attribute
    ]
    if not others:
        return own
    if collection == "spl":
        evidence = [
            Evidence.worst(_told(o, reports_in(o, steps), any_values, drawn) for o in levels) for levels, drawn in others
        ]
        found = guess_bound(m.guessed, m.evidence(reports, any_values=any_values), *evidence)
        return Chance(max(own, found), exact=False)
    first: dict[tuple[str, float], Mechanism] = {}  # one mechanism for each signature and number of reports
    for o in (o for levels in mechanisms for o in levels):
        first.setdefault((o.signature, reports_in(o, steps)), o)
    kinds = {(o.signature, reports_in(o, steps), drawn) for levels, drawn in others for o in levels}
    return max(own, *(_hint(first[kind[:2]], m.guessed, kind[1], any_values, kind[2]) for kind in sorted(kinds)))


@lru_cache(maxsize=4096)
def _hint(o: Mechanism, k: int, reports: float, any_values: bool, memos: int) -> Chance:
    if any_values or memos == 1 or not o.memoized:
        return o.guess_hint(k, reports, any_values=any_values)
    return Chance(guess_bound(k, _told(o.device, reports, any_values, memos)), exact=False)


def chance_of_both(first: Survey, second: Survey, name: str) -> Chance:
    """Upper bound of the chance of a right guess of a value that never changes, from all reports of a device in two surveys.

    The bound holds even if all attributes of both surveys depend on the value in the worst possible way.

    Args:
        first, second: the surveys.
        name: name of an attribute of both.
    """
    evidence = [one for survey in (first, second) for one in _evidence(survey, survey.index(name))]
    k = min(survey.mechanisms[survey.index(name)][0].guessed for survey in (first, second))
    return Chance(guess_bound(k, *evidence), exact=False)


def _evidence(survey: Survey, attribute: int) -> list[Evidence]:
    steps = math.inf if survey.n_steps is None else survey.n_steps
    worst = [
        Evidence.worst(_told(m.device, reports_in(m, steps), False, _memos(survey, other, attribute)) for m in levels)
        for other, levels in enumerate(survey.mechanisms)
    ]
    return worst if survey.collection == "spl" else [Evidence.worst(worst)]


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


@lru_cache(maxsize=4096)  # a call may take a tenth of a second
def _alone(m: Mechanism, t: int) -> tuple[Chance, Chance]:
    return m.guess(t), m.guess_any_values(t)
