"""The label of a survey: eight lines for people who read no more. `check.toml` has the words.

The page, `ldpstream check --label` and the SVG show the same lines.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from ldpstream.mechanisms.claims.guessing import Chance
from ldpstream.mechanisms.wording import up
from ldpstream.promises.device_chance import device_chance
from ldpstream.promises.filling import facts_of, of_check
from ldpstream.promises.promise import TIME, duration, odds
from ldpstream.promises.statements import device_loss
from ldpstream.surveys import Survey
from ldpstream.surveys.survey import KEPT_MS

LINES = ("protected", "how_long", "from_whom", "how_strong", "not_protected", "addresses", "stored", "signed")
NO_LIMIT = "no useful limit"
MOST_NAMES = 3  # of questions in a line


class LabelLine(msgspec.Struct, frozen=True):
    """A line of the label, with its heading and its text for people.

    `name`: "protected", "how_long", "from_whom", "how_strong", "not_protected", "addresses", "stored" or "signed".
    """

    name: str
    heading: str
    text: str


class LabelChance(msgspec.Struct, frozen=True):
    """An upper bound of the chance of a right guess, for every question and level.

    The guesser sees all reports of a device in a time, and at first considers all values equally likely. Other answers may give
    the strongest possible hints.

    Attributes:
        name: "blind": without a report. "one_report": from the reports of one step. "year": of a year, if no value changes.
            "year_any_values": of the value at one step from those of a year, if all values may change at every step.
        heading: the same for people. If the survey ends within a year, the reports are those of the whole survey.
        text: right guesses of 100, rounded up; "no useful limit" in place of 100.
    """

    name: str
    heading: str
    chance: float
    text: str


class Label(msgspec.Struct, frozen=True):
    """The label: the survey's title or name, eight lines, and the chances of the line "how_strong"."""

    title: str
    lines: list[LabelLine]
    chances: list[LabelChance]


def label(survey: Survey, signed: datetime | None) -> Label:
    """Returns the label of a survey.

    Args:
        signed: the time of the survey's latest signature; None if it has none.
    """
    told, eps = _chances(survey), device_loss(survey, lambda m: m.eps_1)
    kept, served = (duration(ms // 1000) for ms in (survey.kept_ms, KEPT_MS))
    lines = of_check("label", facts_of(survey) | {
        "asked": _names([attribute.name for attribute in survey.attributes]), "kinds": " ".join(_kinds(survey)),
        "chances": "; ".join(f"{one.text} {one.heading}" for one in told), "sets": any(a.most for a in survey.attributes),
        "odds": odds(eps), "eps": up(eps), "kept": kept, "served": served, "longer": kept != served, "owner": survey.owner,
        "signed": signed and f"{signed.astimezone(UTC):{TIME}}",
    })  # fmt: skip
    told_lines = [LabelLine(name, *line.split(": ", 1)) for name, line in zip(LINES, lines, strict=True)]
    return Label(survey.title or survey.name, told_lines, told)


def _chances(survey: Survey) -> list[LabelChance]:
    year, after = survey.steps_a_year, "after the whole survey" if survey.steps_a_year == survey.n_steps else "after a year"

    def largest(steps: int, any_values: bool = False) -> Chance:
        return max(device_chance(survey, i, m, steps, any_values=any_values) for i, _, _, m in survey.levels)

    found = {
        ("blind", "without a report"): max(Chance(1 / m.claims.guessed) for *_, m in survey.levels),
        ("one_report", "after one step"): largest(1),
        ("year", f"{after} of unchanged answers"): largest(year),
        ("year_any_values", f"{after} of any answers"): largest(year, any_values=True),
    }
    return [LabelChance(name, said, float(one), of_100(one)) for (name, said), one in found.items()]


def of_100(chance: float) -> str:
    """Formats an upper bound as right guesses of 100, rounded up; an error of the calculation below 10⁻⁷ is ignored.

    >>> of_100(0.25), of_100(0.4753), of_100(0.9901)
    ('25 of 100', '48 of 100', 'no useful limit')
    """
    right = math.ceil(round(100 * chance, 5))
    return NO_LIMIT if right >= 100 else f"{right} of 100"


def _kinds(survey: Survey) -> list[str]:
    """A sentence for each kind of level: memoized, or fresh with its steps and its number of reports."""
    kinds = dict[tuple[bool, int, int | None], list[str]]()
    for _, attribute, level, m in survey.levels:
        name = attribute.name if len(attribute.levels) == 1 else f"{attribute.name} ({level.name})"
        kinds.setdefault((m.memoized, m.every_steps, m.lifetime_reports), []).append(name)
    said = []
    for (memoized, every, lifetime), names in kinds.items():
        said += of_check("label_kind", {
            "names": _names(names), "memoized": memoized, "spaced": every > 1, "within": every, "limited": lifetime,
            "ends": survey.n_steps,
        })  # fmt: skip
    return said


def _names(names: Sequence[str]) -> str:
    """The names, or the first ones and the number of the others.

    >>> _names(["a", "b"]), _names(["a", "b", "c", "d", "e"])
    ('a and b', 'a, b, c and 2 more')
    """
    *first, last = names if len(names) <= MOST_NAMES else [*names[:MOST_NAMES], f"{len(names) - MOST_NAMES} more"]
    return f"{', '.join(first)} and {last}" if first else last
