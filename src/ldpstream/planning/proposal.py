"""Proposes a whole survey from a sample of people.

The survey's comments contain nothing about single people.
"""

import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.planning.advise import SURVEY, WINDOW, best, document, equal_shares, possible, reason, variances
from ldpstream.planning.columns import BINS, Column, Domain, Dropped, propose, read_columns
from ldpstream.planning.question import MAX_PEOPLE, AdviceError, Question
from ldpstream.planning.toml_text import toml_lines, toml_value
from ldpstream.producers.people_file import CellReader, missing_words
from ldpstream.producers.table_file import MISSING
from ldpstream.surveys import Attribute, Survey, SurveyError, parse_survey

HEADER = """\
# A survey is public: devices and service read this file. Read it before you publish it.
# The attributes' names come from the sample's first line. Check that this line is a header and not a person's answers.
# Lists of values and ends of bins come from a sample. A value is listed only if at least {least} people of the sample share it.
# At least {least} people are at or beyond each end of the bins before rounding. If even that must stay secret, change the ends.
# {promise}.
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
        shares: (k,) shares of the values in the sample; for several answers `equal_shares`: only one mechanism answers such
            a question.
        mechanism: the mechanism of its level, and the reason for it.
    """

    column: Column
    domain: Domain
    shares: FloatArray
    question: Question
    mechanism: Mechanism
    reason: str


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
    tell: Callable[[str], None] = lambda _: None,
) -> Proposal:
    """Proposes a survey for a CSV file with one row for each person.

    Args:
        eps: loss of each report, in nats, for one-time levels; None for memoized levels.
        eps_inf: loss of any number of reports of an unchanged value, in nats.
        least: least number of people of the sample who share a value that the survey lists, at least 2.
        only, missing, tell: as in `read_columns`.

    Raises:
        DataError: as in `read_columns`.
        AdviceError: if no column is suitable, or a loss is outside its range.
    """
    n_people, columns = read_columns(path, only, tell, missing)
    bins = BINS if eps is None else FINE
    proposals = [(column, _possible(column, propose(column, least, bins))) for column in columns]
    domains = [(column, domain) for column, domain in proposals if isinstance(domain, Domain)]
    dropped = [(column, why) for column, why in proposals if isinstance(why, Dropped)]
    if not domains:
        whys = "; ".join(f"column {i}: {why.why}" for i, (_, why) in enumerate(dropped, 1))
        raise AdviceError(f"{path}: no column is suitable: {whys}")
    devices = max(2, min(n_people, MAX_PEOPLE) // len(domains))  # every device answers one attribute
    asked = [_asked(column, domain, devices, eps, eps_inf) for column, domain in domains]
    text = _text(name, start, least, asked)
    return Proposal(text, parse_survey(tomllib.loads(text), "the proposed survey"), n_people, asked, dropped)


def _asked(column: Column, domain: Domain, people: int, eps: float | None, eps_inf: float | None) -> Asked:
    attribute, middles = _attribute_of(column, domain), None
    question = Question(
        k=attribute.k - (attribute.most or 0), people=people, eps=eps, eps_inf=eps_inf, choices=attribute.most,
        numbers=eps is not None and attribute.bins is not None,
    )  # fmt: skip
    if question.numbers:
        edges = np.array(domain.keys["bins"], float)
        middles = (edges[1:] + edges[:-1]) / 2
    shares = _shares(column, attribute) if attribute.most is None else equal_shares(question)
    found = variances(question, possible(question)[0], shares, middles)
    chosen = best(found)
    return Asked(column, domain, shares, question, chosen, reason(chosen, found))


def notes(found: Proposal) -> list[str]:
    """Lines for the author about words for no answer, and about numbers that may be codes."""
    columns = [*(asked.column for asked in found.asked), *(column for column, _ in found.dropped)]
    words = [(column.name, Counter({word: n for word, n in column.missing.items() if word})) for column in columns]
    hints = [f"{asked.column.name}: {asked.domain.hint}" for asked in found.asked if asked.domain.hint]
    return [*(f"{name}: {missing_words(left)}" for name, left in words if left), *hints]


def _possible(column: Column, domain: Domain | Dropped) -> Domain | Dropped:
    if isinstance(domain, Domain):
        try:
            _attribute_of(column, domain)
        except SurveyError as error:  # its text shows a value after the comma
            return Dropped(f"no survey can list its values: {str(error).split(', got ')[0].rpartition(': ')[2]}")
    return domain


def _attribute_of(column: Column, domain: Domain) -> Attribute:
    level = {"name": "standard", "mechanism": "auto", "eps_inf": 2.0, "eps_1": 1.0}
    return parse_survey(SURVEY | {"attribute": [{"name": column.name, **domain.keys, "level": [level]}]}).attributes[0]


def _shares(column: Column, attribute: Attribute) -> FloatArray:
    found, reader = np.zeros(attribute.k), CellReader(attribute, lambda _: False)
    for cell, people in column.cells.items():
        # the reader refuses a number of more than 15 digits, such as 1e20 without its exponent
        value = reader.value(cell) if attribute.values is not None else attribute.find(column.numbers[cell])[0]
        if value is not None:
            found[value] += people
    return np.asarray(found / found.sum())


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
    m = asked.mechanism if asked.mechanism.memoized else asked.mechanism.spaced(SPACED, SPACED)
    keys = document(m, asked.column.name, asked.domain.keys)
    (level,) = keys.pop("level")
    header = asked.column.header
    named = [] if header == asked.column.name else [f"# column {toml_value(header)}"]
    head = ["[[attribute]]", *named, f"# {asked.domain.words}", *toml_lines(keys)]
    return "\n".join([*head, "[[attribute.level]]", f"# {asked.reason}", *toml_lines(level), ""])
