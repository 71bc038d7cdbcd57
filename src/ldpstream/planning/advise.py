"""Compares the mechanisms that can answer a question. All numbers are exact or upper bounds; nothing is simulated.

The error of a span is the standard error of the unbiased estimate (matrix inversion), for values that do not change. With n
people and V_t, the variance of the mean of t reports of one person, it is the root of

    (w/T)² (φ t² V_t + (1-φ) (t-1)² V_{t-1}) / n          T steps, one report in w steps, t = ⌈T/w⌉, φ = T/w - t + 1

because a person makes t reports with the probability φ, and otherwise t-1. The error is that of a share, as the root mean
square over the values. For numbers it is the error of their mean.
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from ldpstream.estimators.smooth.numbers import mean_variance
from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import MAX_COUNT, integer
from ldpstream.mechanisms.claims.guessing import SAME
from ldpstream.mechanisms.registry import AUTO_CANDIDATES, NUMERIC, ONCE_CANDIDATES, answering, lightest
from ldpstream.mechanisms.sets import MAX_SET_VALUES
from ldpstream.promises.statements import CheckedChance, told
from ldpstream.surveys import SurveyError, parse_survey
from ldpstream.surveys.errors import UserError

MAX_K, MAX_PEOPLE = 100_000, 10_000_000
WINDOW = 24  # steps of a window
FIRST = (*NUMERIC, *ONCE_CANDIDATES, *AUTO_CANDIDATES)  # of like mechanisms, the adviser prefers these: their reports are short
SURVEY = {
    "name": "advised", "start": datetime(2026, 1, 5, tzinfo=UTC), "step_seconds": 3600, "window_steps": WINDOW,
    "lateness_steps": 1, "collection": "smp",
}  # fmt: skip


class AdviceError(UserError, ValueError):
    """The question cannot be answered; the message is one line with the reason."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question for the adviser.

    Attributes:
        k: number of values, in [2, 100 000]; with `choices` at most 30.
        people: people who answer, in [2, 10 000 000].
        eps: loss of each report in nats, for one-time mechanisms; with THE, the ε of the noise.
        every_steps: with eps, a device reports at one of this many steps, at least 1.
        eps_inf: lifetime loss of an unchanged value in nats, for memoized mechanisms.
        eps_1: loss of one report, below eps_inf; half of eps_inf by default.
        steps: number of steps of the longest span, at least 1.
        choices: the largest number of values that a person may choose, in [1, k]; None if a person has one value.
        numbers: True if the values are bins of numbers.

    Raises:
        AdviceError: if a number of values, people or steps is outside its range, or two arguments contradict each other.
    """

    k: int
    people: int
    eps: float | None = None
    every_steps: int = 1
    eps_inf: float | None = None
    eps_1: float | None = None
    steps: int = 365
    choices: int | None = None
    numbers: bool = False

    def __post_init__(self) -> None:
        try:
            integer("k", self.k, 2, MAX_K if self.choices is None else MAX_SET_VALUES)
            integer("choices", self.k if self.choices is None else self.choices, 1, self.k)
            integer("people", self.people, 2, MAX_PEOPLE)
            integer("steps", self.steps, 1, MAX_COUNT)
            integer("every_steps", self.every_steps, 1, MAX_COUNT)
        except ValueError as error:
            raise AdviceError(str(error)) from None
        if self.choices is not None and self.numbers:
            raise AdviceError("give choices or numbers, not both")
        if (self.eps is None) == (self.eps_inf is None):
            raise AdviceError("give exactly one of eps (one-time) and eps_inf (memoized)")
        if self.every_steps > 1 and self.eps is None:
            raise AdviceError("every_steps needs eps, not eps_inf")
        if self.eps_1 is not None and self.eps is not None:
            raise AdviceError("eps_1 needs eps_inf, not eps")

    @property
    def names(self) -> tuple[str, ...]:
        return answering(once=self.eps is not None, sets=self.choices is not None, numbers=self.numbers)

    @property
    def window(self) -> int:
        """Number of steps of a window: in `every_steps` steps every device reports once."""
        return self.every_steps if self.every_steps > 1 else WINDOW

    def attribute(self, name: str) -> dict[str, Any]:
        """An attribute with this mechanism, as parsed from TOML. Its values are the numbers 0 … k-1."""
        domain = {"size": self.k} if self.choices is None else {"values": [*map(str, range(self.k))], "choices": self.choices}
        eps_1 = self.eps_inf / 2 if self.eps_1 is None and self.eps_inf is not None else self.eps_1
        keys = {
            "name": "standard", "mechanism": name, "eps": self.eps, "eps_inf": self.eps_inf, "eps_1": eps_1,
            "every_steps": self.every_steps if self.every_steps > 1 else None,
        }  # fmt: skip
        return {"name": "value", **domain, "level": [{key: value for key, value in keys.items() if value is not None}]}


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """A mechanism that can answer the question.

    Attributes:
        errors: exact error of a "step", of a "window" and of all "steps", see above.
        guess_one, guess_all: chance of a right guess of a value that never changes, from one report and from all reports of a
            device in all steps.
        weight: number of honest people whom one false report outweighs.
        dominated_by: name of another mechanism that is at least as good in errors, chances, weight and bytes, and better in one
            of them; None if there is none.
    """

    mechanism: str
    eps_1: float
    errors: dict[str, float]
    guess_one: CheckedChance
    guess_all: CheckedChance
    weight: float
    report_bytes: int
    dominated_by: str | None = None

    @property
    def costs(self) -> tuple[float, ...]:
        return *self.errors.values(), self.guess_one.chance, self.guess_all.chance, self.weight, self.report_bytes

    def dominates(self, other: "Option") -> bool:
        pairs = list(zip(self.costs, other.costs, strict=True))
        return all(own <= cost * (1 + SAME) for own, cost in pairs) and any(own * (1 + SAME) < cost for own, cost in pairs)


@dataclass(frozen=True)
class Advice:
    """The answer to a question.

    Attributes:
        options: the possible mechanisms; the smallest error of a window comes first.
        refused: the other mechanisms, with the reason.
        first: the advised mechanism.
    """

    question: Question
    options: list[Option]
    refused: dict[str, str]
    first: Mechanism


def advise(question: Question) -> Advice:
    """Compares the mechanisms for equal shares of all values.

    Raises:
        AdviceError: if no mechanism is possible.
    """
    built, refused = possible(question)
    found = [_option(question, m) for m in built]
    first = lightest([(m, option.errors["window"] ** 2) for m, option in zip(built, found, strict=True)])
    found.sort(key=lambda option: option.errors["window"])
    marked = [
        msgspec.structs.replace(one, dominated_by=next((other.mechanism for other in found if other.dominates(one)), None))
        for one in found
    ]
    return Advice(question, marked, refused, first)


def _option(question: Question, m: Mechanism) -> Option:
    spans = {"step": 1, "window": question.window, "steps": question.steps}
    return Option(
        mechanism=m.name, eps_1=m.eps_1, errors={name: math.sqrt(variance(question, m, span)) for name, span in spans.items()},
        guess_one=told(m.guess()), guess_all=told(m.guess(m.reports_in(question.steps))), weight=m.outweighs(),
        report_bytes=m.row_bytes,
    )  # fmt: skip


def possible(question: Question) -> tuple[list[Mechanism], dict[str, str]]:
    """The mechanisms that can answer the question, and the others with the reason.

    Raises:
        AdviceError: if no mechanism is possible.
    """
    built, refused = [], {}
    for name in sorted(question.names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)):
        keys = {"window_steps": question.window, "attribute": [question.attribute(name)]}
        try:
            built.append(parse_survey(SURVEY | keys).mechanisms[0][0])
        except SurveyError as error:
            refused[name] = str(error).rpartition("standard): ")[2]
    if not built:
        raise AdviceError(f"no mechanism is possible: {'; '.join(dict.fromkeys(refused.values()))}")
    return built, refused


def variance(question: Question, m: Mechanism, span: int) -> float:
    """The square of the error of a span of steps.

    With m = `choices`, m/(k + m) of the people have each value.
    """
    most, reports, mean = m.choices or 1, m.reports_in(span), span / m.every_steps
    shares = np.full(question.k, most / (question.k + (question.choices or 0)))
    middles = (np.arange(question.k) + 0.5) / question.k  # of bins of equal width in [0, 1]

    def of_sum(t: int) -> float:
        """The variance of the sum of t reports of a person."""
        if t == 0:
            return 0.0
        if question.numbers:
            return t**2 * mean_variance(m, shares, middles, t)
        return (t * most) ** 2 * float(np.mean(m.reading.inversion_variances(shares / most, 1, t)))

    often = mean - reports + 1
    rarely = (1 - often) * of_sum(reports - 1) if often < 1 else 0.0
    return (often * of_sum(reports) + rarely) / (mean**2 * question.people)
