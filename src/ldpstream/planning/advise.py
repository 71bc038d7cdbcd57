"""Compares the mechanisms that can answer a question. All numbers are exact or upper bounds; nothing is simulated.

The error of a span is the standard error of the unbiased estimate (matrix inversion), for values that do not change. With n
people and V_t, the variance of the mean of t reports of one person, it is the root of

    (w/T)² (φ t² V_t + (1-φ) (t-1)² V_{t-1}) / n          T steps, one report in w steps, t = ⌈T/w⌉, φ = T/w - t + 1

because a person makes t reports with the probability φ, and otherwise t-1. The error is that of a share, as the root mean
square over the values. For numbers it is the error of their mean.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from ldpstream.estimators.smooth.numbers import mean_variance
from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.claims.guessing import SAME, Chance
from ldpstream.mechanisms.registry import AUTO_CANDIDATES, NUMERIC, ONCE_CANDIDATES, lightest
from ldpstream.planning.question import AdviceError, Question
from ldpstream.surveys import SurveyError, parse_survey

WINDOW = 24  # steps of a window
FIRST = (*NUMERIC, *ONCE_CANDIDATES, *AUTO_CANDIDATES)  # of like mechanisms, the adviser prefers these: their reports are short


@dataclass(frozen=True)
class Option:
    """A mechanism that can answer the question.

    Attributes:
        errors: exact error of a step, of a window and of all steps, see above.
        guess_one, guess_all: chance of a right guess of a value that never changes, from one report and from all reports of a
            device in all steps.
        dominated: name of another mechanism that is at least as good in errors, chances, weight and bytes, and better in one of
            them; "" if there is none.
    """

    m: Mechanism
    errors: tuple[float, ...]
    guess_one: Chance
    guess_all: Chance
    dominated: str = ""

    @property
    def costs(self) -> tuple[float, ...]:
        return *self.errors, self.guess_one, self.guess_all, self.m.outweighs(), self.m.row_bytes

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


def window(question: Question) -> int:
    """Number of steps of a window: in `every_steps` steps every device reports once."""
    return question.every_steps if question.every_steps > 1 else WINDOW


def advise(question: Question) -> Advice:
    """Compares the mechanisms for equal shares of all values.

    Raises:
        AdviceError: if no mechanism is possible.
    """
    built, refused = possible(question)
    shares = equal_shares(question)
    spans = 1, window(question), question.steps
    found = []
    for m in built:
        errors = tuple(math.sqrt(variance(question, m, shares, span)) for span in spans)
        found.append(Option(m, errors, m.guess(), m.guess(m.reports_in(question.steps))))
    found.sort(key=lambda option: option.errors[1])
    marked = [replace(one, dominated=next((other.m.name for other in found if other.dominates(one)), "")) for one in found]
    return Advice(question, marked, refused, best(variances(question, built, shares)))


def possible(question: Question) -> tuple[list[Mechanism], dict[str, str]]:
    """The mechanisms that can answer the question, and the others with the reason.

    Raises:
        AdviceError: if no mechanism is possible.
    """
    built, refused = [], {}
    for name in sorted(question.names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)):
        try:
            m = question.build(name, window(question))
            keys = {"window_steps": window(question), "attribute": [document(m, "value", question.domain)]}
            parse_survey(SURVEY | keys)
            built.append(m)
        except SurveyError as error:
            refused[name] = str(error).rpartition("standard): ")[2]
        except ValueError as error:
            refused[name] = str(error)
    if not built:
        raise AdviceError("no mechanism is possible: " + "; ".join(f"{name}: {why}" for name, why in refused.items()))
    return built, refused


def variances(
    question: Question, built: list[Mechanism], shares: FloatArray, middles: FloatArray | None = None
) -> dict[Mechanism, float]:
    return {m: variance(question, m, shares, window(question), middles) for m in built}


def best(found: Mapping[Mechanism, float]) -> Mechanism:
    """The mechanism with the smallest variance of a window; of like ones, the one with the smaller weight.

    `registry.lightest` is the rule.
    """
    return lightest(list(found.items()))


def reason(m: Mechanism, found: Mapping[Mechanism, float]) -> str:
    """Says why `best` chose this mechanism from these errors or variances. The words show no number of a sample."""
    if len(found) == 1:
        return f"{m.name}: the only mechanism for this question."
    if found[m] == min(found.values()):
        return f"{m.name}: the smallest exact variance of a window."
    return f"{m.name}: its exact variance of a window is within 1 % of the smallest, and a false report has less weight."


def equal_shares(question: Question) -> FloatArray:
    """(k,) equal shares of people; with m = `choices`, m/(k + m) of the people have each value."""
    most = question.choices
    return np.full(question.k, 1 / question.k if most is None else most / (question.k + most))


def variance(question: Question, m: Mechanism, shares: FloatArray, span: int, middles: FloatArray | None = None) -> float:
    """The square of the error of a span of steps.

    Args:
        shares: (k,) true shares of people with each value.
        middles: (k,) middles of the bins, for numbers; None for bins of equal width in [0, 1].
    """
    most, reports, mean = m.choices or 1, m.reports_in(span), span / m.every_steps
    at = (np.arange(question.k) + 0.5) / question.k if middles is None else middles

    def of_sum(t: int) -> float:
        """The variance of the sum of t reports of a person."""
        if t == 0:
            return 0.0
        if question.numbers:
            return t**2 * mean_variance(m, shares, at, t)
        return (t * most) ** 2 * float(np.mean(m.reading.inversion_variances(shares / most, 1, t)))

    often = mean - reports + 1
    rarely = (1 - often) * of_sum(reports - 1) if often < 1 else 0.0
    return (often * of_sum(reports) + rarely) / (mean**2 * question.people)


SURVEY = {
    "name": "advised", "start": datetime(2026, 1, 5, tzinfo=UTC), "step_seconds": 3600, "window_steps": WINDOW,
    "lateness_steps": 1, "collection": "smp",
}  # fmt: skip


def document(m: Mechanism, name: str, domain: Mapping[str, Any]) -> dict[str, Any]:
    """A survey's attribute with this mechanism, as parsed from TOML."""
    level: dict[str, Any] = {"name": "standard", "mechanism": m.name}
    level |= m.epsilons()
    level |= {"every_steps": m.every_steps} if m.every_steps > 1 else {}
    level |= {"lifetime_reports": m.lifetime_reports} if m.lifetime_reports else {}
    level |= {"memo_size": size} if (size := m.parameters().memo_size) else {}
    return {"name": name, **domain, "level": [level]}
