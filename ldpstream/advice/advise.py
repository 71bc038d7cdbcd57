"""Ranks mechanisms by exact variance, then combinations of mechanism, estimator and post-processing by simulation."""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from ldpstream.advice.combinations import Combinations, best_combinations
from ldpstream.advice.methods import DEFAULT
from ldpstream.advice.populations import SHAPES
from ldpstream.advice.question import AdviceError, Question
from ldpstream.advice.runs import Combination, Source, inversion_variances, people, shares_of, simulate
from ldpstream.advice.windows import EqualPromise, equal_promises
from ldpstream.mechanisms import Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray, integer
from ldpstream.mechanisms.registry import LIKE_VARIANCE, answering, lightest
from ldpstream.mechanisms.sets import checked_codes
from ldpstream.surveys import SurveyError, parse_survey

FEW = 4  # number of mechanisms to simulate
SURE = 3.0  # two combinations differ significantly if their paired difference exceeds this many standard errors
MAX_BITS = 10**9  # limit on the bits of subset selection's reports in one repetition


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A mechanism that the adviser considers.

    Attributes:
        deviation: exact root mean squared error of the raw matrix inversion, over values and distributions.
        report_bytes: length of a report in bytes, without the envelope.
        eps_1, eps_inf, eps_t: losses in nats of one report, of any number and of `horizon` reports of an unchanged value.
            eps_inf is None for a one-time mechanism.
        eps_any: upper bound of the loss of `horizon` reports, for any two sequences of values.
        weight: number of honest people whom one false report outweighs for one value (`Mechanism.outweighs`).
        dropped: the reason for not simulating the mechanism; "" if there is none. A mechanism that the question does not allow
            has no numbers: they are infinite, NaN, 0 or None.
    """

    mechanism: str
    signature: str
    deviation: float
    report_bytes: int
    eps_1: float
    eps_inf: float | None
    eps_t: float
    eps_any: float
    weight: float
    dropped: str = ""

    def variance_ratio(self, other: "Candidate") -> float:
        ratio = self.deviation / other.deviation
        return ratio * ratio


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A simulated combination of mechanism, estimator and post-processing.

    Attributes:
        estimator: a name of `publishing.catalogue.ESTIMATORS`.
        error: mean of the metric over repetitions and distributions, with the reduced noise of `advice.runs`; infinite if one
            value is infinite.
        standard_error: standard error of the mean; NaN if the mean is infinite.
        best: True for the first combination, and for others whose error is not significantly larger.
    """

    mechanism: str
    estimator: str
    post: str
    error: float
    standard_error: float
    best: bool


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """The adviser's answer; `ranking` is sorted by simulated error.

    `combinations` is None if a person has one answer, or if no combinations fit. `promises` is empty for a one-time mechanism.
    """

    question: Question
    seed: int
    repeats: int
    sample: int | None
    rare: float
    candidates: list[Candidate]
    ranking: list[Ranked]
    first: Ranked
    combinations: Combinations | None
    promises: list[EqualPromise]

    def candidate(self, name: str) -> Candidate:
        return next(c for c in self.candidates if c.mechanism == name)

    @property
    def combined(self) -> Combinations | None:
        """The question for combinations, if its exact error is smaller than that of the first mechanism; else None."""
        best, own = self.combinations, self.candidate(self.first.mechanism).deviation
        return best if best is not None and best.deviation < own else None


def document(m: Mechanism, name: str, domain: Mapping[str, Any]) -> dict[str, Any]:
    """A survey's attribute with this mechanism, as parsed from TOML."""
    level: dict[str, Any] = {"name": "standard", "mechanism": m.name}
    level |= m.epsilons()
    level |= {"every_steps": m.every_steps} if m.every_steps > 1 else {}
    return {"name": name, **domain, "level": [level]}


def check_attribute(question: Question, name: str, labels: Sequence[str] | None) -> None:
    """Raises AdviceError if a survey cannot have an attribute with this name and the question's values or these labels.

    The message never shows a label.
    """
    level = mechanism(answering(once=True, sets=question.choices is not None)[0], question.k, eps=1.0, choices=question.choices)
    try:
        parse_survey(SURVEY | {"attribute": [document(level, name, question.domain(labels))]})
    except SurveyError as error:
        said = str(error) if labels is None else str(error).split(", got ")[0]
        raise AdviceError(f"not a valid survey attribute: {said}") from None


SURVEY = {
    "name": "advised", "start": datetime(2026, 1, 5, tzinfo=UTC), "step_seconds": 3600, "window_steps": 24, "lateness_steps": 1,
    "collection": "smp",
}  # fmt: skip


def advise(
    question: Question,
    sample: IntArray | None = None,
    *,
    labels: Sequence[str] | None = None,
    repeats: int = 100,
    seed: int = 1,
    seen: Callable[[int, int, str], None] = lambda *_: None,
    processes: int | None = None,
) -> Advice:
    """Ranks the mechanisms and estimators that can answer a question.

    Args:
        sample: (k,) counts of a sample of people; with several answers of a person, (m,) codes of their sets. A sample of n
            people is the population. Otherwise the simulation draws n people: from the sample's distribution, or without a
            sample from each of five shapes.
        repeats: repetitions for each distribution, at least 10.
        seed: seed of all randomness; the answer does not depend on the number of cores.
        seen: called with the repetitions done, all repetitions, and the current task.
        processes: number of worker processes; one for each core if left out.

    Raises:
        AdviceError: if an argument is outside its range, or no mechanism is left.
    """
    check_runs(repeats, seed)
    if sample is not None and question.choices is not None:
        sample = _sets(sample, question.k, question.choices)
    elif sample is not None and (sample.shape != (question.k,) or sample.min() < 0 or not sample.any()):
        raise AdviceError(f"sample must be {question.k} counts of at least one person")
    sources: list[Source] = list(SHAPES) if sample is None else [sample]
    asked = [people(source, question, np.random.default_rng([seed, i])) for i, source in enumerate(sources)]
    shares = [shares_of(each, question) for each in asked]
    candidates = rank_by_variance(question, shares)
    simulated = [c.mechanism for c in candidates if not c.dropped]
    if not simulated:
        raise AdviceError("no mechanism is left: " + "; ".join(f"{c.mechanism}: {c.dropped}" for c in candidates))
    found = simulate(question, simulated, sources, repeats, seed, seen, processes)
    errors = {combination: runs.mean(axis=0) for combination, runs in found.items()}  # (repeats,) means over the distributions
    noise = candidates[0].deviation
    ranking = rank(errors)
    first = lightest_row(ranking, candidates, question)
    promises = []
    if question.eps_inf is not None:
        promises = equal_promises(question.build(first.mechanism), question.n, question.horizon, shares)
    return Advice(
        question=question,
        seed=seed,
        repeats=repeats,
        sample=None if sample is None else int(sample.sum() if question.choices is None else sample.size),
        rare=float(np.mean([(f < noise).mean() for f in shares])),
        candidates=candidates,
        ranking=ranking,
        first=first,
        combinations=None if question.choices is None else best_combinations(question, asked, labels),
        promises=promises,
    )


def check_runs(repeats: int, seed: int) -> None:
    try:
        integer("repeats", repeats, 10, 10**6)
        integer("seed", seed, 0, 2**63)
    except ValueError as error:
        raise AdviceError(str(error)) from None


def _sets(sample: IntArray, k: int, choices: int) -> IntArray:
    try:
        found = checked_codes(sample, k, choices)
    except ValueError as error:
        raise AdviceError(f"sample: {error}") from None
    if not found.size:
        raise AdviceError("sample must have at least one person")
    return found


def lightest_row(ranking: Sequence[Ranked], candidates: Sequence[Candidate], question: Question) -> Ranked:
    """The advised row: of the default estimate if it is as good as the best, else of the best estimate.

    Of the mechanisms that are as good with this estimate and have a similar variance, `registry.lightest` chooses one.
    """
    first = next((row for row in ranking if row.best and row.estimator == DEFAULT), ranking[0])
    like = {r.mechanism: r for r in ranking if r.best and (r.estimator, r.post) == (first.estimator, first.post)}
    variances = {c.mechanism: c.deviation**2 for c in candidates}
    own = variances[first.mechanism]
    near = [name for name in like if own / LIKE_VARIANCE <= variances[name] <= own * LIKE_VARIANCE]
    options = [(question.build(name), variances[name]) for name in near] or [(question.build(first.mechanism), own)]
    return like[lightest(options).name]


# ---- the ranking by exact variance


def rank_by_variance(question: Question, shares: Sequence[FloatArray]) -> list[Candidate]:
    found = []
    for name in question.names:
        try:
            m = question.build(name)
        except ValueError as error:
            found.append(_impossible(name, str(error)))
            continue
        deviation = math.sqrt(np.mean([inversion_variances(m, f, question.n) for f in shares]))
        found.append(candidate_of(question, m, deviation))
    found.sort(key=lambda c: (bool(c.dropped), c.deviation, c.report_bytes))
    return [
        msgspec.structs.replace(c, dropped=f"its variance is {c.variance_ratio(found[0]):.3g} times the smallest")
        if i >= FEW and not c.dropped
        else c
        for i, c in enumerate(found)
    ]


def candidate_of(question: Question, m: Mechanism, deviation: float) -> Candidate:
    return Candidate(
        mechanism=m.name, signature=m.signature, deviation=deviation, report_bytes=m.report_dtype.itemsize, eps_1=m.eps_1,
        eps_inf=None if math.isinf(m.eps_inf) else m.eps_inf, eps_t=m.eps_t(question.horizon),
        eps_any=m.eps_sequence(question.horizon).value, weight=m.outweighs(), dropped=_refused(question, m),
    )  # fmt: skip


def _impossible(name: str, why: str) -> Candidate:
    return Candidate(
        mechanism=name, signature=name, deviation=math.inf, report_bytes=0, eps_1=math.nan, eps_inf=None, eps_t=math.nan,
        eps_any=math.nan, weight=math.nan, dropped=why,
    )  # fmt: skip


def _refused(question: Question, m: Mechanism) -> str:
    if question.max_bytes is not None and m.report_dtype.itemsize > question.max_bytes:
        return f"a report takes {m.report_dtype.itemsize} bytes, more than {question.max_bytes}"
    if m.report_dtype.shape and not m.independent_bits and question.n * question.k > MAX_BITS:
        return f"its reports are too long to simulate: {question.n:,} people, {question.k:,} bits each"
    try:
        parse_survey(SURVEY | {"attribute": [document(m, "value", question.domain())]})
    except SurveyError as error:
        return str(error).rpartition("standard): ")[2]
    return ""


def rank(errors: dict[Combination, FloatArray]) -> list[Ranked]:
    order = sorted(errors, key=lambda key: float(f"{errors[key].mean():.9g}"))
    first = errors[order[0]]
    return [
        Ranked(
            mechanism=name,
            estimator=estimator,
            post=post,
            error=float(runs.mean()),
            standard_error=standard_error(runs),
            best=not worse(runs, first),
        )
        for name, estimator, post in order
        for runs in [errors[name, estimator, post]]
    ]


def standard_error(runs: FloatArray) -> float:
    """Standard error of the mean of (repeats,) numbers; NaN if one number is infinite."""
    return float(runs.std(ddof=1) / math.sqrt(runs.size)) if np.isfinite(runs).all() else math.nan


def worse(runs: FloatArray, than: FloatArray) -> bool:
    """True if the mean of `runs` exceeds the mean of `than` by more than three standard errors of the paired difference."""
    if not np.isfinite(runs).all():
        return bool(np.isfinite(than).all())
    if not np.isfinite(than).all():
        return False
    difference = runs - than
    return bool(difference.mean() > SURE * standard_error(difference) and difference.any())
