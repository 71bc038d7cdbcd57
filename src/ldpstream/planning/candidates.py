"""The next survey from a list of candidates: values that an attribute does not list, and that people may report as `other`.

A device draws its memos, phases and reports of two surveys independently, so their losses add up. Spaced levels need no fresh
budget, because the next survey begins at least `spacing` steps after the end of the survey before, with the `lifetime_reports`
that are left.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct
from scipy.special import ndtri

from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.wording import plural
from ldpstream.planning.forecast import least_share, person_variances
from ldpstream.planning.toml_text import document_text, toml_time
from ldpstream.surveys import Survey, parse_survey
from ldpstream.surveys.errors import UserError
from ldpstream.surveys.questions import LABEL, LABEL_CHARACTERS, Attribute
from ldpstream.surveys.texts import look

FALSE_ALARM = 0.05  # chance that a candidate without people is found, for all candidates together
MOST_BYTES = 2**24  # of a file of candidates


class CandidatesError(UserError):
    """`candidates` or `found` refuses what it was given: a list, survey, histogram or number of people."""


class NextSurvey(Struct, frozen=True, kw_only=True):
    """The next survey, and its text in TOML.

    Attributes:
        least: for every level of the attribute, the smallest share of a candidate that its window finds (`least_found`). None
            if it finds none; empty without a number of people.
    """

    survey: Survey
    text: str
    least: dict[str, float | None]


def read_candidates(path: Path, attribute: Attribute) -> list[str]:
    """The candidates of a file: UTF-8, one in a line, the most important first.

    Raises:
        CandidatesError: if the file cannot be read, is larger than 16 MiB, or has no candidate, or if a line is not a new
            value of the attribute.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise CandidatesError(f"{path}: cannot be read: {error.strerror}") from None
    if len(raw) > MOST_BYTES:
        raise CandidatesError(f"{path}: a list of candidates must have at most {MOST_BYTES >> 20} MiB")
    found, lines = list[str](), dict[str, int]()
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            text = line.removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError:
            raise CandidatesError(f"{path} line {number}: must be UTF-8") from None
        if text and (wrong := _wrong(text, attribute, lines)):
            raise CandidatesError(f"{path} line {number}: {wrong}")
        if text:
            found.append(text)
            lines[look(text)] = number
    if not lines:
        raise CandidatesError(f"{path}: has no candidate; write one in a line")
    return found


def _wrong(text: str, attribute: Attribute, lines: Mapping[str, int]) -> str | None:
    shown = repr(text if len(text) <= 60 else f"{text[:59]}…")
    if len(text) > LABEL_CHARACTERS:
        return f"a value must have at most {LABEL_CHARACTERS} characters, got {len(text)}"
    if not re.fullmatch(LABEL, text):
        return f"a value must not contain control characters, got {shown}"
    if text != text.strip():
        return f"{shown} begins or ends with a space, and devices compare texts exactly"
    if look(text) in lines:
        return f"{shown} is already in line {lines[look(text)]}, or looks like it"
    if look(text) in map(look, attribute.labels):
        return f"{shown} is already a value of {attribute.name}, or looks like one"
    return f"{shown} is an alias in the survey" if text in attribute.aliases else None


def open_attribute(survey: Survey, name: str | None) -> int:
    """The index of the attribute that gets candidates: without a name, the only attribute with a value for other texts.

    Raises:
        CandidatesError: if the attribute cannot get candidates, or if without a name there is not exactly one attribute.
    """
    known = [a.name for a in survey.attributes if a.catch_all is not None and a.pair is None and a.most is None]
    if name is None:
        if len(known) != 1:
            which = f"give --attribute, one of {', '.join(known)}" if known else "no attribute has a value for texts not listed"
            raise CandidatesError(f"survey {survey.name}: {which}")
        name = known[0]
    try:
        index = survey.index(name)
    except ValueError as error:
        raise CandidatesError(str(error)) from None
    if survey.attributes[index].most is not None:
        raise CandidatesError(f"attribute {name} has several answers (`choices`): candidates are for single answers")
    if name not in known:
        raise CandidatesError(f"attribute {name} has no value for texts that are not listed (`unlisted`), so no candidates")
    if survey.attributes[index].ordered:
        raise CandidatesError(f"attribute {name} is ordered: a candidate has no place in the order")
    return index


def spacing(survey: Survey) -> int:
    """Number of silent steps between two surveys, with which no spaced level needs a fresh budget."""
    w = max(m.every_steps for levels in survey.mechanisms for m in levels)
    return w if w > 1 else 0


def next_start(survey: Survey) -> datetime:
    """A start of the next survey that needs no fresh budget at spaced levels: `spacing` steps after the end of this survey.

    Raises:
        CandidatesError: if the survey has no end.
    """
    if survey.n_steps is None:
        gap = f"at least {spacing(survey)} steps after devices leave" if spacing(survey) else "when devices have left"
        raise CandidatesError(f"survey {survey.name} has no end: give --start, {gap} this survey")
    return datetime.fromtimestamp(survey.opens_ms(survey.n_steps + spacing(survey)) / 1000, UTC)


def next_name(name: str) -> str:
    """The name of the survey after the survey with this name.

    >>> next_name("travel"), next_name("travel-9")
    ('travel-2', 'travel-10')
    """
    stem, _, number = name.rpartition("-")
    return f"{stem}-{int(number) + 1}" if stem and number.isdecimal() else f"{name[:60]}-2"


def least_found(m: Mechanism, window: int, people: float, candidates: int) -> float | None:
    """The smallest share of a candidate that is found in 9 of 10 cases; None if no share is.

    A candidate is found if its unbiased estimate in a window exceeds z standard errors. A normal variable exceeds z with
    probability `FALSE_ALARM` / candidates.

    Args:
        m: the mechanism on all values of the survey.
    """
    return least_share(person_variances(m, window)["window"], people, float(-ndtri(FALSE_ALARM / candidates)))


def next_survey(
    survey: Survey,
    document: dict[str, Any],
    attribute: int,
    candidates: Sequence[str],
    start: datetime,
    *,
    steps: int | None = None,
    people: int | None = None,
    after: Survey | None = None,
) -> NextSurvey:
    """Makes the next survey, which lists the candidates.

    Args:
        steps: number of steps; None for no end.
        after: the survey that devices answer before, and that replaces `survey`; None for `survey`.

    Raises:
        CandidatesError: if the survey begins too early, a level has no report left, or `after` does not fit.
        SurveyError: if the survey would not be valid.
    """
    before = survey if after is None else after
    if after is not None and survey.fingerprint.hex() not in (before.fingerprint.hex(), before.replaces):
        raise CandidatesError(f"survey {before.name} must replace survey {survey.name} ({survey.fingerprint.hex()})")
    if _kept(before) != _kept(survey):
        raise CandidatesError(f"survey {before.name} has other attributes, levels or steps than survey {survey.name}")
    if before.n_steps is None and before.step_at(round(start.timestamp() * 1000)) <= (gap := spacing(before)):
        raise CandidatesError(
            f"start must be more than {plural(gap, 'step')} after the start of survey {before.name}, "
            f"{toml_time(before.start)}, got {toml_time(start)}"
        )
    if before.n_steps is not None and start < (earliest := next_start(before)):
        raise CandidatesError(
            f"start must be at least {plural(spacing(before), 'step')} after the end of survey {before.name}, "
            f"not before {toml_time(earliest)}, got {toml_time(start)}"
        )
    keys = _document(survey, before, document, attribute, candidates, start)
    if steps is not None:
        keys["ends"] = steps
    text = document_text(keys)
    made = parse_survey(tomllib.loads(text), str(keys["name"]))
    least = {} if people is None else _least(made, attribute, people, len(candidates))
    return NextSurvey(survey=made, text=text, least=least)


def _kept(survey: Survey) -> tuple[Any, ...]:
    levels = [
        (a.name, level.name, level.eps, level.eps_inf, level.eps_1, level.every_steps, level.lifetime_reports is None)
        for a in survey.attributes
        for level in a.levels
    ]
    return survey.step_seconds, survey.collection, levels


def _least(survey: Survey, attribute: int, people: int, candidates: int) -> dict[str, float | None]:
    n = people / (len(survey.attributes) if survey.collection == "smp" else 1)
    window = min(survey.window_steps, survey.n_steps or survey.window_steps)
    levels = zip(survey.attributes[attribute].levels, survey.mechanisms[attribute], strict=True)
    return {level.name: least_found(m, window, n, candidates) for level, m in levels}


def _left(before: Survey, start: datetime) -> list[int | None]:
    """For every level of every attribute, the `lifetime_reports` that the survey before leaves; None without a limit."""
    from_step = before.step_at(round(start.timestamp() * 1000))
    ended = from_step - spacing(before) if before.n_steps is None else before.n_steps
    found: list[int | None] = []
    for attribute, levels in zip(before.attributes, before.mechanisms, strict=True):
        for level, m in zip(attribute.levels, levels, strict=True):
            left = None if m.lifetime_reports is None else m.lifetime_reports - m.reports_in(ended)
            if left is not None and left < 1:
                raise CandidatesError(
                    f"attribute {attribute.name}, level {level.name}: survey {before.name} uses all of its "
                    f"{m.lifetime_reports} lifetime_reports, so the next survey would need a fresh budget"
                )
            found.append(left)
    return found


def _document(
    survey: Survey, before: Survey, document: dict[str, Any], attribute: int, candidates: Sequence[str], start: datetime
) -> dict[str, Any]:
    keys = {key: value for key, value in document.items() if key not in ("ends", "attribute")}
    keys |= {"name": next_name(before.name), "start": start, "replaces": survey.fingerprint.hex(), "attribute": []}
    left = iter(_left(before, start))
    for i, asked in enumerate(document["attribute"]):
        made = dict(asked)
        if i == attribute:
            values, rest = list(made["values"]), survey.attributes[i].catch_all
            end = len(values) - (values[-1] == rest)  # the value for all others stays the last
            made["values"] = [*values[:end], *candidates, *values[end:]]
        made["level"] = [level | ({} if (n := next(left)) is None else {"lifetime_reports": n}) for level in asked["level"]]
        keys["attribute"].append(made)
    return keys
