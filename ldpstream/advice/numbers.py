"""Advice for numbers: which mechanism and how many bins, for the mean, the percentiles or the whole distribution.

An error compares the published number with the number of the simulated people:

    mean          |μ̂ - μ|
    percentiles   the mean of the three errors of the median, the 90th and the 99th percentile
    histogram     the Wasserstein distance ∫ |F̂⁻¹(u) - F⁻¹(u)| du, F̂ being linear within each bin

All errors have the unit of the numbers.
"""

import math
import zlib
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import numpy as np

from ldpstream.advice.advise import Candidate, candidate_of, check_runs, standard_error, worse
from ldpstream.advice.drawn_tables import drawn_table
from ldpstream.advice.methods import BEST
from ldpstream.advice.populations import SHAPES
from ldpstream.advice.question import AdviceError, Question
from ldpstream.estimators.quantiles import PERCENTILES
from ldpstream.estimators.smooth.numbers import mean_variance
from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.processes import worker_pool
from ldpstream.publishing.catalogue import AttributeCounts
from ldpstream.publishing.frequencies import numbers_of

BINS = (10, 20, 50, 100, 200)
MAX_END = 1e100  # largest end of a range: the squares of numbers must stay finite
TARGETS = ("mean", "percentiles", "histogram")
MIDDLES = (np.arange(1000) + 0.5) / 1000  # probabilities for the Wasserstein distance
Source = str | FloatArray  # a shape's name, or a sample's numbers
Option = tuple[str, int]  # mechanism, index of the edges


class Binned(msgspec.Struct, frozen=True, kw_only=True):
    """A mechanism on bins.

    Attributes:
        edges: the bins' edges.
        candidate: the mechanism; its `deviation` is the exact standard error of the unbiased mean.
        errors, standard_errors: simulated error of each of `TARGETS`, and its standard error.
        best: True if the target's error is not significantly larger than the smallest.
    """

    edges: list[float]
    candidate: Candidate
    errors: dict[str, float]
    standard_errors: dict[str, float]
    best: bool

    @property
    def bins(self) -> int:
        return len(self.edges) - 1


class NumberAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """The adviser's answer; `ranking` is sorted by the error of the target."""

    question: Question
    target: str
    seed: int
    repeats: int
    sample: int | None
    ranking: list[Binned]

    @property
    def first(self) -> Binned:
        """The advised mechanism and bins: those with the smallest error."""
        return self.ranking[0]


def even_bins(low: float, high: float) -> list[list[float]]:
    """The edges of each number of bins in `BINS`, of equal width.

    Raises:
        AdviceError: if the range is not two finite numbers in ascending order, has an end beyond ±1e100, or is too narrow for
            200 bins.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise AdviceError(f"range must be two finite numbers in ascending order, got {low:g} and {high:g}")
    if max(-low, high) > MAX_END:
        raise AdviceError(f"range must be in [-{MAX_END:g}, {MAX_END:g}], got {low:g} and {high:g}")
    found = [[float(f"{low + (high - low) * i / bins:.12g}") for i in range(bins + 1)] for bins in BINS]
    if any(len(set(edges)) < len(edges) for edges in found):
        raise AdviceError(f"range is too narrow for {BINS[-1]} bins, got {low!r} and {high!r}")
    return found


def advise_numbers(
    question: Question,
    edges: Sequence[Sequence[float]],
    target: str,
    sample: FloatArray | None = None,
    *,
    repeats: int = 20,
    seed: int = 1,
    seen: Callable[[int, int, str], None] = lambda *_: None,
    processes: int | None = None,
) -> NumberAdvice:
    """Ranks mechanisms and bins for a number.

    Args:
        question: people and losses; its k is the number of bins of `edges[0]`, and `numbers` is true.
        target: one of `TARGETS`.
        sample: (m,) numbers of a sample of people; a sample of n people is the population. None for the five shapes.

    Raises:
        AdviceError: if an argument is outside its range, or no mechanism is left.
    """
    check_target(target)
    check_runs(repeats, seed)
    sources: list[Source] = list(SHAPES) if sample is None else [sample]
    limits = float(edges[0][0]), float(edges[0][-1])
    drawn = [people(source, question.n, limits, np.random.default_rng([seed, i])) for i, source in enumerate(sources)]
    options: dict[Option, tuple[Mechanism, Candidate]] = {}
    dropped: dict[str, str] = {}
    for i, at in enumerate(edges):
        asked = msgspec.structs.replace(question, k=len(at) - 1)
        of_kind: dict[bool, list[tuple[Mechanism, Candidate]]] = {}
        for name in asked.names:
            try:
                m = asked.build(name)
            except ValueError as error:
                dropped[name] = str(error)
                continue
            candidate = candidate_of(asked, m, mean_deviation(m, at, drawn))
            if candidate.dropped:
                dropped[name] = candidate.dropped
            else:
                of_kind.setdefault(m.pure, []).append((m, candidate))
        for found in of_kind.values():
            m, candidate = min(found, key=lambda one: one[1].deviation)
            options[m.name, i] = m, candidate
    if not options:
        raise AdviceError("no mechanism is left: " + "; ".join(f"{name}: {why}" for name, why in dropped.items()))
    built = {option: m for option, (m, _) in options.items()}
    tasks = [(i, r) for i in range(len(sources)) for r in range(repeats)]
    runs: list[dict[Option, dict[str, float]]] = []
    with worker_pool(processes, tasks=len(tasks)) as spread:
        for run in spread(partial(repetition, question.n, built, [list(at) for at in edges], sources, seed), tasks):
            runs.append(run)
            seen(len(runs), len(tasks), "repetitions")
    means = {
        option: {of: np.array([run[option][of] for run in runs]).reshape(len(sources), repeats).mean(axis=0) for of in TARGETS}
        for option in options
    }
    order = sorted(options, key=lambda option: float(means[option][target].mean()))
    ranking = [
        Binned(
            edges=[float(edge) for edge in edges[option[1]]], candidate=options[option][1],
            errors={of: float(each.mean()) for of, each in means[option].items()},
            standard_errors={of: standard_error(each) for of, each in means[option].items()},
            best=not worse(means[option][target], means[order[0]][target]),
        )
        for option in order
    ]  # fmt: skip
    return NumberAdvice(
        question=question, target=target, seed=seed, repeats=repeats, sample=None if sample is None else sample.size,
        ranking=ranking,
    )  # fmt: skip


def check_target(target: str) -> None:
    if target not in TARGETS:
        raise AdviceError(f"the wanted numbers must be one of {', '.join(TARGETS)}, got {target!r}")


def people(source: Source, n: int, limits: tuple[float, float], rng: np.random.Generator) -> FloatArray:
    if not isinstance(source, str):
        numbers = source if source.size == n else rng.choice(source, n)
        return np.sort(np.clip(numbers, *limits))
    samples = np.sort(SHAPES[source](rng, n))
    return np.asarray(limits[0] + (samples - samples[0]) / (np.ptp(samples) or 1.0) * (limits[1] - limits[0]))


def counts_in(numbers: FloatArray, edges: Sequence[float]) -> IntArray:
    k = len(edges) - 1
    places = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, k - 1)
    return np.bincount(places, minlength=k)


def mean_deviation(m: Mechanism, edges: Sequence[float], drawn: Sequence[FloatArray]) -> float:
    at = np.array(edges)
    middles = (at[1:] + at[:-1]) / 2
    variances = [mean_variance(m, counts_in(numbers, edges) / numbers.size, middles) / numbers.size for numbers in drawn]
    return math.sqrt(np.mean(variances))


def repetition(
    n: int,
    options: dict[Option, Mechanism],
    edges: Sequence[Sequence[float]],
    sources: Sequence[Source],
    seed: int,
    task: tuple[int, int],
) -> dict[Option, dict[str, float]]:
    limits = float(edges[0][0]), float(edges[0][-1])
    numbers = people(sources[task[0]], n, limits, np.random.default_rng([seed, *task]))
    percentiles = np.quantile(numbers, PERCENTILES, method="inverted_cdf")
    truth = numbers[(MIDDLES * n).astype(np.int64)]
    found = {}
    for (name, i), m in options.items():
        rng = np.random.default_rng([seed, *task, zlib.crc32(f"{name} {i}".encode())])
        counts = AttributeCounts([(m, drawn_table(m, counts_in(numbers, edges[i]), rng))], [1], True, edges[i])
        estimate = BEST.estimate(counts)
        mean, *others = (number.value for number in numbers_of(estimate, edges[i], bins=True).values())
        reached = np.concatenate([[0.0], np.cumsum(estimate.frequencies)])
        found[name, i] = {
            "mean": abs(mean - float(numbers.mean())),
            "percentiles": float(np.abs(np.array(others) - percentiles).mean()),
            "histogram": float(np.abs(np.interp(MIDDLES, reached / reached[-1], edges[i]) - truth).mean()),
        }
    return found
