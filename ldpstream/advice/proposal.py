"""Proposes a whole survey from a sample of people: the columns to ask for, and a level for each attribute by the adviser.

The survey's text has a comment for each choice. The comments contain nothing about single people, since a survey is public.
"""

import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec
import numpy as np

from ldpstream.advice.advice_tables import reasons, use
from ldpstream.advice.advise import SURVEY, Advice, advise, document
from ldpstream.advice.columns import Column, Domain, Dropped, propose, read_columns
from ldpstream.advice.methods import DEFAULT
from ldpstream.advice.question import MAX_N, AdviceError, Question
from ldpstream.mechanisms.arguments import IntArray
from ldpstream.mechanisms.registry import lightest
from ldpstream.producers.people_file import value_of
from ldpstream.producers.table_file import attribute_name
from ldpstream.surveys import Attribute, Survey, parse_survey
from ldpstream.toml_text import toml_lines

HEADER = """\
# A survey is public: devices and service read this file. Read it before you publish it.
# The attributes' names come from the sample's first line. Check that this line is a header and not a person's answers.
# Lists of values and ends of bins come from a sample. A value is listed only if at least {least} people of the sample share it.
# At least {least} people are at or beyond each end of the bins before rounding. If even that must stay secret, change the ends.
# All levels are memoized: the promise eps_inf is for values that hardly ever change. For values that change, write a one-time
# mechanism with eps and every_steps.
name = "{name}"
start = {start}   # beginning of step 0
step_seconds = 3600            # length of a time step
window_steps = 24              # estimates are also published for the last 24 steps together
lateness_steps = 1             # a report may arrive one step late
collection = "smp"             # {collection}
"""
REPEATS = 25  # repetitions of each attribute's simulation
SAMPLED = "every device samples one attribute, once, and answers only that one"


@dataclass(frozen=True)
class Plan:
    """The attributes of a survey, before the adviser has chosen the levels.

    Attributes:
        n_people: number of people in the sample.
        kept: the attributes, in the order of the columns: column, domain, the sample as `advise` takes it, question for the
            adviser.
        dropped: the other columns, each with its reason.
    """

    n_people: int
    kept: list[tuple[Column, Domain, IntArray, Question]]
    dropped: list[tuple[Column, Dropped]]


@dataclass(frozen=True)
class Asked:
    """A column that the survey asks for, its domain, and the advice for its level."""

    column: Column
    domain: Domain
    advice: Advice


@dataclass(frozen=True)
class Proposal:
    """A proposed survey: its text, TOML with comments; the same survey, checked; and its attributes."""

    text: str
    survey: Survey
    asked: list[Asked]


def plan_survey(
    path: Path,
    *,
    eps_inf: float,
    least: int,
    n: int | None = None,
    only: Sequence[str] = (),
    drop: Sequence[str] = (),
    several: Sequence[str] = (),
) -> Plan:
    """Decides what a survey asks for, from a CSV file with one row for each person.

    Args:
        path: the sample.
        eps_inf: loss of any number of reports of an unchanged value, in nats; a report loses at most half of it.
        least: least number of people of the sample who share a value that the survey lists, at least 2.
        n: number of devices expected; the number of people in the sample if left out.
        only, drop: as in `read_columns`.
        several: names of columns with several answers, separated by semicolons, beside those that `propose` recognises.

    Raises:
        DataError: if the file cannot be used.
        AdviceError: if the survey can ask for no column, or a number is outside its range.
    """
    n_people, columns = read_columns(path, only, drop)
    sets = {attribute_name(name) for name in several}
    if not sets <= {column.name for column in columns}:
        raise AdviceError(f"{path}: columns with several answers must be columns that the survey asks for")
    proposals = [(column, propose(column, least, sets)) for column in columns]
    domains = [(column, domain) for column, domain in proposals if isinstance(domain, Domain)]
    dropped = [(column, why) for column, why in proposals if isinstance(why, Dropped)]
    if not domains:
        whys = "; ".join(f"column {i}: {why.why}" for i, (_, why) in enumerate(dropped, 1))
        raise AdviceError(f"{path}: no column is suitable: {whys}")
    devices = max(2, min(n or n_people, MAX_N) // len(domains))  # every device answers one attribute
    kept = []
    for column, domain in domains:
        attribute = _attribute_of(column, domain)
        question = Question(k=attribute.k - (attribute.most or 0), n=devices, eps_inf=eps_inf, choices=attribute.most)
        kept.append((column, domain, _people(column, attribute), question))
    return Plan(n_people, kept, dropped)


def propose_survey(
    plan: Plan,
    name: str,
    start: datetime,
    *,
    least: int,
    repeats: int = REPEATS,
    seed: int = 1,
    seen: Callable[[int, int, str], None] = lambda *_: None,
) -> Proposal:
    """Asks the adviser for the level of each attribute, and writes the survey.

    Args:
        plan: the attributes of the survey.
        name: name of the survey.
        start: beginning of step 0.
        least: as in `plan_survey`, for the comments.
        repeats, seed, seen: as in `advise`.
    """
    asked: list[Asked] = []
    for i, (column, domain, counts, question) in enumerate(plan.kept):

        def advised(done: int, total: int, _: str, i: int = i, name: str = column.name) -> None:
            seen(i * total + done, len(plan.kept) * total, name)

        seen(i * repeats, len(plan.kept) * repeats, column.name)  # shown during the first repetition, which compiles
        labels = domain.keys.get("values")
        advice = advise(question, counts, labels=labels, repeats=repeats, seed=seed, seen=advised, processes=1)
        asked.append(Asked(column, domain, _smallest_variance(advice)))
    text = _text(name, start, least, asked)
    return Proposal(text, parse_survey(tomllib.loads(text), "the proposed survey"), asked)


def _smallest_variance(advice: Advice) -> Advice:
    """Advises the mechanism with the smallest exact variance, or one with a similar variance and a smaller weight.

    The advised estimate is the default. With few people and few repetitions, chance and post-processing decide which mechanism
    has the smallest simulated error.
    """
    of_default = {row.mechanism: row for row in advice.ranking if row.estimator == DEFAULT}
    built = [(advice.question.build(c.mechanism), c.deviation**2) for c in advice.candidates if c.mechanism in of_default]
    return msgspec.structs.replace(advice, first=of_default[lightest(built).name])


def _attribute_of(column: Column, domain: Domain) -> Attribute:
    level = {"name": "standard", "mechanism": "auto", "eps_inf": 2.0, "eps_1": 1.0}
    return parse_survey(SURVEY | {"attribute": [{"name": column.name, **domain.keys, "level": [level]}]}).attributes[0]


def _people(column: Column, attribute: Attribute) -> IntArray:
    """(k,) number of people of the sample with each value; with several answers, (n,) codes of people's sets."""
    found = Counter[int]()
    for cell, people in column.cells.items():
        value, _ = value_of(attribute, cell)
        if value is not None:
            found[value] += people
    if attribute.most is not None:
        return np.repeat(np.array(list(found), np.int64), list(found.values()))
    return np.array([found[value] for value in range(attribute.k)], np.int64)


def _text(name: str, start: datetime, least: int, asked: list[Asked]) -> str:
    collection = SAMPLED if len(asked) > 1 else "with one attribute, every device answers it"
    header = HEADER.format(name=name, start=f"{start:%Y-%m-%dT%H:%M:%SZ}", least=least, collection=collection)
    return "\n".join([header, *(_attribute(one) for one in asked)])


def _attribute(asked: Asked) -> str:
    advice = asked.advice
    keys = document(advice.question.build(advice.first.mechanism), asked.column.name, asked.domain.keys)
    (level,) = keys.pop("level")
    lines = [
        "[[attribute]]",
        f"# {asked.domain.words}",
        *toml_lines(keys),
        "[[attribute.level]]",
        *(f"# {line}" for line in reasons(advice)[: 1 if advice.question.choices is None else 2]),
        f"# use this published estimate: {use(advice)}",
        *toml_lines(level),
    ]
    return "\n".join([*lines, ""])
