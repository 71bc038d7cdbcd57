"""Simulated errors of every mechanism, estimator and post-processing, with reduced noise.

Each repetition has one population for all mechanisms, and draws one count table for each mechanism.

A regression on `luck` (control variates) reduces the noise of the errors.

An error compares the estimate of one time step with the histogram of the people who report. Each person sends one report.
"""

import math
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from ldpstream.advice.drawn_tables import drawn_table, tabulate
from ldpstream.advice.methods import estimates, powered_estimates
from ldpstream.advice.populations import population, population_of_sets
from ldpstream.advice.question import METRICS, Question
from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.mechanisms.sets import members
from ldpstream.processes import worker_pool
from ldpstream.publishing.catalogue import INVERSION

UNLIKELY = 6.0  # limit on a mean luck that chance can explain, in standard errors
Combination = tuple[str, str, str]  # mechanism, estimator, post-processing
Source = str | IntArray
"""A shape's name, or people: n of them are the population. Others are a sample, from whose distribution n people are drawn."""


def inversion_variances(m: Mechanism, shares: FloatArray, n: int) -> FloatArray:
    """(k,) exact mean squared error of each value's raw inversion, against the histogram of the n people who report.

        m² (f a (1 - a) + (1 - f) q (1 - q)) / (n (p - q)²)        a = (p + (m - 1) q) / m

    m is the largest number of values of a person.
    """
    most = m.choices or 1
    chosen = (m.p + (most - 1) * m.q) / most
    noise = shares * chosen * (1 - chosen) + (1 - shares) * m.q * (1 - m.q)
    return np.asarray(most**2 * noise / (n * (m.p - m.q) ** 2))


def people(source: Source, question: Question, rng: np.random.Generator) -> IntArray:
    if question.choices is not None:
        if isinstance(source, str):
            return population_of_sets(source, question.k, question.choices, question.n, rng)
        return source if len(source) == question.n else rng.choice(source, question.n)
    if isinstance(source, str):
        return np.bincount(population(source, question.k, question.n, rng), minlength=question.k)
    total = int(source.sum())
    return source if total == question.n else rng.multinomial(question.n, source / total)


def shares_of(people: IntArray, question: Question) -> FloatArray:
    if question.choices is None:
        return np.asarray(people / question.n)
    codes, numbers = np.unique(people, return_counts=True)
    return np.asarray(numbers @ members(codes, question.k, question.choices)[:, : question.k] / people.size)


def simulate(
    question: Question,
    names: Sequence[str],
    sources: Sequence[Source],
    repeats: int,
    seed: int,
    seen: Callable[[int, int, str], None] = lambda *_: None,
    processes: int | None = None,
) -> dict[Combination, FloatArray]:
    """Returns the metric of every (mechanism, estimator, post-processing), as an array (distributions, repeats)."""
    built = [question.build(name) for name in names]
    tasks = [(i, r) for i in range(len(sources)) for r in range(repeats)]
    runs: list[Run] = []
    with worker_pool(processes, tasks=len(tasks)) as spread:
        for run in spread(partial(repetition, question, built, list(sources), seed), tasks):
            runs.append(run)
            seen(len(runs), len(tasks), "repetitions")
    shape = len(sources), repeats
    chance = {m.name: np.array([run.luck[m.name] for run in runs]).reshape(*shape, 2) for m in built}
    found = {key: np.array([run.errors[key] for run in runs]).reshape(shape) for key in runs[0].errors}
    return {key: without_luck(errors, chance[key[0]]) for key, errors in found.items()}


class Run(NamedTuple):
    errors: dict[Combination, float]
    luck: dict[str, tuple[float, float]]


def repetition(
    question: Question, built: Sequence[Mechanism], sources: Sequence[Source], seed: int, task: tuple[int, int]
) -> Run:
    asked = people(sources[task[0]], question, np.random.default_rng([seed, *task]))
    truth, metric = shares_of(asked, question), METRICS[question.metric]
    run = Run({}, {})
    for m in built:
        rng = np.random.default_rng([seed, *task, zlib.crc32(m.name.encode())])
        table = drawn_table(m, asked, rng) if question.choices is None else tabulate(m, asked, rng)
        for name, of_all in (*estimates(m, table), *powered_estimates(m, table)):
            frequencies = of_all[: question.k]  # without the numbers of answers
            estimator, _, post = name.partition(" ")
            known = np.isfinite(frequencies).all()  # the likelihood of bit reports gives no estimate if all bits are 0
            run.errors[m.name, estimator, post or "none"] = metric(truth, frequencies) if known else math.inf
            if name == INVERSION:
                run.luck[m.name] = luck(m, truth, frequencies, question.n)
    return run


def luck(m: Mechanism, truth: FloatArray, inverted: FloatArray, n: int) -> tuple[float, float]:
    """Mean squared error of a raw inversion, minus the expected error for these people, as a sum of two parts.

    The first part comes from the values with shares below the noise, the second part from the other values.
    """
    expected = inversion_variances(m, truth, n)
    excess, rare = ((inverted - truth) ** 2 - expected) / truth.size, truth**2 < expected
    return float(excess[rare].sum()), float(excess[~rare].sum())


def without_luck(runs: FloatArray, luck: FloatArray) -> FloatArray:
    """Errors (distributions, repeats) minus the part that a regression on `luck` (distributions, repeats, 2) explains.

    The errors of a distribution are unchanged if chance cannot explain its mean luck. All are unchanged if one is infinite.
    """
    if not np.isfinite(runs).all():
        return runs
    rest = runs.copy()
    for i, (errors, parts) in enumerate(zip(runs, luck, strict=True)):
        mean, deviation = parts.mean(axis=0), parts.std(axis=0)
        if (np.abs(mean) <= UNLIKELY * deviation / math.sqrt(len(parts))).all() and deviation.any():
            scale = deviation.max()
            slopes = np.linalg.lstsq((parts - mean) / scale, errors - errors.mean(), rcond=1e-10)[0]
            rest[i] -= parts / scale @ slopes
    return rest
