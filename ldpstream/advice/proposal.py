"""Proposes a whole survey from a sample of people.

The survey's comments contain nothing about single people.
"""

import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from ldpstream.advice.advice_tables import reasons, use
from ldpstream.advice.advise import SURVEY, Advice, advise, document
from ldpstream.advice.columns import Column, Domain, Dropped, propose, read_columns, rounded
from ldpstream.advice.methods import DEFAULT
from ldpstream.advice.number_tables import reasons as number_reasons
from ldpstream.advice.numbers import advise_numbers
from ldpstream.advice.question import MAX_N, AdviceError, Question
from ldpstream.advice.windows import EVERY_STEPS
from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import IntArray
from ldpstream.mechanisms.registry import lightest
from ldpstream.mechanisms.wording import plural
from ldpstream.producers.people_file import CellReader, missing_words
from ldpstream.producers.table_file import MISSING
from ldpstream.surveys import Attribute, Survey, SurveyError, parse_survey
from ldpstream.toml_text import toml_lines, toml_value

HEADER = """\
# A survey is public: devices and service read this file. Read it before you publish it.
# The attributes' names come from the sample's first line. Check that this line is a header and not a person's answers.
# Lists of values and ends of bins come from a sample. A value is listed only if at least {least} people of the sample share it.
# At least {least} people are at or beyond each end of the bins before rounding. If even that must stay secret, change the ends.
# {promise}.
name = "{name}"
start = {start}   # beginning of step 0
step_seconds = 3600            # length of a time step
window_steps = 24              # estimates are also published for the last 24 steps together
lateness_steps = 1             # a report may arrive one step late
collection = "smp"             # {collection}
"""
PROMISES = {
    True: "All levels are memoized: eps_inf is for values that hardly ever change. For values that change, run init --eps",
    False: f"All levels are one-time, with a report in {EVERY_STEPS} steps: the promise eps is for values that may change",
}  # is the survey memoized?
FINER = (2, 5)  # parts into which bins of equal width may be split
REPEATS = 25  # repetitions of each attribute's simulation
SAMPLED = "every device samples one attribute, once, and answers only that one"


@dataclass(frozen=True)
class Plan:
    """The attributes of a survey, before the adviser has chosen the levels.

    Attributes:
        kept: the attributes, in the order of the columns: column, domain, sample and question.
    """

    n_people: int
    kept: list[tuple[Column, Domain, IntArray, Question]]
    dropped: list[tuple[Column, Dropped]]


@dataclass(frozen=True)
class Asked:
    """A column that the survey asks for, its domain, the mechanism of its level, and comments with the reasons."""

    column: Column
    domain: Domain
    mechanism: Mechanism
    comments: list[str]


@dataclass(frozen=True)
class Proposal:
    """A proposed survey: its text in TOML with comments, the survey that the text states, and its attributes."""

    text: str
    survey: Survey
    asked: list[Asked]


def plan_survey(
    path: Path,
    *,
    eps: float | None = None,
    eps_inf: float | None = None,
    least: int,
    n: int | None = None,
    only: Sequence[str] = (),
    drop: Sequence[str] = (),
    several: Sequence[str] = (),
    missing: Sequence[str] = MISSING,
    tell: Callable[[str], None] = lambda _: None,
) -> Plan:
    """Decides what a survey asks for, from a CSV file with one row for each person.

    Args:
        eps: loss of each report, in nats, for one-time levels; None for memoized levels.
        eps_inf: loss of any number of reports of an unchanged value, in nats.
        least: least number of people of the sample who share a value that the survey lists, at least 2.
        n: number of devices expected; the number of people in the sample if left out.
        only, drop, missing, tell: as in `read_columns`.

    Raises:
        DataError: as in `read_columns`.
        AdviceError: if no column is suitable, `several` names another column, or a loss is outside its range.
    """
    n_people, columns = read_columns(path, only, drop, tell, missing)
    sets = {column.name for column in columns if {column.name, column.header} & set(several)}
    if unknown := sorted(set(several) - {name for column in columns for name in (column.name, column.header)}):
        raise AdviceError(f"{path}: columns with several answers must be columns that the survey asks for, got {unknown[0]!r}")
    if not columns:
        raise AdviceError(f"{path}: no column is left to ask for")
    proposals = [(column, _possible(column, propose(column, least, sets))) for column in columns]
    domains = [(column, domain) for column, domain in proposals if isinstance(domain, Domain)]
    dropped = [(column, why) for column, why in proposals if isinstance(why, Dropped)]
    if not domains:
        whys = "; ".join(f"column {i}: {why.why}" for i, (_, why) in enumerate(dropped, 1))
        raise AdviceError(f"{path}: no column is suitable: {whys}")
    devices = max(2, min(n or n_people, MAX_N) // len(domains))  # every device answers one attribute
    kept = []
    for column, domain in domains:
        attribute = _attribute_of(column, domain)
        question = Question(
            k=attribute.k - (attribute.most or 0), n=devices, eps=eps, eps_inf=eps_inf, choices=attribute.most,
            numbers=eps is not None and attribute.bins is not None,
        )  # fmt: skip
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
    asked: list[Asked] = []
    for i, (column, domain, counts, question) in enumerate(plan.kept):

        def advised(done: int, total: int, _: str, i: int = i, name: str = column.name) -> None:
            seen(i * total + done, len(plan.kept) * total, name)

        seen(i * repeats, len(plan.kept) * repeats, column.name)  # shown during the first repetition, which compiles
        if question.numbers:
            asked.append(_number(column, domain, question, repeats, seed, advised))
            continue
        labels = domain.keys.get("values")
        advice = advise(question, counts, labels=labels, repeats=repeats, seed=seed, seen=advised, processes=1)
        asked.append(_category(column, domain, _smallest_variance(advice)))
    text = _text(name, start, least, asked)
    return Proposal(text, parse_survey(tomllib.loads(text), "the proposed survey"), asked)


def notes(plan: Plan, found: Proposal) -> list[str]:
    """Lines for the author about words for no answer, and about numbers that may be codes."""
    columns = [*(asked.column for asked in found.asked), *(column for column, _ in plan.dropped)]
    words = [(column.name, Counter({word: n for word, n in column.missing.items() if word})) for column in columns]
    hints = [f"{asked.column.name}: {asked.domain.hint}" for asked in found.asked if asked.domain.hint]
    return [*(f"{name}: {missing_words(left)}" for name, left in words if left), *hints]


def _category(column: Column, domain: Domain, advice: Advice) -> Asked:
    why = reasons(advice)[: 1 if advice.question.choices is None else 2]
    comments = [*why, f"use this published estimate: {use(advice)}"]
    return Asked(column, domain, advice.question.build(advice.first.mechanism), comments)


def _number(
    column: Column, domain: Domain, question: Question, repeats: int, seed: int, seen: Callable[[int, int, str], None]
) -> Asked:
    numbers = np.repeat([float(cell) for cell in column.cells], list(column.cells.values()))
    options = [domain.keys["bins"], *finer_bins(domain.keys["bins"])]
    advice = advise_numbers(question, options, "histogram", numbers, repeats=repeats, seed=seed, seen=seen, processes=1)
    bins = advice.first.bins
    edges = next(edges for edges in options if len(edges) == bins + 1)
    words = domain.words.replace(plural(len(options[0]) - 1, "bin"), plural(bins, "bin"))
    built = msgspec.structs.replace(question, k=bins).build(advice.first.candidate.mechanism)
    return Asked(column, Domain({"bins": edges}, words, domain.hint), built, number_reasons(advice)[:1])


def finer_bins(edges: Sequence[int | float]) -> list[list[int | float]]:
    """Returns finer edges for bins of equal width: one list splits each bin into 2 parts, another into 5 parts.

    If all edges are integers, leaves out a split whose edges are not. Bins of unequal width are not split.

    >>> finer_bins([0, 10, 20])[0], finer_bins([0, 2, 4]), finer_bins([0, 1, 5])
    ([0, 5, 10, 15, 20], [[0, 1, 2, 3, 4]], [])
    """
    width = Decimal(str(edges[1])) - Decimal(str(edges[0]))
    if any(Decimal(str(b)) - Decimal(str(a)) != width for a, b in pairwise(edges)):
        return []
    whole = all(isinstance(edge, int) for edge in edges)
    steps = [(parts, width / parts) for parts in FINER if not whole or width % parts == 0]
    return [[rounded(Decimal(str(edges[0])) + i * step) for i in range(parts * (len(edges) - 1) + 1)] for parts, step in steps]


def _smallest_variance(advice: Advice) -> Advice:
    of_default = {row.mechanism: row for row in advice.ranking if row.estimator == DEFAULT}
    built = [(advice.question.build(c.mechanism), c.deviation**2) for c in advice.candidates if c.mechanism in of_default]
    return msgspec.structs.replace(advice, first=of_default[lightest(built).name])


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


def _people(column: Column, attribute: Attribute) -> IntArray:
    found, reader = Counter[int](), CellReader(attribute, lambda _: False)
    for cell, people in column.cells.items():
        # the reader refuses a number of more than 15 digits, such as 1e20 without its exponent
        value = reader.value(cell) if attribute.values is not None else attribute.find(column.numbers[cell])[0]
        if value is not None:
            found[value] += people
    if attribute.most is not None:
        return np.repeat(np.array(list(found), np.int64), list(found.values()))
    return np.array([found[value] for value in range(attribute.k)], np.int64)


def _text(name: str, start: datetime, least: int, asked: list[Asked]) -> str:
    collection = SAMPLED if len(asked) > 1 else "with one attribute, every device answers it"
    promise = PROMISES[all(one.mechanism.memoized for one in asked)]
    header = HEADER.format(name=name, start=f"{start:%Y-%m-%dT%H:%M:%SZ}", least=least, collection=collection, promise=promise)
    return "\n".join([header, *(_attribute(one) for one in asked)])


def _attribute(asked: Asked) -> str:
    m = asked.mechanism if asked.mechanism.memoized else asked.mechanism.spaced(EVERY_STEPS)
    keys = document(m, asked.column.name, asked.domain.keys)
    (level,) = keys.pop("level")
    header = asked.column.header
    lines = [
        "[[attribute]]",
        *([] if header == asked.column.name else [f"# column {toml_value(header)}"]),
        f"# {asked.domain.words}",
        *toml_lines(keys),
        "[[attribute.level]]",
        *(f"# {line}" for line in asked.comments),
        *toml_lines(level),
    ]
    return "\n".join([*lines, ""])
