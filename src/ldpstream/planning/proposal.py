"""Proposes a whole survey from a sample of people.

The survey's comments contain nothing about single people.
"""

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ldpstream.mechanisms import Mechanism, mechanism
from ldpstream.planning.advise import SURVEY, WINDOW, AdviceError
from ldpstream.planning.columns import BINS, Column, Domain, Dropped, propose, read_columns
from ldpstream.planning.toml_text import attribute_lines, toml_value
from ldpstream.producers.people_file import missing_words
from ldpstream.producers.table_file import MISSING
from ldpstream.surveys import Survey, SurveyError, parse_survey

HEADER = """\
# A survey is public: devices and service read this file. Read it before you publish it.
# The attributes' names come from the sample's first line. Check that this line is a header and not a person's answers.
# Lists of values and ends of bins come from a sample. A value is listed only if at least {least} people of the sample share it.
# At least {least} people are at or beyond each end of the bins before rounding. If even that must stay secret, change the ends.
# {promise}.
# Mechanisms are those of "auto", and Square Wave for bins at one-time levels.
name = "{name}"
start = {start}   # beginning of step 0
step_seconds = {seconds:<16}# length of a time step
window_steps = {window:<16}# estimates are also published for the last {window} steps together
lateness_steps = 1             # a report may arrive one step late
collection = "smp"             # {collection}
"""
SPACED = 8  # days between two fresh reports of a device, and number of its reports
PROMISES = {
    True: "All levels are memoized: eps_inf is for values that hardly ever change. For values that change, run init --eps",
    False: f"All levels are one-time, for values that may change: a report in {SPACED} days, at most {SPACED} reports",
}  # is the survey memoized?
FINE = 50  # wanted number of bins with --eps: Square Wave then has its smallest errors (`docs/howto/numbers.md`)
SAMPLED = "every device samples one attribute, once, and answers only that one"


@dataclass(frozen=True)
class Asked:
    """A column that the survey asks for.

    Attributes:
        keys: the attribute's keys in the survey.
        mechanism: the mechanism of its level.
    """

    column: Column
    domain: Domain
    keys: dict[str, Any]
    mechanism: Mechanism


@dataclass(frozen=True)
class Proposal:
    """A proposed survey.

    Attributes:
        text: the survey in TOML, with comments.
        asked: its attributes, in the order of the columns.
        dropped: the other columns.
    """

    text: str
    survey: Survey
    n_people: int
    asked: list[Asked]
    dropped: list[tuple[Column, Dropped]]


def propose_survey(
    path: Path,
    name: str,
    start: datetime,
    *,
    eps: float | None = None,
    eps_inf: float | None = None,
    least: int,
    only: Sequence[str] = (),
    missing: Sequence[str] = MISSING,
) -> Proposal:
    """Proposes a survey for a CSV file with one row for each person.

    Args:
        eps: loss of each report, in nats, for one-time levels; None for memoized levels.
        eps_inf: loss of any number of reports of an unchanged value, in nats.
        least: least number of people of the sample who share a value that the survey lists, at least 2.
        only, missing: as in `read_columns`.

    Raises:
        DataError: as in `read_columns`.
        AdviceError: if no column is suitable, or a loss is outside its range.
    """
    if eps is not None and eps_inf is not None:
        raise AdviceError("give either eps (one-time) or eps_inf (memoized), not both")
    half = None if eps_inf is None else eps_inf / 2
    try:
        mechanism("auto", 2, eps=eps, eps_inf=eps_inf, eps_1=half)
    except ValueError as error:
        raise AdviceError(str(error)) from None
    memoized, once = {"eps_inf": eps_inf, "eps_1": half}, {"eps": eps, "every_steps": SPACED, "lifetime_reports": SPACED}
    level = {"name": "standard", "mechanism": "auto"} | (memoized if eps is None else once)
    n_people, columns = read_columns(path, only, missing)
    proposals = [(column, propose(column, least, BINS if eps is None else FINE)) for column in columns]
    answers = [
        (column, _asked(column, domain, level) if isinstance(domain, Domain) else domain) for column, domain in proposals
    ]
    asked = [answer for _, answer in answers if isinstance(answer, Asked)]
    dropped = [(column, answer) for column, answer in answers if isinstance(answer, Dropped)]
    if not asked:
        whys = "; ".join(f"column {i}: {why.why}" for i, (_, why) in enumerate(dropped, 1))
        raise AdviceError(f"{path}: no column is suitable: {whys}")
    text = _text(name, start, least, asked)
    return Proposal(text, parse_survey(tomllib.loads(text), "the proposed survey"), n_people, asked, dropped)


def _asked(column: Column, domain: Domain | Dropped, level: dict[str, Any]) -> Asked | Dropped:
    if isinstance(domain, Dropped):
        return domain
    level = level | {"mechanism": "SW"} if "eps" in level and "bins" in domain.keys else level
    keys = {"name": column.name, **domain.keys}
    try:
        m = parse_survey(SURVEY | {"attribute": [keys | {"level": [level]}]}).mechanisms[0][0]
    except SurveyError as error:  # its text shows a value after the comma
        return Dropped(f"no survey can list its values: {str(error).split(', got ')[0].rpartition(': ')[2]}")
    return Asked(column, domain, keys | {"level": [level | {"mechanism": m.name}]}, m)


def notes(found: Proposal) -> list[str]:
    """Lines for the author about words for no answer."""
    columns = [*(asked.column for asked in found.asked), *(column for column, _ in found.dropped)]
    words = [(column.name, Counter({word: n for word, n in column.missing.items() if word})) for column in columns]
    return [f"{name}: {missing_words(left)}" for name, left in words if left]


def _text(name: str, start: datetime, least: int, asked: list[Asked]) -> str:
    collection = SAMPLED if len(asked) > 1 else "with one attribute, every device answers it"
    memoized = all(one.mechanism.memoized for one in asked)
    seconds, window = (3600, WINDOW) if memoized else (86_400, SPACED)
    header = HEADER.format(
        name=name, start=f"{start:%Y-%m-%dT%H:%M:%SZ}", least=least, collection=collection, promise=PROMISES[memoized],
        seconds=seconds, window=window,
    )  # fmt: skip
    return "\n".join([header, *(_attribute(one) for one in asked)])


def _attribute(asked: Asked) -> str:
    header = asked.column.header
    named = [] if header == asked.column.name else [f"# column {toml_value(header)}"]
    return "\n".join([*attribute_lines(asked.keys, [*named, f"# {asked.domain.words}"]), ""])
