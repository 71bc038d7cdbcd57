"""Words for the person: the question that an application shows, and the parts of a report.

All texts are plain text, from the survey's own words. The devices in other languages use the same words (`words.json` of the
test vectors). A chance is that of a guesser who at first considers all answers equally likely. It follows from the losses, and
holds even if the answers to the other questions are hints.
"""

import math
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from ldpstream.device.claims import guess_bound, losses
from ldpstream.mechanisms.wording import plural
from ldpstream.surveys import Attribute, Survey

DRAWN: Final = "Your device sends a random answer. Your true answer only changes the chances of the draw."
NOT_PROTECTED: Final = (
    "Not protected: that you take part, when you send or stay silent, and the question, level and group of a report."
    " If an answer changes, or your storage is deleted, reports can reveal more."
)
STOP: Final = (
    "You can stop at any time. Then this device sends nothing more, and erases what it keeps. Reports that it sent stay in the"
    " histograms."
)
SAME: Final = "the same for all participants"
_UNSEEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # a gateway could write over other lines
_UNITS: Final = ((86_400, "day"), (3600, "hour"), (60, "minute"))


def question(survey: Survey, levels: Sequence[int]) -> str:
    """Returns the text by which an application asks for consent, one sentence or two a line.

    Args:
        levels: the index of the level of each attribute.
    """
    owner = ", ".join(text for text in (survey.owner, survey.contact) if text)
    kept = _duration(survey.retention_steps * survey.step_seconds)
    one, every = [_one(survey, a, level) for a, level in enumerate(levels)], losses(survey, levels)
    all_asked = survey.collection == "spl"
    guesses = [
        f"A {_guess(a)} is right for at most {_people(a)} without a report, {_people(a, one, all_asked)} with the reports of"
        f" one step, and {_people(a, every, all_asked)} with all reports while your answers stay the same."
        for a in survey.attributes
    ]
    lines = [survey.title or survey.name, survey.description, f"Purpose: {survey.purpose or 'not stated.'}"]
    lines += [f"Asked by: {owner or 'not stated.'}", f"Questions: {', '.join(a.name for a in survey.attributes)}.", DRAWN]
    lines += [*guesses, NOT_PROTECTED, f"Kept: the service shows the histograms for {kept}. Copies can stay longer.", STOP]
    return "\n".join(_UNSEEN.sub(" ", line) for line in lines if line)


def explained(survey: Survey, envelope: bytes) -> list[tuple[bytes, str]]:
    """Returns the parts of an envelope of the survey, each with what it can reveal. Together, the parts are the envelope."""
    fields = msgspec.msgpack.decode(envelope)
    _, _, a, level, step, _, *cohort, _ = fields
    asked, one = survey.attributes[a], _one(survey, a, level)
    said = [
        f"the version of the form: {SAME}",
        f"that you take part in {survey.name}: {SAME}",
        f"the question: {asked.name}",
        f"the level that you chose: {asked.levels[level].name}" if len(asked.levels) > 1 else f"the level: {SAME}",
        f"the time: step {step}, of {_duration(survey.step_seconds)}",
        f"the number of reports: {SAME}",
        *(f"your device's group: {survey.cohort_name(index)}" for index in cohort),
        f"a random answer: a {_guess(asked)} is right for at most {_people(asked, [one])}, without it {_people(asked)}",
    ]
    data = [msgspec.msgpack.encode(value) for value in fields]
    return [(envelope[:1], f"the form: {SAME}"), *zip(data, (_UNSEEN.sub(" ", line) for line in said), strict=True)]


def _one(survey: Survey, attribute: int, level: int) -> tuple[float, float]:
    """Returns the loss of one report, and the number 1."""
    chosen = survey.attributes[attribute].levels[level]
    return (chosen.eps if chosen.eps is not None else chosen.eps_1 or 0.0) / survey.share, 1.0


def _guess(attribute: Attribute) -> str:
    if attribute.most:
        return f"guess whether {attribute.name} has a value (yes and no are equally likely at first)"
    return f"guess of {attribute.name} (all answers are equally likely at first)"


def _people(attribute: Attribute, made: Sequence[tuple[float, float]] = ((0.0, 1.0),), adds_up: bool = False) -> str:
    """Returns a bound of the chance of a right guess (`claims.guess_bound`), rounded up to a number of people."""
    people = math.ceil(100 * guess_bound(2 if attribute.most else attribute.k, made, adds_up) - 1e-9)
    return f"{people} of 100" if people < 100 else "no useful limit"


def _duration(seconds: int) -> str:
    """Returns a time, rounded up to its largest unit that occurs twice.

    >>> _duration(86_400), _duration(30 * 86_400), _duration(90)
    ('24 hours', '30 days', '90 seconds')
    """
    unit, name = next((unit for unit in _UNITS if seconds >= 2 * unit[0]), (1, "second"))
    return plural(str(-(-seconds // unit)), name)
